"""How far a profile is to be trusted: what of it is modelled and what assumed, and how far such programs were off."""

from __future__ import annotations

import csv
from importlib import resources
from typing import Any

from abele.charge.memory import ADDRESS_BYTES, CALL_INSTRUCTIONS, CONTROL_INSTRUCTIONS, FIELD_BYTES, STACK_BYTES
from abele.machine.system import System
from abele.schedule.records import Schedule
from abele.schedule.vertex import vertex_kind

MODELLED = (
    "cycles, and the throughput from them: charged to the steps of the schedule, no clock was read",
    "tile memory: of layouts, live ranges and code sizes; addresses by first fit",
    "exchange between tiles: bytes of each tile are counted, where they come from is told by samples",
    "energy: joules by work, scaled to the power of the machine",
)

PLANNER = "poplibs"
"""The planner that ``abele validate`` charges."""

_SIZES = (
    ("stacks of a tile", STACK_BYTES, "B"),
    ("state of a vertex for each tensor", FIELD_BYTES, "B"),
    ("a further call of an equal compute set, for each tensor", ADDRESS_BYTES, "B"),
    ("start of a compute set", CONTROL_INSTRUCTIONS, "instructions"),
    ("start of an equal compute set once more", CALL_INSTRUCTIONS, "instructions"),
)


def provenance(schedule: Schedule, system: System) -> dict[str, list[str]]:
    """What of a report is modelled and what is assumed, in words; ``measured`` is for those who run the program."""
    constants = {f"chip.{name}": c for name, c in system.chip.constants.items()} | dict(system.constants)
    assumed = [f"{n} = {c.value:g} {c.unit}: {c.source}" for n, c in constants.items() if c.confidence == "assumed"]
    assumed += [f"{what} = {value} {unit}" for what, value, unit in _SIZES]
    kinds = {cs.vertex for _, step in schedule.steps() for cs in step.plan.sets}
    code = {name for kind in kinds for name in vertex_kind(kind).code}
    estimates = [system.chip.estimate_of(name) for name in sorted(code)]
    assumed += [f"cycles of {e.name}: {e.source}" for e in estimates if e.confidence == "assumed"]
    return {"modelled": list(MODELLED), "measured": [], "assumed": assumed}


def mode_of(schedule: Schedule) -> str:
    """``training`` of a program with a backward pass, else ``inference``."""
    backward = any(step.origin.phase == "backward" for _, step in schedule.steps())
    return "training" if backward else "inference"


def band_of(mode: str) -> dict[str, Any]:
    """The error that ``abele validate`` finds for whole programs of this kind whose configuration is known, as shares
    of the published value: ``family``, ``median``, ``p90``, the ``planner`` that it was found with, and its ``basis``
    in words."""
    text = (resources.files("abele.cost") / "data" / "bands.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        if row["family"] == mode:
            basis = (
                f"{row['cases']} published figures of {mode} whose configuration is known, with the planner {PLANNER}"
            )
            basis += " (abele validate)"
            shares = {name: float(row[name]) for name in ("median", "p90")}
            return {"family": mode, **shares, "planner": PLANNER, "basis": basis}
    return {}

"""Runners of cycle-level cases: one vertex on a tile, memory bandwidth, and single constants of a machine."""

from __future__ import annotations

import inspect
from typing import Any

from abele.cost.validate.cases import Case
from abele.cost.validate.outcome import Context, NoRunner, Outcome, runner
from abele.errors import InvalidOption, suggest
from abele.machine.chip import Chip
from abele.machine.cycles import ESTIMATES
from abele.machine.exchange import sync_cycles
from abele.machine.system import find_system

_ABOUT = ("of", "batch", "step")
"""Options that are the runner's own and no fields of the vertex."""


def vertex_cycles(chip: Chip, case: Case, **changes: Any) -> float:
    """Tile cycles of the case's vertex with its options as fields."""
    if case.model not in ESTIMATES:
        raise InvalidOption(f"{case.id}: there is no vertex {case.model!r}", remedy=suggest(case.model, ESTIMATES))
    known = [p for p in inspect.signature(ESTIMATES[case.model].function).parameters if p != "chip"]
    given = {k: v for k, v in case.options.items() if k not in _ABOUT}
    if "dtype" in known:
        given.setdefault("dtype", case.dtype)
    if case.partials and "partials" in known:
        given.setdefault("partials", case.partials)
    for name in given:
        if name not in known:
            raise InvalidOption(f"{case.id}: {case.model} has no field {name!r}", remedy=suggest(name, known))
    return float(chip.estimate(case.model, **(given | changes)))


@runner("amp", "vertex", "op")
def run_vertex(case: Case, context: Context) -> Outcome:
    """One vertex on a tile.

    Options: the vertex's fields. ``step=1`` adds the start of its compute set (the measurement spans the whole step).
    ``of=FIELD`` asks for the slope: cycles for one more of that field, over the last half of its value. For a metric in
    flops: two for each product, all tiles at work.
    """
    chip = find_system(case.system).chip
    if not case.model or case.model == "none":
        raise NoRunner("no vertex of this kind is modelled")
    cycles = vertex_cycles(chip, case)
    if case.option("step", 0):
        cycles += chip.compute_set_cycles
    rate = 0.0
    if field := case.option("of", ""):
        large = int(case.option(field))
        half = vertex_cycles(chip, case, **{field: large // 2})
        rate = (cycles - half) / (large - large // 2)
        if case.unit == "cycles":  # an intercept: what is left at none of the field
            cycles -= rate * large
    o = case.options
    products = o.get("field", 0) * o.get("in_chans", 0) * o.get("out_chans", 0) * o.get("kernel", 1)
    return Outcome(chip.seconds(cycles), cycles, flops=2.0 * products * chip.tiles, rate=rate)


@runner("mem")
def run_memory(case: Case, context: Context) -> Outcome:
    """STREAM triad, ``a = b + s·c`` in float on all tiles, in a hand-made vertex: two loads, a store, two flops an
    element, at the rate at which a tile loads and stores."""
    if case.model != "triad":
        raise NoRunner(f"no memory benchmark {case.model!r} is modelled")
    chip = find_system(case.system).chip
    n = int(case.option("n", 1 << 14))
    size = 4 if case.dtype == "f32" else 2
    moving = max(2 * n * size / chip.load_bytes_per_cycle, n * size / chip.store_bytes_per_cycle)
    cycles = moving + chip.supervisor_call_cycles + chip.workers * chip.sram_latency_cycles
    return Outcome(chip.seconds(cycles), cycles, bytes=3.0 * n * size * chip.tiles, flops=2.0 * n * chip.tiles)


@runner("constant")
def run_constant(case: Case, context: Context) -> Outcome:
    """A number of the machine beside a published one: ``chip.FIELD``, ``system.FIELD``, or ``sync`` over the IPUs."""
    system = find_system(case.system)
    place, _, name = case.model.partition(".")
    if case.model == "sync":
        number: float = sync_cycles(system, case.ipus)
    elif place in ("chip", "system") and name:
        number = (system.chip if place == "chip" else system).provenance(name).value
    else:
        raise NoRunner(f"no constant of the model stands for {case.model!r}")
    return Outcome(seconds=1.0, cycles=number, bytes=number, factor=number)

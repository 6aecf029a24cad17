"""What goes into a report's file from a profile: its document, its tables, and the user's files that they name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from abele.report.store.write import ProgramRecord
from abele.user import find_source

SHOWN = ("name", "system", "chip", "tiles", "replicas", "clock_hz", "samples", "cycles", "cycles_by", "seconds")
SHOWN += ("throughput", "flops", "peak_flops", "peak_fraction", "energy_joules", "energy", "notes")
"""Fields of a profile's document that the summary has as they are."""

PERHAPS = ("explanation", "passes", "planner", "wall_seconds", "runs", "batch", "accumulation", "stages", "half")
"""Those that a document may have besides."""

MEMORY = ("limit", "max", "mean", "fits", "gap", "fullest_tile", "fullest_ipu", "categories")

LONGEST = 2_000_000
"""Bytes of a source file that a report takes in; what is longer was hardly written by a person."""


class Detailed(Protocol):
    """What a record takes beside the document: ``abele.cost.Detail`` has it."""

    @property
    def mode(self) -> str: ...
    @property
    def tables(self) -> Mapping[str, Mapping[str, Any]]: ...
    @property
    def provenance(self) -> Mapping[str, list[str]]: ...
    @property
    def band(self) -> Mapping[str, Any]: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


def record(document: Mapping[str, Any], detail: Detailed) -> ProgramRecord:
    """The record of a profile.

    Args:
        document: ``Profile.to_json``, with what the command adds to it.
        detail: of the same profile.
    """
    memory, measured = document["tile_memory"], document.get("wall_seconds")
    summary = {name: document[name] for name in SHOWN} | {name: document.get(name) for name in PERHAPS}
    summary["mode"] = document.get("mode", detail.mode)
    summary["ipus"] = document["ipus_per_replica"]
    summary["notes"] = [*document["notes"], *detail.notes]
    summary["tile_memory"] = {name: memory[name] for name in MEMORY} | {"peak_moment": memory["peak_step"]}
    clock = ["wall_seconds: this computer's clock, a run of the program here"] if measured else []
    summary["provenance"] = dict(detail.provenance) | {"measured": [*detail.provenance["measured"], *clock]}
    summary["band"] = dict(detail.band) or None
    advice = tuple(document.get("advice", ()))
    name, system, chip = (str(document[field]) for field in ("name", "system", "chip"))
    return ProgramRecord(name, system, chip, summary["mode"], summary, detail.tables, advice)


def sources_of(records: Iterable[ProgramRecord]) -> dict[str, str]:
    """The text of the files that operations name, as far as they are on this computer."""
    last: dict[str, int] = {}
    for each in records:
        operations = each.tables["operations"]
        for file, line in zip(operations["file"], operations["line"], strict=True):
            if file and line > last.get(file, 0):
                last[file] = line
    found = {}
    for file, line in sorted(last.items()):
        path = find_source(file)
        if path is None or path.stat().st_size > LONGEST:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if text.count("\n") + 1 >= line:  # else another file of the same name
            found[file] = text
    return found

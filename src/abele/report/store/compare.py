"""Two programs held against each other, in cycles of one device iteration, operation by operation by stable key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from abele.report.store.packet import Packet


def compare(summaries: tuple[Mapping[str, Any], Mapping[str, Any]], tables: tuple[Packet, Packet]) -> dict[str, Any]:
    """The answer ``compare/<a>/<b>``: ``totals`` by kind of cycles and bytes, ``operations`` by key, largest difference
    first. Calls and repeats are left out of the operations: what they run is there itself."""
    a, b = summaries
    names = ("name", "system", "mode", "seconds", "throughput", "cycles", "samples")
    sides = [{name: each.get(name) for name in names} for each in summaries]
    parts = [k for k in a.get("cycles_by", {}) if k in b.get("cycles_by", {})]
    totals = [_row({"name": name}, a["cycles_by"][name], b["cycles_by"][name]) for name in parts]
    totals.insert(0, _row({"name": "cycles"}, a.get("cycles", 0), b.get("cycles", 0)))
    memory = [each.get("tile_memory", {}).get("max", 0) for each in summaries]
    totals.append(_row({"name": "tile bytes"}, *memory))
    first, second = (_by_key(table) for table in tables)
    operations = []
    for key in {**first, **second}:
        known = first.get(key) or second[key]
        cycles = [side[key][0] if key in side else None for side in (first, second)]
        operations.append(_row({"key": key, "name": known[1], "layer": known[2]}, *cycles))
    operations.sort(key=lambda row: -abs(row["difference"]))
    return {"a": sides[0], "b": sides[1], "totals": totals, "operations": operations}


def _row(named: dict[str, Any], a: float | None, b: float | None) -> dict[str, Any]:
    """``None`` where a program has no such operation."""
    return named | {"a": a, "b": b, "difference": (b or 0) - (a or 0)}


def _by_key(table: Packet) -> dict[str, tuple[float, str, str]]:
    """Cycles of all runs in one device iteration, name and layer of every operation that runs no others."""
    keys, names, layers, kinds = (table.words(name) for name in ("key", "name", "layer", "kind"))
    cycles = (table.numbers("cycles") * table.numbers("times")).tolist()
    rows = zip(keys, cycles, names, layers, kinds, strict=True)
    return {key: (spent, name, layer) for key, spent, name, layer, kind in rows if kind not in ("call", "repeat")}

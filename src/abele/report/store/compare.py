"""Two programs held against each other, in cycles of one device iteration, operation by operation by stable key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from abele.report.store.packet import Packet

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
"""A number in a module path, which an outlined layer has a star for."""


def compare(summaries: tuple[Mapping[str, Any], Mapping[str, Any]], tables: tuple[Packet, Packet]) -> dict[str, Any]:
    """The answer ``compare/<a>/<b>``: ``totals`` by kind of cycles and bytes, ``operations`` by key, largest difference
    first."""
    a, b = summaries
    names = ("name", "system", "mode", "seconds", "throughput", "cycles", "samples")
    sides = [{name: each.get(name) for name in names} for each in summaries]
    parts = [k for k in a.get("cycles_by", {}) if k in b.get("cycles_by", {})]
    totals = [_row({"name": name}, a["cycles_by"][name], b["cycles_by"][name]) for name in parts]
    totals.insert(0, _row({"name": "cycles"}, a.get("cycles", 0), b.get("cycles", 0)))
    memory = [each.get("tile_memory", {}).get("max", 0) for each in summaries]
    totals.append(_row({"name": "tile bytes"}, *memory))
    both = [set(table.words("layer")) for table in tables]
    outlined = {layer for layers in both for layer in layers if "*" in layer}
    first, second = (_by_key(table, outlined) for table in tables)
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


def _by_key(table: Packet, outlined: set[str]) -> dict[str, tuple[float, str, str]]:
    """Cycles of all runs in one device iteration, name and layer of every operation by key.

    Calls and repeats count with what they take themselves. Operations of one key are put together, and so are the
    layers that one of the two programs has outlined: ``layer.3`` in the one is among ``layer.*`` in the other.
    """
    keys, names, layers = (table.words(name) for name in ("key", "name", "layer"))
    shared = {layer: _among(layer, outlined) for layer in set(layers)}
    spent = (table.numbers("own") * table.numbers("times")).tolist()
    found: dict[str, tuple[float, str, str]] = {}
    for key, cycles, name, layer in zip(keys, spent, names, layers, strict=True):
        if (common := shared[layer]) != layer:
            key, layer = common + key.removeprefix(layer), common
        before = found[key][0] if key in found else 0.0
        found[key] = before + cycles, name, layer
    return found


def _among(layer: str, outlined: set[str]) -> str:
    """The outlined layer to which a layer belongs, or itself."""
    stars = (f"{layer[: at.start()]}*{layer[at.end() :]}" for at in _NUMBER.finditer(layer))
    return next((star for star in stars if star in outlined), layer)

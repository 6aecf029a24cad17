"""Two programs held against each other, operation by operation by stable key.

Cycles are those of one device iteration where both take as many samples, else those of one sample: an iteration of
twice the samples may well take longer and be the better one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from abele.report.store.packet import Packet

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")
"""A number in a module path, which an outlined layer has a star for."""


def compare(summaries: tuple[Mapping[str, Any], Mapping[str, Any]], tables: tuple[Packet, Packet]) -> dict[str, Any]:
    """The answer ``compare/<a>/<b>``: from ``a``, the base, to ``b``.

    ``per`` says what the cycles of ``totals`` (by kind, and tile bytes) and ``operations`` (by key, largest difference
    first) are of: ``iteration`` or, where the samples of an iteration differ, ``sample``. The two programs themselves,
    ``a`` and ``b``, have figures of an iteration, and those of a sample; ``speedup`` is the throughput of ``b`` in
    terms of that of ``a``, ``None`` where there is none.
    """
    a, b = summaries
    sides = [_side(each) for each in summaries]
    counts = [each["samples"] for each in sides]
    alike = counts[0] == counts[1] or not all(counts)
    per = (1, 1) if alike else counts
    parts = [k for k in a.get("cycles_by", {}) if k in b.get("cycles_by", {})]
    totals = [_row({"name": name}, a["cycles_by"][name] / per[0], b["cycles_by"][name] / per[1]) for name in parts]
    totals.insert(0, _row({"name": "cycles"}, a.get("cycles", 0) / per[0], b.get("cycles", 0) / per[1]))
    memory = [each.get("tile_memory", {}).get("max", 0) for each in summaries]
    totals.append(_row({"name": "tile bytes"}, *memory))
    both = [set(table.words("layer")) for table in tables]
    outlined = {layer for layers in both for layer in layers if "*" in layer}
    first, second = (_by_key(table, outlined) for table in tables)
    operations = []
    for key in {**first, **second}:
        known = first.get(key) or second[key]
        cycles = [side[key][0] / n if key in side else None for side, n in zip((first, second), per, strict=True)]
        operations.append(_row({"key": key, "name": known[1], "layer": known[2]}, *cycles))
    operations.sort(key=lambda row: -abs(row["difference"]))
    rates = [each["throughput"] for each in sides]
    return {
        "a": sides[0],
        "b": sides[1],
        "per": "iteration" if alike else "sample",
        "speedup": rates[1] / rates[0] if all(rates) else None,
        "totals": totals,
        "operations": operations,
    }


def _side(summary: Mapping[str, Any]) -> dict[str, Any]:
    names = ("name", "system", "mode", "seconds", "throughput", "cycles", "samples")
    side = {name: summary.get(name) for name in names}
    for name in ("seconds", "cycles"):
        whole, samples = side[name], side["samples"]
        side[f"{name}_per_sample"] = whole / samples if samples and whole is not None else None
    return side


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

"""The data of a page, made small: rows as columns, runs of equal numbers, repeated words, rounded floats.

``page.js`` undoes the packing (``unpack`` there). Packing loses nothing but digits: a float of 1,000 or more becomes
a whole number, a smaller one keeps six digits. A timeline of very many moments is thinned, and a note says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

MOST_MOMENTS = 100_000
"""A timeline of more moments than this is thinned: the page is to open at once."""

FEWEST = 8
"""Shorter lists stay as they are."""

LENGTHS = ("sync", "exchange", "compute", "host")


def pack(value: Any) -> Any:
    """``value`` as JSON for the page.

    A list of objects of the same keys becomes ``{"$rows": count, "columns": {…}}``, a list of words that repeat
    ``{"$words": [word, …], "$at": [index, …]}``, a list of numbers in runs ``{"$runs": [number, times, …]}``.
    """
    for convert in ("tolist", "item"):  # of NumPy
        if hasattr(value, convert):
            value = getattr(value, convert)()
    if isinstance(value, Mapping):
        return {str(key): pack(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return _list(value)
    if isinstance(value, float):
        return _rounded(value)
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _list(items: Sequence[Any]) -> Any:
    kinds = {type(item) for item in items}
    if len(items) < FEWEST or not kinds:
        return [pack(item) for item in items]
    if kinds == {dict} and len({tuple(item) for item in items}) == 1:
        return {"$rows": len(items), "columns": {key: pack([item[key] for item in items]) for key in items[0]}}
    if kinds == {str}:
        words = {word: i for i, word in enumerate(dict.fromkeys(items))}
        if 2 * len(words) <= len(items):
            return {"$words": list(words), "$at": pack([words[item] for item in items])}
    if kinds <= {int, float}:
        numbers = [_rounded(item) if isinstance(item, float) else item for item in items]
        runs = [part for number, run in groupby(numbers) for part in (number, sum(1 for _ in run))]
        return {"$runs": runs} if len(runs) < len(numbers) else numbers
    return [pack(item) for item in items]


def _rounded(value: float) -> float | int | None:
    """Fewer digits; ``None`` for what JSON has no number for."""
    if not math.isfinite(value):
        return None
    short = value if abs(value) < 1000 else round(value)
    short = float(f"{short:.6g}") if isinstance(short, float) else short
    return int(short) if short == int(short) else short


def thin(profile: Mapping[str, Any], most: int = MOST_MOMENTS) -> dict[str, Any]:
    """The profile with neighbouring moments of its timeline put together where there are more than ``most``.

    Moments are put together only on one IPU and without a gap between them, so that there may remain more than
    ``most``. The lengths by kind add up, memory is the most of any of them, and the longest gives the name.
    """
    timeline, memory = profile["timeline"], profile["tile_memory"]
    count = len(timeline["row"])
    if count <= most:
        return dict(profile)
    groups = _groups(timeline, -(-count // most))
    group_of = [g for g, (first, after) in enumerate(groups) for _ in range(first, after)]

    def lengths(i: int) -> float:
        return sum(timeline[kind][i] for kind in LENGTHS)

    longest = [max(range(first, after), key=lengths) for first, after in groups]
    fresh: dict[str, Any] = {name: [timeline[name][i] for i in longest] for name in ("row", "ipu", "depth")}
    fresh["start"] = [timeline["start"][first] for first, _ in groups]
    fresh |= {kind: [sum(timeline[kind][a:b]) for a, b in groups] for kind in LENGTHS}
    ends = ("enter", "exit")
    fresh["folds"] = [fold | {end: group_of[fold[end]] for end in ends} for fold in timeline["folds"]]
    curve = {name: [max(column[a:b]) for a, b in groups] for name, column in memory["curve"].items()}
    tensors = [t | {end: group_of[t[end]] for end in ("first", "last")} for t in memory["by_tensor"]]
    thinned = {"curve": curve, "by_tensor": tensors, "peak_step": group_of[memory["peak_step"]]}
    note = f"The timeline of this page is thinned: its {count:,} moments are drawn as {len(groups):,}, none left out."
    return {
        **profile,
        "timeline": fresh,
        "tile_memory": {**memory, **thinned},
        "notes": [*profile["notes"], note],
    }


def _groups(timeline: Mapping[str, Any], size: int) -> list[tuple[int, int]]:
    """First moment of each group and the one after its last; starts and ends of repeats are alone in theirs."""
    start, ipu = timeline["start"], timeline["ipu"]
    alone = {fold[end] for fold in timeline["folds"] for end in ("enter", "exit")}
    first, groups = 0, []
    for i in range(1, len(start)):
        end = start[i - 1] + sum(timeline[kind][i - 1] for kind in LENGTHS)
        broken = ipu[i] != ipu[i - 1] or abs(end - start[i]) > 0.5 or i in alone or i - 1 in alone
        if broken or i - first == size:
            groups.append((first, i))
            first = i
    return [*groups, (first, len(start))]

"""Choosing how to split an iteration space over the tiles: thin candidate sets, costed in NumPy, then refined.

A thin set of part counts of every axis is tried against those of all the others in one go; the best split is then
refined by two axes at a time (and all three where there are three), with all part counts that make a difference,
until nothing improves.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from abele.schedule.layout import Axis

Parts = Mapping[str, np.ndarray]
Cost = Callable[[Parts], tuple[np.ndarray, np.ndarray]]
"""Cycles, and how full the fullest tile gets (1.0 is all that it may take), for columns of part counts by axis name."""

THIN_SPLITS = 40_000
"""About how many splits the first pass looks at: more of them cost time and were found to gain nothing."""


DOES_NOT_FIT = 1e15
"""Scores from here on are of splits that do not fit."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """An axis to be split: its size, the grain of its parts, and whether it may be split at all."""

    name: str
    size: int
    grain: int = 1
    splits: bool = True

    @property
    def units(self) -> int:
        return max(1, -(-self.size // self.grain)) if self.splits else 1

    def length(self, parts: np.ndarray) -> np.ndarray:
        """Steps in the longest part."""
        if not self.splits:
            return np.full_like(parts, self.size)
        return np.minimum(self.size, self.grain * -(-self.units // parts))

    def axis(self, parts: int) -> Axis:
        return Axis(self.name, self.size, int(parts), self.grain)


@lru_cache(maxsize=4096)
def part_counts(units: int, limit: int) -> array[int]:
    """Part counts worth trying: for every length of the longest part, the fewest parts that reach it.

    They are as many as there are tiles when there are many units; so they are kept as 4 bytes each, not to be changed.
    """
    found, parts = array("i"), 1
    while parts <= min(max(1, units), limit):
        found.append(parts)
        length = -(-units // parts)
        if length <= 1:
            break
        parts = -(-units // (length - 1))
    return found


def few_part_counts(size: int, about: int) -> np.ndarray:
    """About so many part counts, for lengths of the longest part that grow evenly by ratio."""
    lengths = np.unique(np.geomspace(1, max(1, size), about).round().astype(np.int64))
    return np.unique(np.maximum(1, -(-size // lengths)))


@lru_cache(maxsize=4096)
def _thinned(units: int, limit: int, count: int) -> tuple[int, ...]:
    """About ``count`` of the part counts, evenly spaced by ratio, both ends kept."""
    every = np.array(part_counts(units, limit))
    if len(every) <= count:
        return tuple(every.tolist())
    targets = np.geomspace(1, every[-1], count)
    nearest = np.abs(np.log(every)[None, :] - np.log(targets)[:, None]).argmin(axis=1)
    return tuple(np.unique(every[nearest]).tolist())


def _products(choices: Sequence[Sequence[int]], tiles: int) -> list[np.ndarray]:
    """All combinations with at most ``tiles`` blocks, as one column for each axis."""
    columns, blocks = [], np.ones(1, np.int64)
    for options in choices:
        values = np.array(options, np.int64)
        more = blocks[:, None] * values
        row, column = np.nonzero(more <= tiles)
        columns = [c[row] for c in columns] + [values[column]]
        blocks = more[row, column]
    return columns


def score_of(cycles: np.ndarray, load: np.ndarray) -> np.ndarray:
    """Cycles of what fits; what does not comes after all that does, the least full first."""
    return np.where(load <= 1.0, cycles, DOES_NOT_FIT * np.maximum(load, 1.0))


def search(
    dimensions: Sequence[Dimension], tiles: int, cost: Cost, start: Mapping[str, int] | None = None
) -> tuple[dict[str, int], float]:
    """The split with the best score, and its score; among equal ones the fewest tiles win.

    ``start``: a split that is refined where it is better than all of the thin sets, as far as its parts can be had.
    """
    names = [d.name for d in dimensions]
    open_axes = [i for i, d in enumerate(dimensions) if d.units > 1]

    def evaluate(columns: Sequence[np.ndarray]) -> tuple[list[int], float]:
        score = score_of(*cost(dict(zip(names, columns, strict=True)))) + 1e-6 * np.multiply.reduce(columns)
        at = int(np.argmin(score))
        return [int(c[at]) for c in columns], float(score[at])

    each = max(3, int(THIN_SPLITS ** (1 / max(1, len(open_axes)))))
    best, score = evaluate(_products([_thinned(d.units, tiles, min(each, 16)) for d in dimensions], tiles))
    if start is not None:
        given, value = evaluate([np.array([min(start.get(d.name, 1), d.units)]) for d in dimensions])
        if value < score:
            best, score = given, value
    groups: list[tuple[int, ...]] = list(itertools.combinations(open_axes, 2)) or [(i,) for i in open_axes]
    if len(open_axes) == 3:
        groups.append(tuple(open_axes))  # where two axes alone cannot leave a split, all three may
    while True:
        before = score
        for group in groups:
            rest = int(np.prod([p for i, p in enumerate(best) if i not in group]))
            choices = [
                _near(part_counts(d.units, tiles // rest), best[i], NEAR[len(group)]) if i in group else (best[i],)
                for i, d in enumerate(dimensions)
            ]
            found, value = evaluate(_products(choices, tiles))
            if value < score:
                best, score = found, value
        if score >= before:
            return dict(zip(names, best, strict=True)), score


NEAR = {1: 24, 2: 24, 3: 11}
"""Part counts of an axis that are tried around the current one, by the number of axes that are refined together."""


def _near(options: Sequence[int], current: int, count: int) -> Sequence[int]:
    """The ``count`` options around the current one."""
    at = int(np.searchsorted(options, current))
    low = max(0, min(at - count // 2, len(options) - count))
    return options[low : low + count]

"""A number for every tile, kept as runs of neighbouring tiles that have the same one.

Balanced splits give most tiles the same, so that runs are few however many tiles there are; where they are not, a run
for each tile is still right.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

_FEW = 8
"""So many runs are quicker added one by one than laid out for all tiles."""

_MANY = 64
"""From so many runs on, columns are brought together tile by tile: quicker than sorting where their runs end."""


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """A column over tiles.

    Attributes:
        stops: the tile after each run, ``[runs]``; the last is the number of tiles.
        values: what each tile of a run has, ``[runs]``; of a short integer type where runs are many, so widen it
            before any arithmetic, and do not write to it.
    """

    stops: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, column: np.ndarray) -> Runs:
        """The runs of a column, ``int64[tiles]``; it is not to be written to any more."""
        return merged(_each(len(column)), column)

    @property
    def tiles(self) -> int:
        return int(self.stops[-1])

    @property
    def max(self) -> int:
        return int(self.values.max())

    @property
    def total(self) -> int:
        """The sum over all tiles."""
        return int(self._wide() @ self._lengths())

    def at(self, tile: int) -> int:
        return int(self.values[np.searchsorted(self.stops, tile, side="right")])

    def dense(self) -> np.ndarray:
        """The column, ``int64[tiles]``; not to be written to."""
        values = self._wide()
        return values if len(values) == self.tiles else np.repeat(values, self._lengths())

    def add_to(self, column: np.ndarray, times: int = 1) -> None:
        """Add so many times this to a column, ``int64[tiles]``, in place."""
        if len(self.values) > _FEW:
            column += self.dense() if times == 1 else self.dense() * times
            return
        for (start, stop), value in zip(pairwise((0, *self.stops.tolist())), self.values.tolist(), strict=True):
            if value:
                column[start:stop] += value * times

    def _wide(self) -> np.ndarray:
        return self.values.astype(np.int64, copy=False)

    def _lengths(self) -> np.ndarray:
        lengths = self.stops.copy()
        lengths[1:] -= self.stops[:-1]
        return lengths


def together(columns: Sequence[Runs]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The runs in which none of several columns changes: their stops, and what each column has in each run."""
    first = columns[0]
    if all(column.stops is first.stops for column in columns):
        return first.stops, [column._wide() for column in columns]
    if sum(len(column.stops) for column in columns) > _MANY:
        return _each(first.tiles), [column.dense() for column in columns]
    stops = np.array(sorted({stop for column in columns for stop in column.stops.tolist()}))
    return stops, [column._wide()[np.searchsorted(column.stops, stops)] for column in columns]


def merged(stops: np.ndarray, values: np.ndarray) -> Runs:
    """Runs, ``int64``, of which neighbours may have the same, as one where they have."""
    last = np.append(np.flatnonzero(values[1:] != values[:-1]), len(values) - 1)
    if 2 * len(last) <= len(stops):
        stops, values = stops[last].astype(np.int32), values[last]
    # else hardly fewer: the stops are shared as they are
    if len(values) > _MANY:
        ends = -int(values.max()) - 1, int(values.min())  # a signed type that holds -n - 1 holds n
        values = values.astype(np.promote_types(*map(np.min_scalar_type, ends)))
    return Runs(stops, values)


def largest(columns: Iterable[Runs]) -> Runs:
    """The largest of several columns on each tile."""
    stops, values = together(list(columns))
    return merged(stops, np.max(values, axis=0))


def added(terms: Sequence[tuple[Runs, int]]) -> Runs:
    """The sum of columns, each taken so many times."""
    stops, values = together([column for column, _ in terms])
    return merged(stops, np.sum([each * times for each, (_, times) in zip(values, terms, strict=True)], axis=0))


@lru_cache(maxsize=4)
def _each(tiles: int) -> np.ndarray:
    """Stops of a run for each tile."""
    return np.arange(1, tiles + 1, dtype=np.int32)

"""A number for every tile, kept as runs of neighbouring tiles that have the same one.

Balanced splits give most tiles the same, so that runs are few however many tiles there are; where they are not, what
follows one another is much the same again and again, and is kept compressed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import pairwise

import numpy as np

_FEW = 8
"""So many runs are quicker added one by one than laid out for all tiles."""

_MANY = 64
"""More runs are brought together tile by tile, quicker than sorting where they end, and are kept compressed."""

_QUICK = 1, zlib.DEFLATED, 13, 4
"""Level, method, window and memory of the quickest compression, in no more time than finding the runs and with
40 KB to work in instead of 260: the parts of balanced splits repeat themselves, so that hardly more remains of many
tiles than of few."""


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """A column over tiles.

    Attributes:
        stops: the tile after each run, ``[runs]``; the last is the number of tiles.
        values: what each tile of a run has, ``int64[runs]``, not to be written to. Where runs are many there is one for
            each tile, and they are kept compressed, of the short integer type ``packed``.
        max: the largest of them.
    """

    stops: np.ndarray
    values: np.ndarray | bytes
    max: int
    packed: np.dtype | None = None

    @classmethod
    def of(cls, column: np.ndarray) -> Runs:
        """The runs of a column, ``int64[tiles]``; it is not to be written to any more."""
        return merged(_each(len(column)), column)

    @classmethod
    def same(cls, value: int, tiles: int) -> Runs:
        """The same on every tile."""
        return cls(np.array([tiles], np.int32), np.array([value], np.int64), value)

    @property
    def tiles(self) -> int:
        return int(self.stops[-1])

    @property
    def total(self) -> int:
        """The sum over all tiles."""
        return int(self._wide() @ self._lengths())

    def at(self, tile: int) -> int:
        return int(self._wide()[np.searchsorted(self.stops, tile, side="right")])

    def dense(self) -> np.ndarray:
        """The column, ``int64[tiles]``; not to be written to."""
        values = self._wide()
        return values if len(values) == self.tiles else np.repeat(values, self._lengths())

    def runs(self) -> tuple[np.ndarray, np.ndarray]:
        """The stops and values of its runs, ``int32[runs]`` and ``int64[runs]``, many ones all unlike their neighbours;
        not to be written to."""
        stops, values = self.stops, self._wide()
        if self.packed is not None:
            last = np.append(np.flatnonzero(values[1:] != values[:-1]), len(values) - 1)
            stops, values = stops[last], values[last]
        return stops.astype(np.int32, copy=False), values

    def add_to(self, column: np.ndarray, times: int = 1) -> None:
        """Add so many times this to a column, ``int64[tiles]``, in place."""
        if len(self.stops) > _FEW:
            column += self.dense() if times == 1 else self.dense() * times
            return
        for (start, stop), value in zip(pairwise((0, *self.stops.tolist())), self._wide().tolist(), strict=True):
            if value:
                column[start:stop] += value * times

    def _wide(self) -> np.ndarray:
        if isinstance(self.values, bytes):
            return np.frombuffer(_unpacked(self.values), self.packed).astype(np.int64)
        return self.values

    def _lengths(self) -> np.ndarray:
        lengths = self.stops.copy()
        lengths[1:] -= self.stops[:-1]
        return lengths


def together(columns: Sequence[Runs]) -> tuple[np.ndarray, Iterator[np.ndarray]]:
    """The runs in which none of several columns changes: their stops, and one after another what each column has in
    each run, ``int64[runs]``, not to be written to."""
    first = columns[0]
    if all(column.stops is first.stops for column in columns):
        return first.stops, (column._wide() for column in columns)
    if sum(len(column.stops) for column in columns) > _MANY:
        return _each(first.tiles), (column.dense() for column in columns)
    stops = np.array(sorted({stop for column in columns for stop in column.stops.tolist()}))
    return stops, (column._wide()[np.searchsorted(column.stops, stops)] for column in columns)


def merged(stops: np.ndarray, values: np.ndarray) -> Runs:
    """Runs, ``int64``, of which neighbours may have the same, as one where they have."""
    last = np.append(np.flatnonzero(values[1:] != values[:-1]), len(values) - 1)
    most = int(values.max())
    if len(last) <= _MANY:
        if 2 * len(last) <= len(stops):
            stops, values = stops[last].astype(np.int32), values[last]
        # else hardly fewer: the stops are shared as they are
        return Runs(stops, values, most)
    # a signed type that holds -n - 1 holds n
    packed = np.promote_types(*map(np.min_scalar_type, (-most - 1, int(values.min()))))
    tiles = int(stops[-1])
    if len(stops) < tiles:
        values = np.repeat(values, np.diff(stops, prepend=0))
    pack = zlib.compressobj(*_QUICK)
    return Runs(_each(tiles), pack.compress(values.astype(packed).tobytes()) + pack.flush(), most, packed)


def largest(columns: Iterable[Runs]) -> Runs:
    """The largest of several columns on each tile."""
    columns = list(columns)
    if all(column is columns[0] for column in columns):
        return columns[0]
    stops, values = together(columns)
    return merged(stops, reduce(np.maximum, values))


def added(terms: Sequence[tuple[Runs, int]]) -> Runs:
    """The sum of columns, each taken so many times."""
    terms = [term for term in terms if term[1]] or terms[:1]
    if len(terms) == 1 and terms[0][1] == 1:
        return terms[0][0]
    stops, values = together([column for column, _ in terms])
    return merged(stops, reduce(np.add, (each * times for each, (_, times) in zip(values, terms, strict=True))))


@lru_cache(maxsize=4)
def _each(tiles: int) -> np.ndarray:
    """Stops of a run for each tile."""
    return np.arange(1, tiles + 1, dtype=np.int32)


@lru_cache(maxsize=4)
def _unpacked(values: bytes) -> bytes:
    """What was compressed; tensors that lie alike are born and die by turns, so the last ones are asked for again."""
    return zlib.decompress(values)

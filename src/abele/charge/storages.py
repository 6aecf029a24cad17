"""Everything that takes room on a tile, as intervals over the program, and where first fit puts it.

``memory`` measures every tile and keeps the peak; here each storage is a row with its bytes on the fullest tile of its
IPU, so that what is live at a moment adds up to what the tile holds then.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from abele.charge.memory import ALWAYS, SOMETIMES, MemoryCharger, TileMemory
from abele.charge.runs import Runs, added, largest, merged, together
from abele.charge.total import Charged
from abele.schedule.records import Node, Step

VALUES, TEMPORARIES, BUFFERS = SOMETIMES
CATEGORIES = (*ALWAYS, *SOMETIMES)


@dataclass(frozen=True, slots=True)
class Storage:
    """What takes room on tiles of one IPU, from moment ``first`` to moment ``last``, both included.

    Attributes:
        name: of the tensor that it is laid out for; the category, where it is no tensor.
        category: one of ``CATEGORIES``.
        column: bytes of one copy on each tile; of what is always there and no tensor, all of it.
        copies: of a pipeline's stash, else 1.
        always: it lives through the whole program.
        maker: what makes it, ``None`` for what is there from the start.
    """

    name: str
    category: str
    column: Runs
    ipu: int
    first: int
    last: int
    copies: int = 1
    always: bool = False
    maker: Node | None = None


@dataclass(frozen=True)
class Storages:
    """All storages of a schedule.

    Attributes:
        rows: what is always live first, then by birth.
        tiles: the fullest tile of each IPU.
        held: bytes of each storage on the fullest tile of its IPU, ``int64[rows]``.
        address: where first fit puts it there, −1 where the tile holds nothing of it, ``int64[rows]``.
        by_category: bytes on the fullest tile of the fullest IPU at every moment, each ``int64[moments]``.
    """

    rows: tuple[Storage, ...]
    tiles: tuple[int, ...]
    held: np.ndarray
    address: np.ndarray
    by_category: dict[str, np.ndarray]


def storages(charged: Charged) -> Storages:
    """The storages of a charged schedule."""
    memory, moments = charged.memory, len(charged.live.moments)
    rows = tuple(sorted(_Rows(charged.tiles).rows(), key=lambda row: (not row.always, row.first)))
    tiles = tuple(int(tile) for tile in memory.totals.argmax(axis=1))
    held = np.array([row.column.at(tiles[row.ipu]) * row.copies for row in rows], np.int64)
    ipu, first, last = (np.array([getattr(row, name) for row in rows], np.int64) for name in ("ipu", "first", "last"))
    address = np.full(len(rows), -1, np.int64)
    for each in range(len(tiles)):
        here = np.flatnonzero((ipu == each) & (held > 0))
        address[here] = first_fit(first[here], last[here], held[here])
    category = np.array([CATEGORIES.index(row.category) for row in rows], np.int64)
    line = _line(memory, moments, category, np.where(ipu == memory.fullest_ipu, held, 0), first, last)
    return Storages(rows, tiles, held, address, line)


def _line(
    memory: TileMemory, moments: int, category: np.ndarray, held: np.ndarray, first: np.ndarray, last: np.ndarray
) -> dict[str, np.ndarray]:
    """Bytes of each category at every moment."""
    change = np.zeros((len(CATEGORIES), moments + 1), np.int64)
    np.add.at(change, (category, first), held)
    np.add.at(change, (category, last + 1), -held)
    return dict(zip(CATEGORIES, np.cumsum(change, axis=1)[:, :-1], strict=True))


class _Rows:
    def __init__(self, tiles: MemoryCharger) -> None:
        self.tiles = tiles
        self.moments = tiles.live.moments
        self.columns: dict[tuple[int, int], Runs] = {}
        self.taken: dict[int, tuple[object, Runs, Runs]] = {}

    def rows(self) -> Iterator[Storage]:
        yield from self._always()
        makers = self.tiles.makers()
        for interval in self.tiles.intervals:
            name, maker = interval.tensor, makers.get(interval.tensor)
            column, ipu = self._bytes(name), self.tiles.ipu_of(name)
            node = maker.node if maker else None
            yield Storage(name, VALUES, column, ipu, interval.first, interval.last, interval.copies, maker=node)
        yield from self._transient()

    def _always(self) -> Iterator[Storage]:
        end = len(self.moments) - 1
        for name in self.tiles.live.always:
            tensor = self.tiles.schedule.tensors[name]
            yield Storage(name, tensor.kind, self._bytes(name), tensor.ipu, 0, end, always=True)
        for category, columns in self.tiles.always.items():
            if category in ("state", "hyper"):
                continue  # tensors, each by itself
            for ipu, column in enumerate(columns):
                yield Storage(category, category, column, ipu, 0, end, always=True)

    def _bytes(self, name: str) -> Runs:
        """Bytes of a tensor on each tile."""
        tensor, columns = self.tiles.schedule.tensors[name], self.tiles.columns
        key = columns.number(tensor.home), tensor.type.dtype.bytes
        if key not in self.columns:
            self.columns[key] = added([(columns.elements(tensor.home), key[1])])
        return self.columns[key]

    def _transient(self) -> Iterator[Storage]:
        """What steps take beside their operands and results, until all that start together have ended."""
        last = len(self.moments)
        for now in reversed(range(len(self.moments))):
            step = self.moments[now].node
            if not isinstance(step, Step) or not step.plan.sets:
                continue
            behind = self.moments[now + 1].node if now + 1 < len(self.moments) else None
            last = last if isinstance(behind, Step) and behind.beside else now
            for category, column in zip((BUFFERS, TEMPORARIES), self._taken(step), strict=True):
                if column.max:
                    yield Storage(category, category, column, step.origin.ipu, now, last, maker=step)

    def _taken(self, step: Step) -> tuple[Runs, Runs]:
        """Received bytes, and temporaries with scratch, of the compute set that takes most on each tile."""
        cost = self.tiles.charger.plan(step)
        known = self.taken.get(id(cost))
        if known is None:
            parts = self.tiles.set_parts(step, cost)
            sums, received = [added(part) for part in parts], [part[0][0] for part in parts]
            if len(parts) == 1:
                buffers = received[0]
            else:
                stops, rows = together([*sums, *received])
                values = list(rows)
                which = np.argmax(values[: len(sums)], axis=0)
                buffers = merged(stops, np.stack(values[len(sums) :])[which, np.arange(len(stops))])
            known = self.taken[id(cost)] = cost, buffers, added([(largest(sums), 1), (buffers, -1)])
        return known[1:]


def first_fit(first: np.ndarray, last: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Addresses of intervals of a line, in the order of their births: each at the lowest place that is free while it
    lives. What is born together is placed largest first, what lives longest before all.

    Args:
        first, last: of each, both included; ``size`` in bytes, above 0.
    """
    address = np.zeros(len(size), np.int64)
    line = range(int(first.min(initial=0)), int(last.max(initial=0)) + 1)
    kept = (first == line.start) & (last == line.stop - 1)
    order = np.flatnonzero(kept)
    address[order] = np.cumsum(size[order]) - size[order]
    base = int(size[order].sum())
    taken: list[tuple[int, int]] = []  # start and stop of what is live, in order
    ends: list[tuple[int, int, int]] = []  # last moment, start, stop
    rest = np.flatnonzero(~kept)
    for i in rest[np.lexsort((-size[rest], first[rest]))].tolist():
        born, length = int(first[i]), int(size[i])
        while ends and ends[0][0] < born:
            _, start, stop = heapq.heappop(ends)
            del taken[bisect.bisect_left(taken, (start, stop))]
        at, place = base, len(taken)
        for k, (start, stop) in enumerate(taken):
            if start - at >= length:
                place = k
                break
            at = stop
        address[i] = at
        taken.insert(place, (at, at + length))
        heapq.heappush(ends, (int(last[i]), at, at + length))
    return address

"""Variables on single tiles: what each tensor takes of each tile, and when it is live.

A variable of a report lies on many tiles; its part on one of them is a lowered variable, numbered tile after tile of
one variable after another. Nothing is kept for each of them: they are made when they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from pva._data import Data, Lazy

NEVER = ("vertex code", "vertex state", "exchange code", "control code", "stack")
"""Categories of storages that are no variables."""


class Variable:
    """A tensor's storage, or what always lies on tiles beside tensors.

    Args:
        size: bytes on all tiles of a replica, all copies; or on the one tile that was asked for.
    """

    def __init__(self, data: Data, row: int, size: int | None = None) -> None:
        self._data, self._id = data, row
        self.size = int(data.numbers("tensors", "bytes")[row]) if size is None else size

    @property
    def name(self) -> str:
        """The user's name, or the tensor's; code and stacks are named by the vendor's category."""
        kind = self._data.words("tensors", "category")[self._id]
        if not self._data.words("tensors", "type")[self._id]:
            return next((theirs for theirs, ours in CATEGORIES.items() if ours == kind), kind)
        return self._data.variable_name(self._id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Variable) and other._data is self._data and other._id == self._id

    def __hash__(self) -> int:
        return hash((id(self._data), self._id))

    def __repr__(self) -> str:
        return f"<Variable {self.name!r}, {self.size} bytes>"


CATEGORIES = {
    "controlCode": "control code",
    "internalExchangeCode": "exchange code",
    "stack": "stack",
    "variable": "state",
    "vertexCode": "vertex code",
    "vertexInstanceState": "vertex state",
}
"""The vendor's categories of memory that Abele has by another name. ``internalExchangeCode`` holds the code of all
exchanges, ``variable`` all tensors: those that live always, and the most that others take."""


@dataclass(frozen=True)
class Interval:
    """Steps of liveness, ``end`` not included."""

    start: int
    end: int


@dataclass(frozen=True)
class EquivalenceClass:
    """Variables that are live in the same steps of ``livenessProgramSteps``."""

    id: int
    steps: tuple[Interval, ...]


class LoweredVariable:
    """A variable on one tile; ``tileId`` counts over all tiles of all IPUs."""

    def __init__(self, all: LoweredVariables, number: int, row: int, tile: int, size: int) -> None:
        self._all, self._row, self.tileId, self.bytes = all, row, tile, size
        self.id = self._id = number

    @property
    def name(self) -> str:
        return self.unloweredVar.name

    @property
    def size(self) -> int:
        return self.bytes

    @property
    def hasUnloweredVar(self) -> bool:
        return True

    @property
    def unloweredVar(self) -> Variable:
        """The whole of it."""
        return Variable(self._all.data, self._row)

    @property
    def equivalenceClass(self) -> EquivalenceClass:
        return self._all.classes[self._all.class_of[self._row]]

    def __repr__(self) -> str:
        return f"<LoweredVariable {self.id}: {self.name!r} on tile {self.tileId}, {self.bytes} bytes>"


class Parts(Lazy[LoweredVariable]):
    """The parts on all tiles of some variables (rows of the table ``tensors``), of all replicas."""

    def __init__(self, all: LoweredVariables, rows: np.ndarray) -> None:
        self._all, self._rows = all, rows
        self._before = np.concatenate([[0], np.cumsum(all.count[rows])])
        super().__init__(int(self._before[-1]), self._part)

    def _part(self, i: int) -> LoweredVariable:
        at = int(np.searchsorted(self._before, i, side="right")) - 1
        return self._all.part(int(self._rows[at]), i - int(self._before[at]))

    def __iter__(self) -> Iterator[LoweredVariable]:
        for row in self._rows.tolist():
            yield from self._all.parts(row)


class LoweredVariables:
    """All variables, tile by tile.

    Attributes:
        count: parts of each row of the table ``tensors``, of all replicas.
        class_of: its equivalence class.
    """

    def __init__(self, data: Data, moment_of_step: np.ndarray) -> None:
        self.data = data
        kinds = np.isin(data.words("tensors", "category"), NEVER)
        homes, which = np.unique(data.numbers("tensors", "home"), return_inverse=True)
        lie = np.array([np.count_nonzero(data.column(home) > 0) for home in homes.tolist()], np.int64)
        self.count = np.where(kinds, 0, lie[which] * data.replicas) if len(lie) else np.zeros(0, np.int64)
        self._first = np.cumsum(self.count) - self.count
        self._ipu = np.maximum(data.numbers("tensors", "ipu"), 0).astype(np.int64)
        spans = np.stack([data.numbers("tensors", name).astype(np.int64) for name in ("first", "last")], axis=1)
        unique, classes = np.unique(spans, axis=0, return_inverse=True)
        self.class_of = classes.ravel().tolist()
        start = np.searchsorted(moment_of_step, unique[:, 0], side="left").tolist()
        end = np.searchsorted(moment_of_step, unique[:, 1], side="right").tolist()
        self.classes = [
            EquivalenceClass(i, (Interval(a, b),) if a < b else ()) for i, (a, b) in enumerate(zip(start, end))
        ]

    @property
    def allBriefVars(self) -> Sequence[LoweredVariable]:
        """Every variable on every tile."""
        return Parts(self, np.flatnonzero(self.count))

    allVars = allBriefVars

    def forTile(self, tile: int) -> list[LoweredVariable]:
        """The variables on one tile of all."""
        data = self.data
        replica, ipu, own = data.place(tile)
        rows = np.flatnonzero((self._ipu == ipu) & (self.count > 0) & (data.on_tile(own) > 0)).tolist()
        found = []
        for row in rows:
            tiles, _ = self._lies(row)
            place = replica * len(tiles) + int(np.searchsorted(tiles, own))
            found.append(self.part(row, place))
        return found

    def of(self, rows: np.ndarray) -> Sequence[LoweredVariable]:
        """The parts of some rows of the table ``tensors``."""
        return Parts(self, rows[self.count[rows] > 0])

    def part(self, row: int, place: int) -> LoweredVariable:
        """One of the parts of a row, replica after replica."""
        tiles, sizes = self._lies(row)
        replica, at = divmod(place, len(tiles))
        tile = (replica * self.data.ipus + int(self._ipu[row])) * self.data.tiles + int(tiles[at])
        return LoweredVariable(self, int(self._first[row]) + place, row, tile, int(sizes[at]))

    def parts(self, row: int) -> Iterator[LoweredVariable]:
        """All of them."""
        tiles, sizes = (column.tolist() for column in self._lies(row))
        number = int(self._first[row])
        for replica in range(self.data.replicas):
            first = (replica * self.data.ipus + int(self._ipu[row])) * self.data.tiles
            for tile, size in zip(tiles, sizes):
                yield LoweredVariable(self, number, row, first + tile, size)
                number += 1

    def _lies(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """The tiles of its IPU that hold something of a row, and how many bytes."""
        copies = int(self.data.numbers("tensors", "copies")[row])
        tiles, held = self._column(int(self.data.numbers("tensors", "home")[row]))
        return tiles, held * copies

    @cached_property
    def _column(self):
        @lru_cache(maxsize=256)
        def column(home: int) -> tuple[np.ndarray, np.ndarray]:
            whole = self.data.column(home)
            tiles = np.flatnonzero(whole > 0)
            return tiles, whole[tiles]

        return column

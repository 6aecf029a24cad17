"""The tables of a program in a report's file, as columns; and lists that make their items when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import numpy as np

from abele.errors import Unsupported
from abele.report.store import Packet
from abele.report.store import Report as File

Item = TypeVar("Item")


class NotInReport(Unsupported, AttributeError):
    """A field of the vendor's that a report of Abele does not hold: the message says why, and what there is instead."""


def missing(field: str, why: str) -> property:
    """A property that raises ``NotInReport``.

    Args:
        field: as the vendor writes it, ``Tile.memory.vertices`` say.
        why: what is not known, and what is.
    """

    def raises(self: Any) -> Any:
        raise NotInReport(f"A report of Abele has no {field}", remedy=why)

    return property(raises, doc=f"Not in a report of Abele. {why}")


class Lazy(Sequence[Item], Generic[Item]):
    """A list of so many items, each made when it is asked for."""

    def __init__(self, count: int, make: Callable[[int], Item]) -> None:
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Lazy[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | Lazy[Item]:
        if isinstance(index, slice):
            places, make = range(self._count)[index], self._make
            return Lazy(len(places), lambda i: make(places[i]))
        return self._make(range(self._count)[index])

    def __iter__(self) -> Iterator[Item]:
        return map(self._make, range(self._count))

    def __repr__(self) -> str:
        return f"<{self._count} items>"


class Data:
    """What a file holds of one program.

    Attributes:
        summary: as ``docs/report_store.md`` describes it.
    """

    def __init__(self, path: str | Path, program: int = 0) -> None:
        with File(path) as file:
            self.summary: dict[str, Any] = file.summary(program)
            names = ("operations", "sets", "columns", "tensors", "pipeline", "moments", "tiles")
            self.tables: dict[str, Packet] = {name: file.table(name, program) for name in names}
        self._words: dict[tuple[str, str], list[str]] = {}

    def numbers(self, table: str, column: str) -> np.ndarray:
        return self.tables[table].numbers(column)

    def words(self, table: str, column: str) -> list[str]:
        key = table, column
        if key not in self._words:
            self._words[key] = self.tables[table].words(column)
        return self._words[key]

    @cached_property
    def ipus(self) -> int:
        """Of a replica."""
        return int(self.numbers("tiles", "ipu").max(initial=0)) + 1

    @cached_property
    def tiles(self) -> int:
        """Tiles of an IPU that the program lies on."""
        return int(self.numbers("tiles", "tile").max(initial=-1)) + 1

    @property
    def replicas(self) -> int:
        return int(self.summary["replicas"])

    def column(self, number: int) -> np.ndarray:
        """A tile column by its id, ``int64[tiles]``."""
        ids = self.numbers("columns", "column")
        first, last = np.searchsorted(ids, [number, number + 1])
        stops = self.numbers("columns", "stop")[first:last].astype(np.int64)
        values = self.numbers("columns", "value")[first:last].astype(np.int64)
        return np.repeat(values, np.diff(stops, prepend=0))

    def everywhere(self, column: np.ndarray, ipu: int) -> list[int]:
        """A tile column of one IPU of a replica (−1: of all of them) as a list over all tiles of all replicas."""
        whole = np.zeros((self.ipus, self.tiles), np.int64)
        whole[slice(None) if ipu < 0 else ipu, : len(column)] = column
        return np.tile(whole.ravel(), self.replicas).tolist()

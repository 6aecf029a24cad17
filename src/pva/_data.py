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


def _one_of(count: int, number: int, what: str) -> int:
    """The number of one of so many; -1 is the last one, as in a list."""
    try:
        return range(count)[number]
    except IndexError:
        raise IndexError(f"There is no {what} {number}: the report has {count}, counted from 0.") from None


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


TABLES = ("operations", "sets", "code", "codelets", "columns", "tensors", "flow", "pipeline", "moments", "tiles")
"""What is read of a file."""


class Data:
    """What a file holds of one program.

    Attributes:
        summary: as ``docs/report_store.md`` describes it.
        schema, abele: the version of the file's schema, and that of the Abele that wrote it.
    """

    def __init__(self, path: str | Path, program: int = 0) -> None:
        with File(path) as file:
            self.summary: dict[str, Any] = file.summary(program)
            self.schema, self.abele = file.schema, file.meta.get("abele", "")
            there = set(file.names())
            self.tables: dict[str, Packet] = {
                name: file.table(name, program) for name in TABLES if f"p/{program}/{name}" in there
            }
        self._words: dict[tuple[str, str], list[str]] = {}

    def numbers(self, table: str, column: str) -> np.ndarray:
        return self._table(table).numbers(column)

    def words(self, table: str, column: str) -> list[str]:
        key = table, column
        if key not in self._words:
            self._words[key] = self._table(table).words(column)
        return self._words[key]

    def _table(self, name: str) -> Packet:
        if name not in self.tables:
            remedy = "It is of an older Abele: make the report again."
            raise NotInReport(f"This report of Abele has no table {name!r}", remedy=remedy)
        return self.tables[name]

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

    @cached_property
    def codelets(self) -> list[tuple[int, str, int, np.ndarray]]:
        """IPU, name, bytes and tiles of the code of each kind of vertex."""
        ipus, sizes, tiles = (self.numbers("codelets", name).tolist() for name in ("ipu", "bytes", "tiles"))
        columns = map(self.column, tiles)
        return list(zip(ipus, self.words("codelets", "name"), sizes, columns))

    def reads(self, operation: int) -> np.ndarray:
        """The storages (rows of ``tensors``) that an operation reads."""
        consumers, tensors = self._reads
        first, last = np.searchsorted(consumers, [operation, operation + 1])
        return tensors[first:last]

    @cached_property
    def _reads(self) -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(self.numbers("flow", "consumer"), kind="stable")
        return self.numbers("flow", "consumer")[order], self.numbers("flow", "tensor")[order].astype(np.int64)

    def operation_name(self, row: int) -> str:
        """Module path and name of an operation, with slashes."""
        path = [*self.words("operations", "layer")[row].split("."), self.words("operations", "name")[row]]
        return "/".join(filter(None, path))

    def variable_name(self, row: int) -> str:
        """The user's name of a storage, or the tensor's."""
        source = self.words("tensors", "source")[row]
        return source.replace(".", "/") if source else self.words("tensors", "name")[row]

    def place(self, tile: int) -> tuple[int, int, int]:
        """The replica, the IPU of it and the tile on that, of one of all tiles of all replicas.

        Raises:
            IndexError: there is no such tile.
        """
        ipu, own = divmod(_one_of(self.ipus * self.tiles * self.replicas, tile, "tile"), self.tiles)
        return *divmod(ipu, self.ipus), own

    def ipu(self, ipu: int) -> int:
        """The IPU of a replica, of one of all IPUs of all replicas.

        Raises:
            IndexError: there is no such IPU.
        """
        return _one_of(self.ipus * self.replicas, ipu, "IPU") % self.ipus

    def on_tile(self, tile: int) -> np.ndarray:
        """Bytes of each storage (rows of ``tensors``), all copies, on a tile of its IPU, ``int64[rows]``."""
        stops, values, before = self._runs
        here = values[(before <= tile) & (tile < stops)]  # one of each column
        return here[self.numbers("tensors", "home")] * self.numbers("tensors", "copies")

    @cached_property
    def _runs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Stop, value and start of every run of every tile column."""
        ids, stops, values = (self.numbers("columns", n).astype(np.int64) for n in ("column", "stop", "value"))
        before = np.concatenate([[0], stops[:-1]])[: len(stops)]
        before[np.flatnonzero(np.diff(ids)) + 1] = 0
        return stops, values, before

    def everywhere(self, column: np.ndarray, ipu: int) -> list[int]:
        """A tile column of one IPU of a replica (−1: of all of them) as a list over all tiles of all replicas."""
        whole = np.zeros((self.ipus, self.tiles), np.int64)
        whole[slice(None) if ipu < 0 else ipu, : len(column)] = column
        return np.tile(whole.ravel(), self.replicas).tolist()

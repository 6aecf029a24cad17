"""What programs keep on tiles: code and the state of vertices.

Operations of equal plans share code, which the first of them holds; what a further one adds is its call, with the
addresses that it puts into the vertices. Sums over all programs so are what the tiles' memory is charged with.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from pva._data import missing

if TYPE_CHECKING:
    from pva._programs import Programs


class VertexType:
    """A kind of vertex: the name of its code, and the bytes of the state of one."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VertexType) and (other.name, other.size) == (self.name, self.size)

    def __hash__(self) -> int:
        return hash((self.name, self.size))

    def __repr__(self) -> str:
        return f"<VertexType {self.name!r}, {self.size} bytes>"


class Vertex:
    """The vertices of one kind in a compute set."""

    def __init__(self, code: Code, program: int, type: VertexType) -> None:
        self._code, self._program, self.type = code, program, type

    @property
    def count(self) -> int:
        """On all tiles of the IPU that they run on."""
        return int(self._code.placed(self._program).sum())

    @property
    def countByTile(self) -> list[int]:
        """On each tile of all IPUs."""
        code = self._code
        return code.data.everywhere(code.placed(self._program), code.programs.ipu(self._program))

    codeBytes = missing("vertex.codeBytes", "Vertices share their code: tile.memory.vertices has it.")


class VertexMemory:
    """Code of one kind of vertex on a tile; ``type.size`` is 0, for state is known of the vertices of a compute set."""

    def __init__(self, name: str, codeBytes: int) -> None:
        self.type, self.codeBytes = VertexType(name, 0), codeBytes


class Code:
    """Code and state of programs, by their number."""

    def __init__(self, programs: Programs) -> None:
        self.programs, self.data = programs, programs.data

    def vertices(self, number: int) -> list[Vertex]:
        """Of a program that runs a compute set: its vertices by kind, and each piece of code that they run.

        Kinds have the state and no code, pieces code and no state, for pieces are shared by kinds of other sizes, and
        readers take a name for one size. A turn like one before it in its operation has no state of its own.
        """
        row = int(self.programs.set[number])
        if row < 0:
            return []
        size = int(self._of_first(number, "state_bytes", "state_again"))
        kind = f"{self.data.words('sets', 'vertex')[row]} of {int(self.data.numbers('code', 'fields')[row])}"
        types = [VertexType(kind if self._first[number] else f"{kind}, again", size)] if size else []
        pieces = filter(None, self.data.words("code", "codelets")[row].split(", "))
        return [Vertex(self, number, type) for type in (*types, *(VertexType(name, 0) for name in pieces))]

    def placed(self, number: int) -> np.ndarray:
        """Vertices of a compute set on each tile, ``int64[tiles]``: one on each of so many neighbouring tiles."""
        row, tiles = int(self.programs.set[number]), self.data.tiles
        first, count = (int(self.data.numbers(t, n)[row]) for t, n in (("code", "first"), ("sets", "vertices")))
        return ((np.arange(tiles) - first) % tiles < count).astype(np.int64)

    def exchange(self, number: int) -> np.ndarray:
        """Bytes of code of an exchange on each tile, ``int64[tiles]``; 0 for other programs."""
        row = int(self.programs.set[number])
        exchanges = self.programs.type[number] == self.programs.EXCHANGE
        if row < 0 or not exchanges or not self._first[number]:
            return np.zeros(self.data.tiles, np.int64)
        return self.data.column(int(self.data.numbers("code", "exchange")[row]))

    def control(self, number: int) -> list[int]:
        """Bytes of control code on each tile of all IPUs, of a program and of all that it runs."""
        seen: set[int] = set()
        below = [number]
        while below:
            each = below.pop()
            if each not in seen:
                seen.add(each)
                below += self.programs.children.get(each, ())
        each = np.array(sorted(seen))
        by_ipu = np.bincount(self._ipu[each], self._control[each], self.data.ipus).astype(np.int64)
        return np.tile(np.repeat(by_ipu, self.data.tiles), self.data.replicas).tolist()

    @property
    def edges(self) -> int:
        """Of the vertices of all compute sets to the tensors that they touch."""
        sets = self.programs.set[self.programs.runs_set & (self.programs.set >= 0)]
        return int((self.data.numbers("sets", "vertices")[sets] * self.data.numbers("code", "fields")[sets]).sum())

    @cached_property
    def _first(self) -> np.ndarray:
        """Whether each program is of the first operation of its plan."""
        operation = self.programs.operation
        like = self.data.numbers("operations", "like")
        return (operation >= 0) & (like[operation] == operation)

    @cached_property
    def _ipu(self) -> np.ndarray:
        operation = self.programs.operation
        return np.where(operation < 0, 0, np.maximum(self.data.numbers("operations", "ipu")[operation], 0))

    @cached_property
    def _control(self) -> np.ndarray:
        """Control code of each program itself on every tile of its IPU; that of a compute set is with its vertices."""
        if not len(self.data.numbers("sets", "id")):
            return np.zeros(len(self.programs), np.int64)
        own = self._of_first(slice(None), "control_bytes", "control_again")
        return np.where(self.programs.runs_set & (self.programs.set >= 0), own, 0)

    def _of_first(self, number: int | slice, whole: str, again: str) -> np.ndarray:
        row = self.programs.set[number]
        both = (self.data.numbers("code", name)[row] for name in (whole, again))
        return np.where(self._first[number], *both)

"""Programs as Poplar has them, made of the operations of a report: exchanges, compute sets, syncs, copies of streams.

A step of Abele's schedule is, for each of its compute sets, a ``Sync``, a ``GlobalExchange`` where bytes come over
links, a ``DoExchange`` and an ``OnTileExecute``; what it moves from or to the host is the three parts of a stream copy.
Calls and repeats have the ``Sequence`` of the function that they run as their child.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np

from pva._code import Code, Vertex
from pva._data import Data, Lazy


class ProgramType(Enum):
    """Kinds of programs. Abele's reports have those that ``Programs`` makes; the others are there to be asked for."""

    Unknown = 0
    DoExchange = 1
    GlobalExchange = 2
    OnTileExecute = 3
    StreamCopyBegin = 4
    StreamCopyMid = 5
    StreamCopyEnd = 6
    Sync = 7
    SyncAns = 8
    Sans = 9
    Sequence = 10
    Call = 11
    Repeat = 12
    OnEveryTileSwitch = 13
    OnTileSwitch = 14
    RepeatWhile = 15
    AbortOnCondition = 16
    HostFunctionCall = 17
    SetLocalConsensusFromVar = 18


IN_ORDER = {
    "sync": ProgramType.Sync,
    "links": ProgramType.GlobalExchange,
    "exchange": ProgramType.DoExchange,
    "compute": ProgramType.OnTileExecute,
}
"""The parts of a compute set's cycles in the order in which they pass, and the program of each."""


class ProgramVisitor:
    """Base of visitors: ``program.accept(visitor)`` calls ``visit<Type>(program)`` of it, which do nothing here."""

    def _nothing(self, program: Program) -> None:
        """What a visitor does not care for."""

    visitDoExchange = visitGlobalExchange = visitOnTileExecute = visitSync = visitSyncAns = visitSans = _nothing
    visitStreamCopyBegin = visitStreamCopyMid = visitStreamCopyEnd = visitHostFunctionCall = _nothing
    visitSequence = visitCall = visitRepeat = visitRepeatWhile = visitAbortOnCondition = _nothing
    visitOnEveryTileSwitch = visitOnTileSwitch = visitSetLocalConsensusFromVar = visitUnknown = _nothing


class ComputeSet:
    """Vertices that run side by side."""

    def __init__(self, programs: Programs, program: int) -> None:
        self._programs, self._program = programs, program

    @property
    def name(self) -> str:
        return self._programs[self._program].name

    @property
    def vertices(self) -> list[Vertex]:
        """One for each piece of code that its vertices run; none where the machine's own copies are meant."""
        return self._programs.code.vertices(self._program)

    @property
    def estimatedCyclesByTile(self) -> list[int]:
        """Cycles of each tile of all IPUs, as they are charged."""
        return self._programs.by_tile(self._program)

    cyclesByTile = estimatedCyclesByTile

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComputeSet) and (other._programs, other._program) == (self._programs, self._program)

    def __hash__(self) -> int:
        return hash((id(self._programs), self._program))


class Program:
    """A program of the compiled whole."""

    Type = ProgramType

    def __init__(self, programs: Programs, number: int) -> None:
        self._programs, self._id = programs, number

    @property
    def type(self) -> ProgramType:
        return ProgramType(int(self._programs.type[self._id]))

    @property
    def name(self) -> str:
        """Of an operation's programs: module path and operation, with slashes. Of a sequence: its function."""
        return self._programs.name_of(self._id)

    @property
    def children(self) -> list[Program]:
        return [self._programs[i] for i in self._programs.children.get(self._id, ())]

    @property
    def estimatedCyclesByTile(self) -> list[int]:
        """Cycles of each tile of all IPUs, as they are charged."""
        return self._programs.by_tile(self._id)

    @property
    def codeBytesByTile(self) -> list[int]:
        """Bytes of code of an exchange between tiles, on each tile of all IPUs; 0 for other programs."""
        return self._programs.data.everywhere(self._programs.code.exchange(self._id), self._programs.ipu(self._id))

    @property
    def controlCodeByTile(self) -> list[int]:
        """Bytes of control code on each tile of all IPUs, with that of all programs that it runs."""
        return self._programs.code.control(self._id)

    def accept(self, visitor: Any) -> None:
        """Call the method of the visitor for programs of this type."""
        getattr(visitor, f"visit{self.type.name}")(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and (other._programs, other._id) == (self._programs, self._id)

    def __hash__(self) -> int:
        return hash((id(self._programs), self._id))

    def __repr__(self) -> str:
        return f"<{self.type.name} {self.name!r}>"


class OnTileExecute(Program):
    """A program that runs a compute set."""

    @property
    def computeset(self) -> ComputeSet:
        return ComputeSet(self._programs, self._id)


class Programs(Lazy[Program]):
    """All programs of a report, by number, as columns.

    Attributes:
        type, operation, set, cycles: of each; rows of the report's tables, −1 where there is none.
        sequence: the number of the ``Sequence`` of each function; ``main`` that of the whole program.
        children: numbers, of those that have any.
        leaves: of each operation the programs of its own, in order.
        calls: of each call or repeat its program.
    """

    def __init__(self, data: Data) -> None:
        self.data = data
        self._rows: list[tuple[int, int, int, float]] = []
        functions = dict.fromkeys(data.words("operations", "function"))
        self.sequence = {name: self._add(ProgramType.Sequence) for name in functions}
        self._of_sequence = dict(enumerate(functions))
        self.leaves: list[range] = []
        self.calls: dict[int, int] = {}
        self.children: dict[int, list[int]] = {number: [] for number in self.sequence.values()}
        self._make_all()
        columns = np.array(self._rows, float).reshape(-1, 4)
        self.type, self.operation, self.set = columns[:, :3].astype(np.int64).T
        self.cycles = columns[:, 3]
        self.main = self.sequence[data.words("operations", "function")[0]]
        super().__init__(len(self._rows), self._program)

    EXCHANGE = ProgramType.DoExchange.value

    @cached_property
    def runs_set(self) -> np.ndarray:
        """Whether each of them runs a compute set."""
        return self.type == ProgramType.OnTileExecute.value

    @cached_property
    def code(self) -> Code:
        """What programs keep on tiles."""
        return Code(self)

    def _program(self, number: int) -> Program:
        return OnTileExecute(self, number) if self.runs_set[number] else Program(self, number)

    def _add(self, kind: ProgramType, operation: int = -1, set: int = -1, cycles: float = 0.0) -> int:
        self._rows.append((kind.value, operation, set, cycles))
        return len(self._rows) - 1

    def _make_all(self) -> None:
        data = self.data
        functions, callees = data.words("operations", "function"), data.words("operations", "callee")
        kinds = data.words("operations", "kind")
        for row, (function, callee, kind) in enumerate(zip(functions, callees, kinds)):
            first = len(self._rows)
            for made in self._pieces(row):
                self._add(*made)
            self.leaves.append(range(first, len(self._rows)))
            self.children[self.sequence[function]] += self.leaves[-1]
            if callee:
                number = self._add(ProgramType.Repeat if kind == "repeat" else ProgramType.Call, row)
                self.calls[row] = number
                self.children[number] = [self.sequence[callee]] if callee in self.sequence else []
                self.children[self.sequence[function]].append(number)

    def _pieces(self, row: int) -> Iterator[tuple[ProgramType, int, int, float]]:
        """The programs of an operation itself: those of its compute sets, and what is left of its cycles."""
        left = {part: column[row] for part, column in self._own.items()}
        for set in self._sets_of.get(int(self.data.numbers("operations", "like")[row]), ()):
            for part, kind in IN_ORDER.items():
                alone = float(self.data.numbers("sets", part)[set])
                cycles = min(alone, max(left[part], 0.0))  # steps that start together share their syncs
                left[part] -= cycles
                if cycles or part == "compute" or (alone and part != "sync"):
                    yield kind, row, set, cycles
        for part, kind in IN_ORDER.items():
            if left[part] >= 1:
                yield kind, row, -1, left[part]
        if left["host"] >= 1 or self.data.numbers("operations", "streamed_bytes")[row]:  # nothing may be waited for
            yield ProgramType.StreamCopyBegin, row, -1, 0.0
            yield ProgramType.StreamCopyMid, row, -1, left["host"]
            yield ProgramType.StreamCopyEnd, row, -1, 0.0
        if left["overhead"] >= 1:
            yield ProgramType.Sync, row, -1, left["overhead"]

    @cached_property
    def _sets_of(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        order = np.argsort(self.data.numbers("sets", "place"), kind="stable")
        owners = self.data.numbers("sets", "operation")
        for row in order.tolist():
            found.setdefault(int(owners[row]), []).append(row)
        return found

    @cached_property
    def _own(self) -> dict[str, np.ndarray]:
        """Cycles of each operation by kind, without those of what it calls. A pipelined loop has none of its own."""
        data = self.data
        parts = ("sync", "links", "exchange", "compute", "host", "overhead")
        own = {part: data.numbers("operations", part).astype(float) for part in parts}
        functions, callees = data.words("operations", "function"), data.words("operations", "callee")
        whole = {part: dict.fromkeys(self.sequence, 0.0) for part in parts}
        for row, function in enumerate(functions):
            for part in parts:
                whole[part][function] += own[part][row]
        counts, pipelined = data.numbers("operations", "count"), set(data.numbers("pipeline", "repeat").tolist())
        for row, callee in enumerate(callees):
            if callee:
                for part in parts:
                    inside = counts[row] * whole[part].get(callee, 0.0)
                    own[part][row] = 0.0 if row in pipelined else max(0.0, own[part][row] - inside)
        return own

    def name_of(self, number: int) -> str:
        row = int(self.operation[number])
        return self._of_sequence[number] if row < 0 else self.data.operation_name(row)

    def ipu(self, number: int) -> int:
        """The IPU of a replica that a program runs on; −1: all of them."""
        row = int(self.operation[number])
        return -1 if row < 0 else int(self.data.numbers("operations", "ipu")[row])

    def column(self, number: int) -> np.ndarray:
        """Cycles of a program on each tile of its IPU, as charged: what no column is known of, on all tiles alike."""
        data, kind, row = self.data, int(self.type[number]), int(self.set[number])
        if row >= 0 and self.runs_set[number]:
            return data.column(int(data.numbers("sets", "work")[row]))
        cycles = round(float(self.cycles[number]))
        if row >= 0 and kind in (ProgramType.DoExchange.value, ProgramType.GlobalExchange.value):
            received = data.column(int(data.numbers("sets", "received")[row]))
            return np.ceil(cycles * received / max(1, received.max(initial=0))).astype(np.int64)
        return np.full(data.tiles, cycles)

    def by_tile(self, number: int) -> list[int]:
        return self.data.everywhere(self.column(number), self.ipu(number))

"""What one device iteration takes on the modelled machine: every program as often as it runs, with its cycles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pva._data import Data, Lazy, NotInReport, missing
from pva._programs import ComputeSet, OnTileExecute, Program, Programs

MOST = 20_000_000
"""Steps that are listed, at most: each takes 24 bytes."""


OUTGOING = ("end", "host_store", "remote_store")
"""Operations whose streams leave the machine; all others' reach it."""


@dataclass(frozen=True)
class Line:
    """Programs as they run: number, and start in cycles from the beginning; ``total`` cycles until all have."""

    program: np.ndarray
    start: np.ndarray
    total: float


def line_of(programs: Programs) -> Line:
    """Everything that one device iteration runs, by start. Loops are unrolled, calls are what they run.

    Raises:
        NotInReport: these are more than ``MOST`` steps.
    """
    made = _Line(programs)
    whole = made.function(programs.name_of(programs.main))
    order = np.argsort(whole.start, kind="stable")
    return Line(whole.program[order], whole.start[order], whole.total)


class _Line:
    def __init__(self, programs: Programs) -> None:
        self.programs, self.data = programs, programs.data
        self.known: dict[str, Line] = {}
        self.rows: dict[str, list[int]] = {}
        for row, name in enumerate(self.data.words("operations", "function")):
            self.rows.setdefault(name, []).append(row)

    def function(self, name: str) -> Line:
        if name not in self.known:
            self.known[name] = self._joined([self.operation(row) for row in self.rows.get(name, ())])
        return self.known[name]

    def _joined(self, parts: list[Line]) -> Line:
        """One after another."""
        _check(sum(len(part.program) for part in parts))
        starts = np.cumsum([0.0, *(part.total for part in parts)])
        return Line(
            np.concatenate([np.empty(0, np.int64), *(part.program for part in parts)]),
            np.concatenate([np.empty(0), *(part.start + at for part, at in zip(parts, starts))]),
            float(starts[-1]),
        )

    def operation(self, row: int) -> Line:
        """The programs of an operation and of what it runs."""
        own = np.array(self.programs.leaves[row], np.int64)
        cycles = self.programs.cycles[own]
        first = Line(own, np.cumsum(cycles) - cycles, float(cycles.sum()))
        callee = self.data.words("operations", "callee")[row]
        if not callee:
            return first
        if row in self._pipelined:
            return self._joined([first, self._pipeline(row, callee)])
        count, turn = int(self.data.numbers("operations", "count")[row]), self.function(callee)
        _check(count * max(len(turn.program), 1))
        return self._joined([first, *[turn] * count])

    @cached_property
    def _pipelined(self) -> dict[int, list[int]]:
        """The rows of the table ``pipeline`` of each loop."""
        found: dict[int, list[int]] = {}
        for place, row in enumerate(self.data.numbers("pipeline", "repeat").tolist()):
            found.setdefault(row, []).append(place)
        return found

    def _pipeline(self, row: int, callee: str) -> Line:
        """A loop whose stages overlap: each stage's programs where the report has the stage at work."""
        data, places = self.data, self._pipelined[row]
        stages: dict[tuple[int, int, int], list[Line]] = {}
        columns = [data.numbers("operations", name) for name in ("ipu", "stage")]
        phases = data.words("operations", "phase")
        for inner in self.rows.get(callee, ()):
            key = int(columns[0][inner]), int(columns[1][inner]), int(phases[inner] == "backward")
            stages.setdefault(key, []).append(self.operation(inner))
        one = {key: self._joined(parts) for key, parts in stages.items()}
        table = [data.numbers("pipeline", name)[places] for name in ("ipu", "stage", "backward", "start")]
        begin = float(table[3].min())
        none = Line(np.empty(0, np.int64), np.empty(0), 0.0)
        turns = [
            (one.get((int(ipu), int(stage), int(backward)), none), start - begin)
            for ipu, stage, backward, start in zip(*(column.tolist() for column in table))
        ]
        _check(sum(len(part.program) for part, _ in turns))
        found = self._joined([Line(part.program, part.start + at, 0.0) for part, at in turns])
        return Line(found.program, found.start, float(data.numbers("operations", "cycles")[row]))


def _check(steps: int) -> None:
    """Before they are made: so many steps would take all memory."""
    if steps > MOST:
        raise NotInReport(
            f"A report of Abele lists no more than {MOST:,} steps",
            remedy="compilation.programs has each program once, with its cycles.",
        )


class Cycles(int):
    """A number of cycles, which the vendor has as ``total`` too."""

    @property
    def total(self) -> int:
        return int(self)


@dataclass(frozen=True)
class Range:
    """The least and the most over tiles."""

    min: int
    max: int


@dataclass(frozen=True)
class ActiveCycles:
    """When the tiles of an IPU begin with a step, and when they end, in cycles from the beginning of the run."""

    cyclesFrom: Range
    cyclesTo: Range


class StepIpu:
    """One IPU in a step."""

    def __init__(self, step: Step, ipu: int) -> None:
        self._step, self._ipu = step, ipu

    @property
    def _there(self) -> bool:
        on = self._step._programs.ipu(self._step._number)
        return on in (-1, self._ipu)

    @property
    def cycles(self) -> int:
        """From the begin of the step to its end; 0 where the IPU takes no part."""
        return self._step._stop - self._step._start if self._there else 0

    @property
    def activeCycles(self) -> ActiveCycles:
        start = self._step._start
        if not self._there:
            return ActiveCycles(Range(start, start), Range(start, start))
        column = self._step._programs.column(self._step._number)
        least = int(column[column > 0].min(initial=self.cycles)) if len(column) else self.cycles
        return ActiveCycles(Range(start, start), Range(start + min(least, self.cycles), self._step._stop))

    @property
    def activeTiles(self) -> int:
        return int((self._step._programs.column(self._step._number) > 0).sum()) if self._there else 0

    @property
    def tileBalance(self) -> float:
        """Mean over the slowest of the tiles."""
        return self._balance(self._step._programs.column(self._step._number))

    @property
    def activeTileBalance(self) -> float:
        """The same of those tiles that take part."""
        column = self._step._programs.column(self._step._number)
        return self._balance(column[column > 0])

    def _balance(self, column: np.ndarray) -> float:
        most = int(column.max(initial=0))
        return float(column.mean()) / most if most and self._there else 0.0

    @property
    def dataIn(self) -> int:
        """Bytes that reach the IPU from the host, or from other tiles and IPUs."""
        return self._moved(out=False)

    @property
    def dataOut(self) -> int:
        """Bytes that leave it for the host, or its tiles for others."""
        return self._moved(out=True)

    def _moved(self, out: bool) -> int:
        """Bytes of the step; of a stream those in its own direction alone."""
        step, programs = self._step, self._step._programs
        data, row = programs.data, int(programs.operation[step._number])
        if not self._there or row < 0:
            return 0
        set, types = int(programs.set[step._number]), Program.Type
        match step.program.type:
            case types.StreamCopyMid if (data.words("operations", "name")[row] in OUTGOING) == out:
                return int(data.numbers("operations", "streamed_bytes")[row])
            case types.GlobalExchange:
                name = "link_bytes" if set < 0 else "linked_bytes"
            case types.DoExchange:
                name = "exchange_bytes" if set < 0 else "received_bytes"
            case _:
                return 0
        return int(data.numbers("operations" if set < 0 else "sets", name)[row if set < 0 else set])


class Step:
    """A program that ran."""

    def __init__(self, programs: Programs, number: int, start: float) -> None:
        self._programs, self._number = programs, number
        self._start, self._stop = round(start), round(start + float(programs.cycles[number]))

    @property
    def program(self) -> Program:
        return self._programs[self._number]

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def ipus(self) -> Sequence[StepIpu]:
        """Of all replicas, one replica after another."""
        data = self._programs.data
        return Lazy(data.ipus * data.replicas, lambda number: StepIpu(self, number % data.ipus))

    @property
    def cyclesByTile(self) -> list[int]:
        return self._programs.by_tile(self._number)

    @property
    def computeSets(self) -> list[ComputeSet]:
        program = self.program
        return [program.computeset] if isinstance(program, OnTileExecute) else []

    def __repr__(self) -> str:
        return f"<Step {self.program!r}, cycles {self._start} to {self._stop}>"


@dataclass(frozen=True)
class Block:
    """A part of a program that lightweight profiling watches; programs of Abele have none."""

    name: str
    cyclesFrom: int
    cyclesTo: int


class Blocks(tuple[Block, ...]):
    """None; ``blocks(tile)`` are those of a tile."""

    def __call__(self, tile: int) -> Blocks:
        return self


@dataclass(frozen=True)
class Microseconds:
    """When a run began and ended."""

    start: float
    end: float


class Run:
    """One device iteration, as it is modelled."""

    def __init__(self, data: Data, steps: Sequence[Step]) -> None:
        self.name, self.steps = str(data.summary["name"]), steps
        self.microseconds = Microseconds(0.0, 1e6 * float(data.summary["seconds"]))
        self.cyclesByIpu = [round(data.summary["cycles"])] * (data.ipus * data.replicas)

    programs = missing("run.programs", "Its steps have them: run.steps[0].program.")


class ExecutionReport:
    """What was run: a report of Abele has one run, the device iteration that was charged."""

    def __init__(self, data: Data, programs: Programs) -> None:
        self._data, self._programs = data, programs

    @cached_property
    def steps(self) -> Sequence[Step]:
        """All programs as often as they run, by their start. Of pipelines the report has at most 256 micro-batches."""
        line, programs = line_of(self._programs), self._programs
        return Lazy(len(line.program), lambda i: Step(programs, int(line.program[i]), float(line.start[i])))

    @property
    def runs(self) -> list[Run]:
        return [Run(self._data, self.steps)]

    @property
    def totalCycles(self) -> Cycles:
        """Of one device iteration."""
        return Cycles(round(self._data.summary["cycles"]))

    @property
    def blocks(self) -> Blocks:
        return Blocks()

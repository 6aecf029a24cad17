"""Programs put together by the operation that they come from, with its layer and the user's line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from pva._data import Data, Lazy
from pva._lowered import LoweredVariable
from pva._programs import Program
from pva._report import Report


class SourceLocation:
    """The user's line of an operation; empty and 0 for those that the compiler added."""

    def __init__(self, fileName: str, lineNumber: int, functionName: str) -> None:
        self.fileName, self.lineNumber, self.functionName = fileName, lineNumber, functionName


class DebugContext:
    """Where an operation comes from: as the vendor's, the outermost layer of software that named it.

    That is ``poptorch`` for what a line of the user's made, else ``abele``. ``json`` has its ``op_name``, ``op_type``,
    ``phase`` and ``inputs``, the names of the variables that it reads.
    """

    def __init__(self, data: Data, row: int) -> None:
        words = {name: data.words("operations", name)[row] for name in ("name", "layer", "file", "phase")}
        self.id = row
        self.name = data.operation_name(row)
        described = {"layer": "poptorch" if words["file"] else "abele", "op_name": self.name, "op_type": words["name"]}
        inputs = [data.variable_name(each) for each in data.reads(row).tolist()]
        self.json = self.layer = json.dumps({**described, "phase": words["phase"], "inputs": inputs})
        self.location = SourceLocation(words["file"], int(data.numbers("operations", "line")[row]), words["layer"])
        self.parents: list[DebugContext] = []


class Operation:
    """An operation of the schedule."""

    def __init__(self, report: Report, row: int) -> None:
        self._report, self._data, self._programs, self._row = report, report._data, report._programs, row
        self.debugContext = DebugContext(self._data, row)
        self.replacedDebugContext: list[DebugContext] = []
        self.name = self.debugContext.name

    def programs(self) -> list[Program]:
        """In the order in which they run."""
        return [self._programs[number] for number in self._programs.leaves[self._row]]

    @property
    def flops(self) -> int:
        """Of one run on one replica."""
        return int(self._data.numbers("operations", "flops")[self._row])

    @property
    def cycles(self) -> int:
        """Of one run."""
        return round(float(self._data.numbers("operations", "cycles")[self._row]))

    @property
    def firstStepIndex(self) -> int:
        """Of the first of the steps of ``livenessProgramSteps`` that are its; −1: none is."""
        return min(self._steps, default=-1)

    @property
    def lastStepIndex(self) -> int:
        return max(self._steps, default=-1)

    @cached_property
    def _steps(self) -> list[int]:
        found, before = [], 0
        for row in self._data.numbers("moments", "operation").tolist():
            count = len(self._programs.leaves[row]) if row >= 0 else 0
            if row == self._row:
                found += range(before, before + count)
            before += count
        return found

    @property
    def vars(self) -> Sequence[LoweredVariable]:
        """What it makes, reads and takes while it runs, tile by tile."""
        data = self._data
        made = np.flatnonzero(data.numbers("tensors", "operation") == self._row)
        return self._report.compilation.loweredVariables.of(np.union1d(made, data.reads(self._row)))


class OperationAnalysis:
    """The operations of a report, calls and repeats apart."""

    def __init__(self, report: Report) -> None:
        rows = [row for row, kind in enumerate(report._data.words("operations", "kind")) if kind == "step"]
        self.operations: Sequence[Operation] = Lazy(len(rows), lambda i: Operation(report, rows[i]))

"""The trace of a report: what each IPU does when, as events that hold others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from abele.errors import BadReport
from abele.report.store import Report as File
from pva._data import Data, Lazy
from pva._execution import Line, line_of
from pva._programs import Programs


class Event:
    """Something that took time. Times are modelled, in microseconds from the beginning."""

    def __init__(self, label: str, channel: str, start: float, duration: float, inner: Sequence[Event] = ()) -> None:
        self.label, self.channel, self.start, self.duration = label, channel, start, duration
        self._inner = inner

    @property
    def end(self) -> float:
        return self.start + self.duration

    def children(self) -> Sequence[Event]:
        """The programs of an operation; programs have none."""
        return self._inner

    def __repr__(self) -> str:
        return f"<Event {self.label!r}, {self.duration:.3f} µs>"


class Thread:
    """An IPU of the replica that stands for all."""

    def __init__(self, tid: int, line: Line, programs: Programs) -> None:
        self.tid, self.name = tid, f"IPU {tid}"
        data = programs.data
        ipu = data.numbers("operations", "ipu")[programs.operation[line.program]]
        here = np.flatnonzero((ipu < 0) | (ipu == tid))
        self._program, self._start = line.program[here], line.start[here]
        operation = programs.operation[self._program]
        cuts = np.flatnonzero(np.diff(operation, prepend=-2)).tolist()
        self._cuts, self._programs = [*cuts, len(here)], programs
        self._scale = 1e6 / float(data.summary["clock_hz"])
        self.events: Sequence[Event] = Lazy(len(cuts), self._event)

    def _event(self, place: int) -> Event:
        """An operation's programs that run one after another."""
        first, last = self._cuts[place], self._cuts[place + 1]
        programs, inner = self._programs, []
        for at in range(first, last):
            number = int(self._program[at])
            start, length = float(self._start[at]), float(programs.cycles[number])
            kind = programs[number].type.name
            inner.append(Event(kind, kind, self._scale * start, self._scale * length))
        label = programs.name_of(int(self._program[first]))
        start = inner[0].start
        return Event(label, "Abele", start, max(each.end for each in inner) - start, inner)


class Process:
    """A program of the report."""

    def __init__(self, pid: int, path: Path) -> None:
        data = Data(path, pid)
        programs = Programs(data)
        line = line_of(programs)
        self.pid, self.name = pid, str(data.summary["name"])
        self.threads = [Thread(tid, line, programs) for tid in range(data.ipus)]


class Trace:
    """The processes of a trace."""

    def __init__(self, processes: Sequence[Process]) -> None:
        self.processes = processes


def openTrace(path: str | Path) -> Trace:
    """The trace of a report of Abele: a process for each of its programs, a thread for each IPU.

    Raises:
        InvalidOption: there is no such file.
        BadReport: it is no report of Abele; the vendor's ``.pvti`` is of a format that is not public.
    """
    try:
        with File(path) as file:
            count = len(file.index()["programs"])
    except BadReport as error:
        if Path(path).suffix == ".pvti":
            raise BadReport(
                f"{str(path)!r} is a trace of the vendor's, whose format is not public",
                remedy="Open a report of Abele (profile.pop): its trace is what the modelled machine does.",
            ) from error
        raise
    return Trace([Process(number, Path(path)) for number in range(count)])

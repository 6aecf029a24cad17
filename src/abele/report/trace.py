"""A report as a trace in Chrome's format, for Perfetto and speedscope: the modelled time of one device iteration.

Process 1 is the program as one line: calls and repeats, of which the first turn is drawn, around their operations.
Each IPU is a process of its own, with its operations and, of a pipeline, its stage and micro-batch at work. Within an
operation are its sync, exchange, compute and host. Times are whole nanoseconds, and every event ends within the one
around it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from abele.report.store import Packet, Report
from abele.report.store.schema import PHASES

MOST_PHASED = 50_000
"""In a program of more moments, what is within an operation is left out: a browser is to open it."""

Event = dict[str, Any]


def chrome_trace(report: Report, program: int = 0) -> Iterator[str]:
    """The text of the trace, in pieces."""
    summary = report.summary(program)
    about = {"name": summary["name"], "system": summary["system"], "clock": "modelled, not measured"}
    yield f'{{"displayTimeUnit":"ns","otherData":{json.dumps(about)},"traceEvents":[\n'
    before = ""
    for event in _Trace(report, program, summary).events():
        yield before + json.dumps(event, separators=(",", ":"))
        before = ",\n"
    yield "\n]}\n"


class _Track:
    """Events of one thread, begun and ended in turn; none begins before the last one ended, or ends before it began."""

    def __init__(self, pid: int, tid: int) -> None:
        self.place = {"pid": pid, "tid": tid}
        self.now = 0
        self.open: list[str] = []

    def begin(self, name: str, at: int, category: str = "") -> Event:
        self.now = max(self.now, at)
        self.open.append(name)
        return {"ph": "B", "name": name, "ts": self.now / 1000, **self.place} | ({"cat": category} if category else {})

    def end(self, at: int) -> Event:
        self.now = max(self.now, at)
        return {"ph": "E", "name": self.open.pop(), "ts": self.now / 1000, **self.place}

    def called(self, name: str) -> Event:
        """The event that names the thread."""
        return {"ph": "M", "name": "thread_name", "args": {"name": name}, **self.place}


class _Trace:
    def __init__(self, report: Report, program: int, summary: dict[str, Any]) -> None:
        self.summary, self.nanoseconds = summary, 1e9 / summary["clock_hz"]
        table = report.table("operations", program)
        self.names, self.kinds, self.layers, self.files = (
            [text or "(no name)" if name == "name" else text for text in table.words(name)]
            for name in ("name", "kind", "layer", "file")
        )
        self.lines = table.numbers("line").tolist()
        self.moments, self.liveness = (report.table(name, program) for name in ("moments", "liveness"))
        self.pipeline = report.table("pipeline", program)
        columns = (self.moments.numbers(name) for name in ("operation", "start", "ipu", "depth"))
        self.operation, self.start, self.ipu, self.depth = (column.tolist() for column in columns)
        starts = self.moments.numbers("start")
        ends = np.stack([starts, *(starts + each for each in self._lengths())])
        self.ends = np.rint(ends * self.nanoseconds).astype(np.int64).T.tolist()
        self.phased = self.moments.count <= MOST_PHASED

    def _lengths(self) -> np.ndarray:
        return np.cumsum([self.moments.numbers(name) for name in PHASES], axis=0)

    def events(self) -> Iterator[Event]:
        yield self._process(1, self.summary["name"] or "program")
        yield from self._program(_Track(1, 1))
        for at, bytes in zip(self.ends, self.liveness.numbers("max").tolist(), strict=True):
            yield {"ph": "C", "name": "fullest tile", "ts": at[0] / 1000, "pid": 1, "tid": 1, "args": {"bytes": bytes}}
        of_ipu: dict[int, list[int]] = {}
        for moment, ipu in enumerate(self.ipu):
            if ipu >= 0 and self.kinds[self.operation[moment]] == "step":
                of_ipu.setdefault(ipu, []).append(moment)
        stages = _by_ipu(self.pipeline)
        for ipu in sorted(of_ipu.keys() | stages.keys()):
            yield self._process(2 + ipu, f"IPU {ipu}")
            track = _Track(2 + ipu, 1)
            yield track.called("first turn" if stages else "operations")
            for moment in of_ipu.get(ipu, ()):
                yield from self._step(track, moment)
            if ipu in stages:
                yield from self._stages(_Track(2 + ipu, 2), stages[ipu])

    def _process(self, pid: int, name: str) -> Event:
        return {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}

    def _program(self, track: _Track) -> Iterator[Event]:
        yield track.called("program")
        inside: list[tuple[int, int]] = []
        for moment, operation in enumerate(self.operation):
            if self.kinds[operation] not in ("call", "repeat"):
                yield from self._step(track, moment)
            elif inside and inside[-1] == (operation, self.depth[moment]):
                inside.pop()
                yield track.end(self.ends[moment][0])
            else:
                inside.append((operation, self.depth[moment]))
                yield track.begin(self.names[operation], self.ends[moment][0], self._about(operation))
        for _ in inside:
            yield track.end(track.now)

    def _step(self, track: _Track, moment: int) -> Iterator[Event]:
        operation, ends = self.operation[moment], self.ends[moment]
        if ends[-1] <= max(ends[0], track.now):
            return  # it takes no time: nothing to draw, and what begins where it ends is not told apart
        yield track.begin(self.names[operation], ends[0], self._about(operation))
        if self.phased:
            for phase, first, last in zip(PHASES, ends[:-1], ends[1:], strict=True):
                if last > max(first, track.now):
                    yield track.begin(phase, first)
                    yield track.end(last)
        yield track.end(ends[-1])

    def _stages(self, track: _Track, rows: list[tuple[float, float, int, int, int]]) -> Iterator[Event]:
        yield track.called("pipeline")
        for start, length, stage, backward, batch in rows:
            first, last = (round(at * self.nanoseconds) for at in (start, start + length))
            if last > max(first, track.now):
                way = "backward" if backward else "forward"
                yield track.begin(f"stage {stage} {way}", first, f"micro-batch {batch}")
                yield track.end(last)

    def _about(self, operation: int) -> str:
        """Layer and line, as categories: what stands in ``args`` would be part of the name in speedscope."""
        file = self.files[operation]
        return ",".join(filter(None, (self.layers[operation], f"{file}:{self.lines[operation]}" if file else "")))


def _by_ipu(pipeline: Packet) -> dict[int, list[tuple[float, float, int, int, int]]]:
    """Start, length, stage, whether backward, and micro-batch of what each IPU does, in order."""
    names = ("ipu", "start", "length", "stage", "backward", "micro_batch")
    found: dict[int, list[tuple[float, float, int, int, int]]] = {}
    for ipu, *row in zip(*(pipeline.numbers(name).tolist() for name in names), strict=True):
        found.setdefault(ipu, []).append(tuple(row))
    return {ipu: sorted(rows) for ipu, rows in found.items()}

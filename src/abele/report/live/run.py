"""One run as all readers see it: its events in order, its totals, and a stream for each reader."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from abele import events
from abele.events import Event
from abele.report.live.advice import advice
from abele.report.live.metrics import exposition
from abele.report.live.tail import Tail
from abele.report.shown import NAME

PERIOD = 0.1
"""Seconds between two messages to a reader, and between two looks at the file."""
HEARTBEAT = 5.0
"""Seconds after which a reader is told that there is nothing new, so that one who has left is noticed."""
KEPT = 50_000
"""Events that are kept; a recorder's file holds fewer."""
BATCH = 2_000
"""Events in one message: a reader who comes late gets the past in a few."""
GONE = 1.0
"""Seconds between two looks whether the process still runs."""
THOUGHT = 2.0
"""Seconds between two readings of the advice."""


@dataclass
class Totals:
    """A program and what it has done so far."""

    figures: Event
    runs: int = 0
    samples: int = 0
    wall: float = 0.0
    gap: float = 0.0
    loss: float | None = None
    bad_losses: int = 0


@dataclass
class State:
    """What the events come to.

    Attributes:
        about: the first event.
        end: the last, ``None`` while the run goes on; ``gone``: its process is no more and has not said so.
        reported: whether a report lies beside the file.
    """

    about: Event = field(default_factory=dict)
    programs: dict[int, Totals] = field(default_factory=dict)
    messages: int = 0
    end: Event | None = None
    gone: bool = False
    reported: bool = False
    last: float = 0.0

    def take(self, row: Event) -> None:
        """Add an event, all of it; one that lacks what it should have raises, and is passed over."""
        kind = row["event"]
        self.last = max(self.last, 0.0 + row.get("t", 0.0))
        if kind == "run":
            if not row["id"].isalnum():  # it is a part of the stream's lines
                raise ValueError(row["id"])
            self.about = row
        elif kind == "program":
            advice(row)  # raises where something is missing that readers count on
            program = Totals(row)
            exposition(State(programs={0: program}))
            self.programs[row["program"]] = program
        elif kind == "steps" and row["program"] in self.programs:
            before = self.programs[row["program"]]
            self.programs[row["program"]] = replace(
                before,
                runs=before.runs + row["count"],
                samples=before.samples + row["samples"],
                wall=before.wall + row["wall"],
                gap=before.gap + row["gap"],
                bad_losses=before.bad_losses + row.get("loss_bad", 0),
                loss=row["loss_sum"] / row["losses"] if row.get("losses") else before.loss,
            )
        elif kind == "message":
            self.messages += 1
        elif kind == "end":
            self.end = row
        elif kind == "report":
            self.reported = True

    @property
    def running(self) -> bool:
        return bool(self.about) and self.end is None and not self.gone


class FollowedRun:
    """A run by its file; what ``report.server.Live`` asks of it.

    The file is looked at while somebody reads the stream, and when the metrics are asked for.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.readers = 0
        self.state = State()
        self._tail = Tail(self.path)
        self._events: deque[Event] = deque(maxlen=KEPT)
        self._changed = threading.Condition()
        self._looked = self._felt = -1.0
        self._closed = False

    @property
    def report(self) -> Path | None:
        """The report of the run, when there is one."""
        found = self.path.with_name(NAME)
        return found if self.state.reported and found.is_file() else None

    def metrics(self) -> str:
        """Its totals as text for Prometheus."""
        with self._changed:
            self._look()
            return exposition(self.state)

    def events(self, after: str = "") -> Iterator[bytes]:
        """Server-sent events for one reader.

        Each message is a list of events in JSON, and its id says which run they are of and how far they go. ``after``
        is the last id that the reader has had; of another run, or of none, all comes anew, after an event ``anew``.
        """
        run, number = _position(after)
        yield b"retry: 1000\n\n"
        spoken, thought = time.monotonic(), -THOUGHT
        told: dict[int, list[Event]] = {}
        gone = False
        self.readers += 1
        try:
            while not self._closed:
                with self._changed:
                    self._look()
                    here = str(self.state.about.get("id", ""))
                    anew = here != run
                    if anew:
                        run, number, told, gone = here, -1, {}, False
                    rows = self._since(number)
                    more: list[Event] = []
                    if (rows and time.monotonic() - thought > THOUGHT) or self.state.end is not None:
                        more, thought = self._advice(told), time.monotonic()
                    if self.state.gone and not gone:
                        gone = True
                        more.append({"event": "gone", "t": self.state.last})
                if rows or more or anew:
                    if anew:
                        yield b"event: anew\ndata: {}\n\n"
                    number = rows[-1]["n"] if rows else number
                    text = json.dumps(rows + more, allow_nan=False)
                    yield f"id: {run}.{number}\ndata: {text}\n\n".encode()
                    spoken = time.monotonic()
                elif time.monotonic() - spoken > HEARTBEAT:
                    yield b": nothing new\n\n"
                    spoken = time.monotonic()
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, PERIOD)
        finally:
            self.readers -= 1

    def close(self) -> None:
        """End all streams."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def look(self) -> State:
        """The state as it is now."""
        with self._changed:
            self._look()
            return self.state

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked < PERIOD / 2:
            return
        self._looked = now
        self._read()
        if self.state.running and now - self._felt > GONE:
            self._felt = now
            if not events.running(self.path):
                self._read()  # its last words
                self.state.gone = self.state.end is None

    def _read(self) -> None:
        anew, rows = self._tail.poll()
        if anew:
            self.state = State()
            self._events.clear()
        for row in rows:
            try:
                self.state.take(row)
            except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError):
                continue
            self._events.append(row)

    def _since(self, number: int) -> list[Event]:
        """The next events after the one of that number."""
        rows = self._events
        if not rows or rows[-1]["n"] <= number:
            return []
        back = 0
        while back < len(rows) and rows[-1 - back]["n"] > number:
            back += 1
        first = len(rows) - back
        return [rows[i] for i in range(first, min(len(rows), first + BATCH))]

    def _advice(self, told: dict[int, list[Event]]) -> list[Event]:
        """Advice that differs from what the reader has been told."""
        found: list[Event] = []
        for number, program in self.state.programs.items():
            rows = advice(program.figures, program.runs, program.gap)
            if told.get(number) != rows:
                told[number] = rows
                found.append({"event": "advice", "program": number, "rows": rows})
        return found


def _position(after: str) -> tuple[str, int]:
    run, _, number = after.rpartition(".")
    return (run, int(number)) if run and number.isdecimal() and len(number) < 20 else ("", -1)

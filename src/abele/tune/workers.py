"""Processes that try points side by side and last as long as a search.

They are forked, so that they know the captured model and the user's files, and keep what they have planned from round
to round. Threads do not survive a fork: torch works with one in them, as in its own data loaders.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from abele.tune.space import Point
from abele.tune.trial import Trial

Try = Callable[[Point], Trial]


class Workers:
    """``jobs`` processes that each run ``attempt``; with one job, or where processes cannot be forked, this one does.

    Use as a context: at its end, however that comes, the processes are stopped.
    """

    def __init__(self, attempt: Try, jobs: int) -> None:
        self.attempt = attempt
        self.jobs = jobs if "fork" in multiprocessing.get_all_start_methods() else 1
        self._busy: dict[Connection, tuple[Any, Point | None]] = {}

    def __enter__(self) -> Workers:
        if self.jobs > 1:
            for _ in range(self.jobs):
                self._start()
        return self

    def __exit__(self, *error: object) -> None:
        for process, _ in self._busy.values():
            process.terminate()
        for process, _ in self._busy.values():
            process.join()
        self._busy.clear()

    def run(self, points: Sequence[Point], deadline: float = float("inf")) -> Iterator[Trial]:
        """The trials of these points as they end; it stops at the ``deadline`` (of ``time.monotonic``)."""
        if self.jobs == 1:
            for point in points:
                if time.monotonic() >= deadline:
                    return
                yield self.attempt(point)
            return
        left = list(reversed(points))
        for connection in self._busy:
            self._give(connection, left)
        while any(point is not None for _, point in self._busy.values()):
            rest = None if deadline == float("inf") else max(0.0, deadline - time.monotonic())
            ready = wait([c for c, (_, point) in self._busy.items() if point is not None], rest)
            if not ready:
                return
            for connection in ready:
                assert isinstance(connection, Connection)
                trial, connection = self._taken(connection)
                self._give(connection, left)
                yield trial

    def _taken(self, connection: Connection) -> tuple[Trial, Connection]:
        """What a worker sent; one that died is replaced."""
        process, point = self._busy[connection]
        assert point is not None
        try:
            found = connection.recv()
        except EOFError:
            process.join()
            del self._busy[connection]
            return Trial(point, error=f"The process that tried it ended with {process.exitcode}."), self._start()
        if isinstance(found, BaseException):
            raise found
        return found, connection

    def _give(self, connection: Connection, left: list[Point]) -> None:
        process, _ = self._busy[connection]
        point = left.pop() if left else None
        self._busy[connection] = process, point
        if point is not None:
            connection.send(point)

    def _start(self) -> Connection:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(self.attempt, theirs, [*self._busy, ours]), daemon=True)
        process.start()
        theirs.close()
        self._busy[ours] = process, None
        return ours


def _work(attempt: Try, connection: Connection, inherited: Sequence[Connection]) -> None:
    """The life of a worker. Ctrl-C reaches it too and is the parent's to answer; when the parent is gone, it ends.

    For that it must not hold the parent's own ends of the pipes, which a fork copies.
    """
    for end in inherited:
        end.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    while True:
        try:
            point = connection.recv()
        except EOFError:
            return
        try:
            found: Trial | BaseException = attempt(point)
        except Exception as error:
            found = error
        connection.send(found)

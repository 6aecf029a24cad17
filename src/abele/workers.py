"""Processes that map a function over items side by side, and last as long as a search or a sweep.

They are forked, so that they know the captured model and the user's files, and keep what they have planned from round
to round; one that has grown large is replaced by a new one. Threads do not survive a fork: torch works with one in
them, as in its own data loaders.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

GROWTH = 1 << 30
"""Bytes by which a worker may grow before another takes its place. What compiles leave behind, in memory that is split
into small pieces, is 10 to 20 MB each: in a search of hours more than a computer has."""

Item = TypeVar("Item")
Found = TypeVar("Found")


class Workers(Generic[Item, Found]):
    """``jobs`` processes that each run ``attempt``; with one job, or where processes cannot be forked, this one does.

    Use as a context: at its end, however that comes, the processes are stopped. What ``attempt`` raises is raised here.
    """

    def __init__(self, attempt: Callable[[Item], Found], jobs: int, died: Callable[[Item, int | None], Found]) -> None:
        """``died`` gives what is found of an item whose process ended by itself, by its exit status, or raises."""
        self.attempt, self.died = attempt, died
        self.jobs = jobs if "fork" in multiprocessing.get_all_start_methods() else 1
        self._busy: dict[Connection, tuple[Any, int | None]] = {}

    def __enter__(self) -> Workers[Item, Found]:
        if self.jobs > 1:
            try:
                for _ in range(self.jobs):
                    self._start()
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *error: object) -> None:
        for process, _ in self._busy.values():
            process.terminate()
        for process, _ in self._busy.values():
            process.join()
        self._busy.clear()

    def run(self, items: Sequence[Item], deadline: float = float("inf")) -> Iterator[tuple[int, Found]]:
        """Place and result of these items as they end; it stops at the ``deadline`` (of ``time.monotonic``)."""
        if self.jobs <= 1:
            for place, item in enumerate(items):
                if time.monotonic() >= deadline:
                    return
                yield place, self.attempt(item)
            return
        left = list(reversed(range(len(items))))
        for connection in self._busy:
            self._give(connection, items, left)
        while any(place is not None for _, place in self._busy.values()):
            rest = None if deadline == float("inf") else max(0.0, deadline - time.monotonic())
            ready = wait([c for c, (_, place) in self._busy.items() if place is not None], rest)
            if not ready:
                return
            for connection in ready:
                assert isinstance(connection, Connection)
                place = self._busy[connection][1]
                assert place is not None
                found, connection = self._taken(connection, items[place])
                self._give(connection, items, left)
                yield place, found

    def _taken(self, connection: Connection, item: Item) -> tuple[Found, Connection]:
        """What a worker sent; one that died or has grown large is replaced."""
        process, _ = self._busy[connection]
        try:
            found, error, grown = connection.recv()
        except (EOFError, ConnectionError):
            process.join()
            del self._busy[connection]
            return self.died(item, process.exitcode), self._start()
        if error is not None:
            raise error
        if grown > GROWTH:
            connection.close()  # it ends when nobody gives it anything any more
            process.join()
            del self._busy[connection]
            return found, self._start()
        return found, connection

    def _give(self, connection: Connection, items: Sequence[Item], left: list[int]) -> None:
        process, _ = self._busy[connection]
        place = left.pop() if left else None
        self._busy[connection] = process, place
        if place is not None:
            connection.send(items[place])

    def _start(self) -> Connection:
        """A new worker. Ctrl-C reaches it too and is the parent's to answer: the worker is born deaf to it."""
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(self.attempt, theirs, [*self._busy, ours]), daemon=True)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
            self._busy[ours] = process, None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        return ours


def _work(attempt: Callable[[Any], Any], connection: Connection, inherited: Sequence[Connection]) -> None:
    """The life of a worker. When the parent is gone, it ends after the item that it works on.

    For that it must not hold the parent's own ends of the pipes, which a fork copies.
    """
    for end in inherited:
        end.close()
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    born = _most_bytes()
    while True:
        try:
            item = connection.recv()
        except (EOFError, ConnectionError):
            return
        try:
            found = attempt(item), None
        except Exception as error:
            found = None, error
        try:
            connection.send((*found, _most_bytes() - born))
        except OSError:  # nobody listens any more
            return


def _most_bytes() -> int:
    """The most memory that this process has held."""
    import resource  # not where processes cannot be forked

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

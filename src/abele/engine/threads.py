"""A small pool of threads that splits one native kernel into chunks.

Chunks are taken as threads become free, so that a busy neighbour on one core delays no barrier by much. A kernel's
units are independent and are cut at its grain, so the bits do not depend on the number of threads.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

WORTH = 400_000
"""Operations (``units * cost`` of a kernel) from which a call is split: about 50 microseconds of work."""
CHUNKS = 4
"""Chunks for each thread."""


def available() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Pool:
    """``threads - 1`` workers; the calling thread is the last one. With one thread nothing is started."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._queues: list[SimpleQueue] = []
        self._done: SimpleQueue = SimpleQueue()
        for number in range(threads - 1):
            queue: SimpleQueue = SimpleQueue()
            self._queues.append(queue)
            threading.Thread(target=_work, args=(queue, self._done), name=f"abele-{number}", daemon=True).start()

    def run(self, function: Callable[[int, int, int], object], table: int, units: int, grain: int) -> None:
        """Call ``function(table, begin, end)`` over ``[0, units)`` in chunks that are multiples of ``grain``."""
        chunk = max(1, -(-units // (self.threads * CHUNKS)))
        chunk = -(-chunk // grain) * grain
        take = itertools.count()

        def work() -> None:
            while (begin := next(take) * chunk) < units:
                function(table, begin, min(begin + chunk, units))

        for queue in self._queues:
            queue.put(work)
        try:
            work()
        finally:
            errors = [e for _ in self._queues if (e := self._done.get()) is not None]
        if errors:
            raise errors[0]

    def close(self) -> None:
        """End the workers."""
        for queue in self._queues:
            queue.put(None)
        self._queues = []


def _work(queue: SimpleQueue, done: SimpleQueue) -> None:
    while (work := queue.get()) is not None:
        try:
            work()
            done.put(None)
        except BaseException as error:
            done.put(error)

"""Threads: which work is divided, decided beforehand from its size, and the pool that divides native kernels.

A thread is worth waking for work that takes far longer than the waking, and far longer than a neighbour on a loaded
computer may hold a core. What is smaller runs on the calling thread alone, so that a small program costs no more with
many threads than with one. The two kinds of work have limits of their own:

* a native kernel is divided by :class:`Pool` from :data:`KERNEL_WORTH` on. Chunks are taken as threads become free,
  and a worker that comes late is not waited for;
* an operation of oneDNN is divided by its own OpenMP threads from :func:`library_worth` on. They meet at barriers
  where each spins until the last has come: on a loaded computer that takes many times the work itself. OpenMP threads
  that sleep there instead lose little when the computer is idle, so abele asks for that (``OMP_WAIT_POLICY=PASSIVE``)
  where it loads torch itself. A program that imports torch first has to set it in its environment.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue

from abele.errors import InvalidOption

KERNEL_WORTH = 2_000_000
"""Operations (``units * cost`` of a kernel) from which a native kernel is divided: about 0.2 milliseconds of work."""
LIBRARY_WORTH = {"sleep": 200_000_000, "spin": 1_000_000_000}
"""Floating-point operations from which oneDNN divides one, by how its threads wait: about 4 and 20 milliseconds."""
CHUNKS = 4
"""Chunks for each thread."""


def available() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def sleep_at_barriers() -> None:
    """Let OpenMP threads sleep at barriers, unless the user chose otherwise or torch, which reads this, is loaded."""
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def library_worth() -> int:
    """From how many floating-point operations on oneDNN may divide an operation over its threads."""
    sleeps = os.environ.get("OMP_WAIT_POLICY", "").strip().upper() == "PASSIVE"
    return LIBRARY_WORTH["sleep" if sleeps else "spin"]


def threads_to_use(given: int | None) -> int:
    """``given``, else ``ABELE_THREADS`` or ``OMP_NUM_THREADS``, else all processors; ``InvalidOption`` below one."""
    for name in ("ABELE_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(name, "")
        if given is None and text:
            if not text.isdigit():
                raise InvalidOption(f"{name} is {text!r}", remedy="It is a number of threads.")
            given = int(text)
    threads = available() if given is None else given
    if threads < 1:
        raise InvalidOption(f"{threads} threads", remedy="Give at least 1.")
    return threads


class _Job:
    """One kernel in chunks, and who is at work on it."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work, self._lock = work, threading.Lock()
        self._running, self._closed = 0, False
        self._left: SimpleQueue[BaseException | None] = SimpleQueue()

    def help(self) -> None:
        """What a worker does, unless all chunks are taken already."""
        with self._lock:
            if self._closed:
                return
            self._running += 1
        try:
            self._work()
            self._left.put(None)
        except BaseException as error:
            self._left.put(error)

    def finish(self) -> None:
        """Work on the calling thread until no chunk is left, and wait for the workers that took some."""
        try:
            self._work()
        finally:
            with self._lock:
                self._closed = True
            errors = [e for _ in range(self._running) if (e := self._left.get()) is not None]
        if errors:
            raise errors[0]


class Pool:
    """``threads - 1`` workers, started when first needed; the calling thread is the last one.

    A kernel's units are independent and are cut at its grain, so the bits do not depend on the number of threads.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._queues: list[SimpleQueue[_Job | None]] = []

    def _start(self) -> None:
        for number in range(self.threads - 1):
            queue: SimpleQueue[_Job | None] = SimpleQueue()
            self._queues.append(queue)
            threading.Thread(target=_work, args=(queue,), name=f"abele-{number}", daemon=True).start()

    def run(self, function: Callable[[int, int, int], object], table: int, units: int, grain: int) -> None:
        """Call ``function(table, begin, end)`` over ``[0, units)`` in chunks that are multiples of ``grain``."""
        if not self._queues:
            self._start()
        chunk = max(1, -(-units // (self.threads * CHUNKS)))
        chunk = -(-chunk // grain) * grain
        take = itertools.count()

        def work() -> None:
            while (begin := next(take) * chunk) < units:
                function(table, begin, min(begin + chunk, units))

        job = _Job(work)
        for queue in self._queues:
            queue.put(job)
        job.finish()

    def close(self) -> None:
        """End the workers."""
        for queue in self._queues:
            queue.put(None)
        self._queues = []


def _work(queue: SimpleQueue[_Job | None]) -> None:
    while (job := queue.get()) is not None:
        job.help()

"""Several processes of one program for tests, on this machine: forked, since importing torch takes its time."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork processes")


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Forked:
    """One process, which runs a function of its rank and of how many there are, as a program would.

    Attributes:
        status: its exit status once it has ended, negative for a signal.
    """

    def __init__(self, work: Callable[[int, int], object], rank: int, size: int, more: dict[str, str]) -> None:
        folder = Path(tempfile.mkdtemp(prefix="abele-test-"))
        self._out, self._error = folder / "out", folder / "error"
        self.status: int | None = None
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os._exit(self._be(work, rank, size, more))

    def _be(self, work: Callable[[int, int], object], rank: int, size: int, more: dict[str, str]) -> int:
        status = 1
        try:
            os.setsid()
            atexit._clear()
            for number, path in ((1, self._out), (2, self._error)):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
            sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
            os.environ.update(more, RANK=str(rank), WORLD_SIZE=str(size))
            work(rank, size)
            status = 0
        except SystemExit as error:
            status = int(error.code or 0)
        except BaseException as error:
            traceback.print_exc()
            sys.last_value = error  # as the interpreter does before it ends
        finally:
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        return status

    @property
    def out(self) -> str:
        """What it has written so far."""
        return self._out.read_text() if self._out.exists() else ""

    @property
    def error(self) -> str:
        """What it has written to standard error so far."""
        return self._error.read_text() if self._error.exists() else ""

    def says(self, text: str, seconds: float = 60.0) -> None:
        """Wait until it has written this; it fails the test when it does not."""
        until = time.monotonic() + seconds
        while text not in self.out:
            assert time.monotonic() < until and not self.has_ended(), f"it does not say {text!r}: {self.error}"
            time.sleep(0.01)

    def has_ended(self) -> bool:
        """Whether it has ended."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status is not None

    def wait(self, seconds: float = 60.0) -> Forked:
        """Wait for its end; it fails the test when it still runs after ``seconds``."""
        until = time.monotonic() + seconds
        while not self.has_ended():
            assert time.monotonic() < until, f"it still runs after {seconds} s: {self.error}"
            time.sleep(0.01)
        return self

    def kill(self) -> None:
        """End it, and what it has started, whatever it does."""
        if not self.has_ended():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            os.kill(self.pid, signal.SIGKILL)
            self.wait()


@contextlib.contextmanager
def started(work: Callable[[int, int], object], size: int, **more: str) -> Iterator[list[Forked]]:
    """``size`` processes, with ``more`` in their environment; those that still run at the end are killed."""
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), **more}
    processes = [Forked(work, rank, size, where) for rank in range(size)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()


def run(work: Callable[[int, int], object], size: int, seconds: float = 120.0, **more: str) -> list[Forked]:
    """Run ``size`` processes to their end; all of them must end well."""
    with started(work, size, **more) as processes:
        for rank, process in enumerate(processes):
            process.wait(seconds)
            assert process.status == 0, f"rank {rank} ended with {process.status}:\n{process.error[-3000:]}"
    return processes

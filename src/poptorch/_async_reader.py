"""The reader's side of loading ahead: starts the worker process, reads its ring, and stops it whatever happens."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import time
import weakref
from typing import Any

import torch
import torch.multiprocessing

from . import _async_worker
from ._async_worker import Command, Failure, Ring, Waiter, Worker
from ._errors import Error
from ._logging import logger
from ._structure import rebuild

#: How long a worker may take to stop by itself before it is stopped, in seconds.
PATIENCE = 5.0
#: The worker's name, by which a process that is being started as one knows it while it imports the user's program.
_WORKER = "poptorch data loader"
#: Exit code of a worker whose import of the user's program came to make a data loader again.
_UNGUARDED = 78
_GUARD = (
    "The process that loads ahead imports the program, which makes a data loader outside of "
    '`if __name__ == "__main__":` and would do so without end. '
    "Put the program's statements under that line, or use "
    "sharing_strategy=poptorch.SharingStrategy.Fork or mode=DataLoaderMode.Sync."
)


class WorkerHandle:
    """The reader's side: starts the process, reads the ring, and stops the process whatever happens."""

    def __init__(self, worker: Worker, method: str) -> None:
        self._process: Any = None
        starting: Any = torch.multiprocessing.current_process()
        if getattr(starting, "_inheriting", False) and starting.name == _WORKER:
            os._exit(_UNGUARDED)  # the reader says what to do; an exception would print its traceback here too
        context: Any = torch.multiprocessing.get_context(method)
        if method == "forkserver":
            # The server imports PyTorch once; else every worker would, which takes seconds.
            context.set_forkserver_preload(["__main__", "torch", "poptorch.dataloader"])
        self._pause = worker.pause
        self._files: list[str] = []
        self._position = 0
        self._holds: int | None = None
        self._fresh = True
        self._at_end = False
        self._conn, theirs = context.Pipe()
        process = context.Process(
            target=worker.run, args=(theirs, self._conn if method == "fork" else None), daemon=False, name=_WORKER
        )
        try:
            process.start()
        except Exception as error:
            self._conn.close()
            raise Error(
                f"The data loader's worker thread failed to start: its data set cannot be sent to another process "
                f"({error}). Define it, its collate function and its sampler at the top level of a module, or use "
                "sharing_strategy=poptorch.SharingStrategy.Fork."
            ) from error
        finally:
            theirs.close()
            if process.pid is not None:  # also when Ctrl-C comes just now
                self._process, self._owner = process, os.getpid()
                _live.add(self)
        logger.debug("AsynchronousDataAccessor worker process: %d", process.pid)
        first = self._receive("failed to start")
        if not isinstance(first, Ring):
            raise Error(f"The data loader's worker thread failed to start: it sent {first!r}.")
        self._data_buffers: Any = RingReader(first)
        self._files = first.files() if worker.file_sharing else []

    def _receive(self, what: str) -> Any:
        """The worker's next message; an error when it has failed or died instead."""
        waiter = Waiter(self._pause)
        while not self._conn.poll():
            if not waiter.sleep(self._process.is_alive) and not self._conn.poll():
                self._died(what)
        try:
            message = self._conn.recv()
        except (EOFError, OSError):
            # The kernel resets the pipe of a process that is killed with commands unread, and tensors of one that has
            # ended cannot be had any more.
            return self._died(what)
        except BaseException:  # Ctrl-C in the middle of a message: what follows could not be read
            self.stop()
            raise
        if isinstance(message, Failure):
            self._raised(what, message)
        return message

    def _raised(self, what: str, failure: Failure) -> None:
        self.stop()
        raise Error(f"The data loader's worker thread {what}. It raised:\n{failure.traceback}")

    def _died(self, what: str) -> Any:
        _join(self._process)
        with contextlib.suppress(EOFError, OSError):
            while self._conn.poll():  # it may have said why before it ended
                message = self._conn.recv()
                if isinstance(message, Failure):
                    self._raised(what, message)
        code = self._process.exitcode
        self.stop()
        if code == _UNGUARDED:
            raise Error(_GUARD) from None
        raise Error(f"The data loader's worker thread {what}: its process ended with exit code {code}{_meaning(code)}.")

    def _ask(self, command: Command) -> None:
        try:
            self._conn.send(command)
        except OSError:
            self._died("has died")

    def restart(self) -> None:
        """Be at the start of the data, whatever has been read."""
        self._check_running()
        if not self._fresh and not self._at_end:
            self._ask(Command.Reset)
            while self._receive("failed to restart") is not Command.Reset:
                pass
            self._position, self._holds = 0, None
        else:
            self._ask(Command.Start)
        self._fresh = self._at_end = False

    def next(self) -> Any:
        """The next element; raises ``StopIteration`` at the end of the data."""
        self._check_running()
        if self._at_end or self._fresh:
            raise StopIteration
        reader = self._data_buffers
        if self._holds is not None:
            reader.free(self._holds)
            self._holds = None
        waiter = Waiter(self._pause)
        while reader.state(self._position) == _async_worker.FREE:
            if self._conn.poll():
                self._receive("failed")
            elif not waiter.sleep(self._process.is_alive) and not self._conn.poll():
                self._died("has died")
        slot, self._position = self._position, (self._position + 1) % reader.slots
        if reader.state(slot) == _async_worker.END:
            reader.free(slot)
            self._at_end = True
            raise StopIteration
        self._holds = slot
        return reader.element(slot)

    def _check_running(self) -> None:
        if self._process is None:
            raise Error("The data loader has been terminated and cannot be used any more.")

    def stop(self) -> None:
        """Stop the process: ask, then insist. Safe to call more than once."""
        process, self._process = self._process, None
        if process is None or os.getpid() != self._owner:
            return
        _live.discard(self)
        pid = process.pid
        try:
            with contextlib.suppress(OSError, ValueError):
                self._conn.send(Command.Shutdown)
            for insist in (process.terminate, process.kill):
                if not _join(process):
                    insist()
            _join(process)
        except BaseException:  # Ctrl-C again, from a user who does not want to wait
            process.kill()
            _join(process)
            raise
        finally:
            if process.exitcode != 0:
                _kill_group(pid)
            self._conn.close()
            self._data_buffers = None  # the shared memory goes, but for what the user still holds
            for name in self._files:  # torch would keep them until this process ends, were the worker killed
                with contextlib.suppress(OSError):
                    os.unlink(f"/dev/shm{name}")

    def __del__(self) -> None:
        if getattr(self, "_process", None) is not None:
            self.stop()


def _join(process: Any) -> bool:
    """Wait for a process at most ``PATIENCE`` seconds; whether it has ended.

    Not by ``Process.join``, which waits for a pipe that torch's keeper of shared files may hold open.
    """
    until = time.monotonic() + PATIENCE
    while process.is_alive() and time.monotonic() < until:
        time.sleep(0.005)
    return not process.is_alive()


def _meaning(code: int | None) -> str:
    """What an exit code says of why, in brackets, or nothing."""
    if code is None or code >= 0:
        return ""
    number = signal.Signals(-code)
    causes = {signal.SIGKILL: "; the system may have run out of memory", signal.SIGBUS: "; /dev/shm may be full"}
    return f" ({number.name}{causes.get(number, '')})"


def _kill_group(leader: int) -> None:
    """Kill what a worker that was killed has left behind: its own workers, which are of its process group."""
    if hasattr(os, "killpg") and leader != os.getpgrp():
        with contextlib.suppress(OSError):
            os.killpg(leader, signal.SIGKILL)


class RingReader:
    """Reads elements out of a ring."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self.indices_mem = ring.states  # the vendor's public tests look at it
        self.slots = len(ring.states)

    def state(self, slot: int) -> int:
        """Whether a slot is free, full, or marks the end."""
        return int(self._ring.states[slot])

    def free(self, slot: int) -> None:
        """Let the worker fill the slot again."""
        self._ring.states[slot] = _async_worker.FREE

    def element(self, slot: int) -> Any:
        """The element in a slot, on the shared memory itself."""
        rows = int(self._ring.rows[slot])
        buffers = self._ring.buffers[slot]
        return rebuild(self._ring.element, buffers if rows < 0 else [b[:rows] for b in buffers])


_live: weakref.WeakSet[WorkerHandle] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Before the interpreter waits for its child processes: they would wait for it."""
    for handle in list(_live):
        handle.stop()

"""The process that loads data ahead, and the ring of shared buffers through which it hands it over.

A ring has a number of slots, each with one shared buffer for every tensor of an element. The state of each slot
is a byte in shared memory that one side at a time may change: the worker fills ``FREE`` slots, the reader frees
the others. The end of the data is itself a slot (``END``), so that order needs no other signal. Commands and
errors travel over a pipe.
"""

from __future__ import annotations

import dataclasses
import enum
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import torch

from ._structure import constants, flatten, map_tensors

FREE, FULL, END = 0, 1, 2
#: The longest that either side sleeps before it looks again whether the other still lives, in seconds.
LONGEST_SLEEP = 0.005


class Command(enum.IntEnum):
    """What the reader asks of the worker."""

    Start = 0
    Reset = 1
    Shutdown = 2


@dataclasses.dataclass
class Ring:
    """The shared part: ``states`` uint8[slots], ``rows`` int64[slots], ``buffers`` [slots][tensors].

    ``rows`` is the length of dimension 0 of what a slot holds where that is less than its buffers', or −1.
    ``element`` is the first element with None for each tensor.
    """

    states: torch.Tensor
    rows: torch.Tensor
    buffers: list[list[torch.Tensor]]
    element: Any

    def files(self) -> list[str]:
        """The names of its pieces of shared memory, where those are files."""
        storages = [t.untyped_storage() for t in (self.states, self.rows, *(b for slot in self.buffers for b in slot))]
        return [storage._share_filename_cpu_()[1].decode() for storage in storages if storage.nbytes()]


@dataclasses.dataclass
class Failure:
    """What the worker sends when the user's code raised: the traceback, to show."""

    traceback: str


class Waiter:
    """Sleeps longer and longer up to a bound, so that waiting costs little and short waits stay short."""

    def __init__(self, shortest: float) -> None:
        self._pause = self._shortest = max(1e-5, shortest)
        self._since_look = 0.0

    def sleep(self, alive: Callable[[], bool]) -> bool:
        """Sleep once; False when the other side has been found dead (looked at every 50 ms or so)."""
        time.sleep(self._pause)
        self._since_look += self._pause
        self._pause = min(self._pause * 2, max(self._shortest, LONGEST_SLEEP))
        if self._since_look < 0.05:
            return True
        self._since_look = 0.0
        return alive()


class _Stopped(Exception):
    """The reader has asked for the end, or is gone."""


class _Restarted(Exception):
    """The reader has asked to start the data from the beginning."""


@dataclasses.dataclass
class Worker:
    """What the worker's process needs; it is sent there whole.

    Attributes:
        make: called in the process, gives the object to iterate over, once per epoch.
        slots: size of the ring.
        pause: the shortest wait for a free slot, in seconds.
        load_indefinitely: whether another epoch follows the first.
        early_preload: whether to fill the ring before an iterator exists.
        seed: PyTorch's seed in the process.
        file_sharing: whether tensors are shared through named files instead of file descriptors.
    """

    make: Callable[[], Iterable[Any]]
    slots: int
    pause: float
    load_indefinitely: bool
    early_preload: bool
    seed: int
    file_sharing: bool

    def run(self, pipe: Connection, readers_end: Connection | None) -> None:
        """The main function of the process."""
        # Ctrl-C reaches every process of a terminal or notebook; only the reader decides when to stop.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if hasattr(os, "setpgid"):
            os.setpgid(0, 0)  # a group with the loader's own workers, which the reader can end as one
        if readers_end is not None:
            readers_end.close()  # inherited by fork; while it is open here, the reader's end of file is not seen
        # The loader's own workers are forked from here, which is quick, and safe in a process of one thread;
        # they would else be started like this process, each importing PyTorch anew.
        multiprocessing.set_start_method("fork", force=True)
        torch.manual_seed(self.seed)
        torch.set_num_threads(1)
        self._pipe = pipe
        self._ring: Ring | None = None
        self._position = 0
        self._started = False
        try:
            self._loop(self.make())
        except _Stopped:
            pass
        except Exception:
            self._report()
        finally:
            pipe.close()

    def _report(self) -> None:
        """Tell the reader what was raised."""
        for _ in range(2):
            try:
                if hasattr(signal, "SIGCHLD"):  # torch's handler raises when a worker of the loader's has died
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                text = traceback.format_exc() + _dead_child()
                os.write(2, text.encode())
                self._pipe.send(Failure(text))
            except OSError:
                pass  # the reader is gone; standard error has what there is to say
            except RuntimeError:
                continue  # the handler, just before it was taken off
            return

    def _loop(self, dataset: Iterable[Any]) -> None:
        first_epoch = True
        while True:
            if not first_epoch and not self.early_preload:
                self._wait_for_start()
            try:
                if first_epoch or self.load_indefinitely:
                    self._epoch(iterate(dataset))
                self._put_end()
                first_epoch = False
                self._started = False
                if not self.load_indefinitely:
                    self._wait_for_start()
            except _Restarted:
                first_epoch = True
                self._started = True

    def _epoch(self, elements: Iterator[Any]) -> None:
        for element in elements:
            if self._ring is None:
                self._make_ring(element)
            ring = self._ring
            assert ring is not None
            self._wait_for_slot(ring)
            fill(ring, self._position, element)
            self._advance(ring, FULL)
            if not self._started and not self.early_preload:
                self._wait_for_start()
            self._obey()
        if self._ring is None:
            raise RuntimeError("The data set gives nothing: it is empty, or does not fill one batch.")

    def _make_ring(self, element: Any) -> None:
        tensors = flatten(element)
        usual = torch.multiprocessing.get_sharing_strategy()
        if self.file_sharing:  # for the ring alone: what the loader's own workers send is unlinked as it comes
            torch.multiprocessing.set_sharing_strategy("file_system")
        self._ring = Ring(
            torch.zeros(self.slots, dtype=torch.uint8).share_memory_(),
            torch.full((self.slots,), -1, dtype=torch.int64).share_memory_(),
            [[torch.empty_like(t, memory_format=torch.contiguous_format).share_memory_() for t in tensors]
             for _ in range(self.slots)],
            map_tensors(element, lambda t: torch.empty(0, device="meta")),
        )  # fmt: skip
        self._send(self._ring)
        torch.multiprocessing.set_sharing_strategy(usual)

    def _advance(self, ring: Ring, state: int) -> None:
        ring.states[self._position] = state
        self._position = (self._position + 1) % self.slots

    def _put_end(self) -> None:
        assert self._ring is not None
        self._wait_for_slot(self._ring)
        self._advance(self._ring, END)

    def _wait_for_slot(self, ring: Ring) -> None:
        waiter = Waiter(self.pause)
        while ring.states[self._position] != FREE:
            self._obey()
            if not waiter.sleep(_parent_lives):
                raise _Stopped

    def _wait_for_start(self) -> None:
        while not self._started:
            if self._pipe.poll(0.05):
                self._obey()
            elif not _parent_lives():
                raise _Stopped

    def _send(self, message: Any) -> None:
        try:
            self._pipe.send(message)
        except OSError:
            raise _Stopped from None

    def _obey(self) -> None:
        """Carry out the commands that have come."""
        while self._pipe.poll():
            try:
                command = self._pipe.recv()
            except (EOFError, OSError):
                raise _Stopped from None
            if command is Command.Shutdown:
                raise _Stopped
            if command is Command.Start:
                self._started = True
            elif command is Command.Reset and self._ring is not None:
                self._ring.states.fill_(FREE)
                self._position = 0
                self._send(Command.Reset)
                raise _Restarted


def iterate(dataset: Any) -> Iterator[Any]:
    """The elements of a data set: by its iterator, or by index where it only has a length."""
    if hasattr(dataset, "__iter__") or not hasattr(dataset, "__len__"):
        return iter(dataset)
    return (dataset[i] for i in range(len(dataset)))


def fill(ring: Ring, slot: int, element: Any) -> None:
    """Copy an element into a slot; it must be like the first one, but may be shorter along dimension 0."""
    tensors, buffers = flatten(element), ring.buffers[slot]
    if len(tensors) != len(buffers) or constants(element) != constants(ring.element):
        raise RuntimeError(
            "The elements of the data set differ in structure or in values that are not tensors. Only tensors may "
            "change from element to element: turn the others into tensors, or use DataLoaderMode.Sync."
        )
    rows = -1
    for tensor, buffer in zip(tensors, buffers):
        if tensor.shape == buffer.shape:
            buffer.copy_(tensor)
            continue
        same_rest = tensor.dim() == buffer.dim() > 0 and tensor.shape[1:] == buffer.shape[1:]
        if not same_rest or len(tensor) > len(buffer) or rows not in (-1, len(tensor)):
            raise RuntimeError(
                f"An element of the data set has a tensor of shape {list(tensor.shape)} where the first one has "
                f"{list(buffer.shape)}. Only an incomplete last batch may differ: pad the elements, or use "
                "DataLoaderMode.Sync."
            )
        rows = len(tensor)
        buffer[:rows].copy_(tensor)
    ring.rows[slot] = rows


def _dead_child() -> str:
    """What to say of a worker of the loader's own that has died, of which torch may have seen a broken pipe alone."""
    if not isinstance(sys.exception(), ConnectionError | EOFError):
        return ""
    for _ in range(20):
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            break
        if found is not None:
            how = "signal" if found.si_code == os.CLD_KILLED else "status"
            return f"DataLoader worker (pid {found.si_pid}) has ended with {how} {found.si_status}\n"
        time.sleep(0.02)
    return ""


def _parent_lives() -> bool:
    parent = multiprocessing.parent_process()
    if parent is None:
        return True
    if not parent.is_alive():
        return False
    try:  # a process that was forked since may hold open what tells of the parent's end
        os.kill(parent.pid or 0, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True

"""Several processes that run one program together: who takes part, and what they send each other.

Tensors go over ``torch.distributed``'s gloo, between hosts' memories, in which the engine computes. Before anything is
sent all processes say what they are about to do (``agree``), so that two that do different things get an error and
not each other's bytes. While one waits it looks now and then whether the others still live (see ``watch``).

Where process 0 is comes from ``MASTER_ADDR`` and ``MASTER_PORT``, which ``torchrun`` and ``poprun`` set, or from the
group that the program itself has made with ``torch.distributed.init_process_group``.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import multiprocessing.util
import os
import pickle
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np

from abele.engine.watch import Fault, Hub, Watch
from abele.errors import InvalidOption, LostProcess
from abele.user import said

LIMIT = "ABELE_DISTRIBUTED_TIMEOUT"
"""Environment variable: seconds that a process waits at most for the others, 1800 where it is not set."""
SILENCE = "ABELE_DISTRIBUTED_SILENCE"
"""Environment variable: seconds without a sign of life after which a process counts as hung, 30 where not set."""
_SLICE = timedelta(seconds=0.5)
"""How long a wait lasts before the process looks whether the others live, and whether the user pressed Ctrl-C."""
_VERDICT = 5.0
"""Seconds that the hub may take to say which process failed once a connection has broken."""
_TEXT = 256
"""Bytes of what a process says before it sends."""

_joined: Processes | None = None
_lock = threading.Lock()


def join(rank: int, size: int) -> Processes:
    """The processes that run the program, connected at the first call, which waits for all of them.

    Args:
        rank: the number of this process, from 0.
        size: how many there are.

    Raises:
        InvalidOption: where process 0 is is not known, or this process has joined with other numbers before.
        LostProcess: the others have not come in time; the message names them.
    """
    global _joined
    with _lock:
        if _joined is None:
            _joined = Processes(rank, size)
        elif (_joined.rank, _joined.size) != (rank, size):
            raise InvalidOption(
                f"This process is number {_joined.rank} of {_joined.size}, and cannot also be {rank} of {size}",
                remedy="Give all options the same process id and number of processes.",
            )
        return _joined


class Processes:
    """The connection of this process to the others; see ``join``."""

    def __init__(self, rank: int, size: int) -> None:
        from torch.distributed import distributed_c10d

        if not 0 <= rank < size:
            raise InvalidOption(f"Process {rank} of {size}: processes are numbered from 0")
        self.rank, self.size = rank, size
        self.limit = _seconds(LIMIT, 1800.0)
        silence = _seconds(SILENCE, 30.0)
        self._failed = ""
        # A thread of gloo that gives back the last reference to an array of Python's while the interpreter ends is
        # ended by it, and with it the process (SIGABRT): what was sent last is kept here, and for good when it ends.
        self._recent: deque[Any] = deque(maxlen=16)
        self._distributed: Any = distributed_c10d
        self._store = self._meet(rank, size)
        address = _own_address()
        self._hub = Hub(address, size, silence) if rank == 0 else None
        if self._hub is not None:
            self._store.set("hub", pickle.dumps((address, self._hub.port)))
        self._wait_for_all()
        self._watch = Watch(pickle.loads(self._store.get("hub")), rank, silence)
        self._group = self._connect(address)
        os.register_at_fork(after_in_child=self._forked)
        atexit.register(self._leave)
        multiprocessing.util.Finalize(None, self._leave, exitpriority=10)  # its processes do not come to the former

    # what is sent ----------------------------------------------------------------------------------------------

    def agree(self, doing: str) -> None:
        """Make sure that all processes are about to do this.

        Args:
            doing: what, in at most 256 bytes; equal texts agree.

        Raises:
            LostProcess: another is about to do something else.
        """
        text = doing.encode()[:_TEXT]
        own = np.zeros(_TEXT, np.uint8)
        own[: len(text)] = np.frombuffer(text, np.uint8)
        said_by = self.gather(own, doing)
        if (said_by != said_by[0]).any():
            texts = [bytes(row).rstrip(b"\0").decode(errors="replace") for row in said_by]
            each = "; ".join(f"rank {rank}: {text}" for rank, text in enumerate(texts))
            raise LostProcess(
                f"The processes do different things. {each}",
                remedy="All of them must make the same calls of trained models in the same order, with the same "
                "optimizer's numbers.",
            )

    def sum(self, array: np.ndarray, doing: str) -> None:
        """Add up a contiguous array over all processes, in place."""
        import torch

        options = self._timed(self._distributed.AllreduceOptions())
        tensor = torch.from_numpy(array)
        self._do(doing, lambda: self._group.allreduce([tensor], options))

    def gather(self, array: np.ndarray, doing: str) -> np.ndarray:
        """The array of every process, ``[processes, *shape]``, in the order of their numbers."""
        import torch

        options = self._timed(self._distributed.AllgatherOptions())
        sent = torch.from_numpy(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        got = np.empty((self.size, sent.numel()), np.uint8)
        tensors = list(torch.from_numpy(got))
        self._do(doing, lambda: self._group.allgather([tensors], [sent], options))
        return got.view(array.dtype).reshape(self.size, *array.shape)

    def share(self, array: np.ndarray, doing: str) -> None:
        """Give a contiguous array, of any dtype, the value that it has in process 0."""
        import torch

        options = self._timed(self._distributed.BroadcastOptions())
        options.rootRank = 0
        tensor = torch.from_numpy(array.reshape(-1).view(np.uint8))
        if tensor.numel():
            self._do(doing, lambda: self._group.broadcast([tensor], options))

    def share_object(self, value: Any, doing: str) -> Any:
        """What process 0 gives, on all of them; it must be possible to pickle it."""
        data = np.frombuffer(pickle.dumps(value) if self.rank == 0 else b"", np.uint8)
        count = np.array([len(data)], np.int64)
        self.share(count, doing)
        given = np.empty(int(count[0]), np.uint8)
        if self.rank == 0:
            given[:] = data
        self.share(given, doing)
        return value if self.rank == 0 else pickle.loads(given.tobytes())

    def _timed(self, options: Any) -> Any:
        """The options with a limit that lies behind ours, whose error says more."""
        options.timeout = timedelta(seconds=self.limit + 60)
        return options

    # waiting and failing ---------------------------------------------------------------------------------------

    def _do(self, doing: str, start: Callable[[], Any]) -> None:
        if self._failed:
            raise LostProcess(self._failed)
        watch = self._watch
        watch.count, watch.doing = watch.count + 1, doing
        work, begun = None, time.monotonic()
        try:
            work = start()
            self._recent.append(work)
            while not self._ended(work):
                if (fault := watch.fault()) is not None:
                    self._fail(fault, doing, work)
                if time.monotonic() - begun > self.limit:
                    self._late(doing, work)
        except RuntimeError as error:
            self._broken(error, doing, work)
        except BaseException:  # Ctrl-C: what was under way cannot be taken up again
            self.stop(f"was interrupted while it waited for all in: {doing}")
            _keep(work)
            raise
        watch.doing = ""

    def stop(self, why: str) -> None:
        """Take no further part, and let the others know: they would wait for what this process will not send.

        Args:
            why: continues the sentence that begins with the rank; a failure before this one stays.
        """
        if not self._failed:
            self._failed = f"Rank {self.rank} {why}"
            self._watch.stopped(why)

    @staticmethod
    def _ended(work: Any) -> bool:
        """Whether the work is done; waits for it a little. RuntimeError when it failed."""
        try:
            work.wait(_SLICE)
        except RuntimeError:
            if not work.is_completed():
                return False
            work.wait(_SLICE)
        return True

    def _broken(self, error: RuntimeError, doing: str, work: Any) -> None:
        until = time.monotonic() + _VERDICT
        while time.monotonic() < until:
            if (fault := self._watch.fault()) is not None:
                self._fail(fault, doing, work)
            time.sleep(0.01)
        self._fail(None, f"{doing} ({str(error).splitlines()[0]})", work)

    def _late(self, doing: str, work: Any) -> None:
        late = self._watch.behind()
        if not late:
            self._fail(None, f"{doing} (waited for {self.limit:g} s, see {LIMIT})", work)
        what = "; ".join(f"rank {fault.rank} {fault.why}" for fault in late[1:])
        first = Fault(late[0].rank, f"{late[0].why}, after {self.limit:g} s ({LIMIT}){'; ' if what else ''}{what}")
        self._fail(first, doing, work)

    def _fail(self, fault: Fault | None, doing: str, work: Any) -> None:
        who = "A connection to another process broke" if fault is None else f"Rank {fault.rank} {fault.why}"
        self._failed = f"{who}, while rank {self.rank} of {self.size} waited for all in: {doing}"
        _keep(work)
        raise LostProcess(
            self._failed, remedy="Look at what that process said last, then start all of them again."
        ) from None

    def _leave(self) -> None:
        _keep(self._group)
        _keep(self._recent)
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        self._watch.leave(said(error)[:500] if error is not None else "")

    def _forked(self) -> None:
        """A child, say a data loader's worker, must not keep the connections open that tell that this one lives."""
        atexit.unregister(self._leave)
        for part in (self._watch, self._hub):
            for each in part.descriptors() if part is not None else ():
                with contextlib.suppress(OSError):
                    each.close()

    # meeting ---------------------------------------------------------------------------------------------------

    def _meet(self, rank: int, size: int) -> Any:
        """A store that all processes have in common."""
        from torch._C._distributed_c10d import TCPStore

        distributed = self._distributed
        generation = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        if distributed.is_initialized():
            made = (distributed.get_rank(), distributed.get_world_size())
            if made != (rank, size):
                raise InvalidOption(
                    f"torch.distributed calls this process {made[0]} of {made[1]}, the options {rank} of {size}",
                    remedy="options.Distributed.configureProcessId(torch.distributed.get_rank(), "
                    "torch.distributed.get_world_size()) makes them equal.",
                )
            store = distributed._get_default_store()
            return distributed.PrefixStore(f"abele/{generation}", store)
        missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
        if missing:
            raise InvalidOption(
                f"Process {rank} of {size} does not know where process 0 is: {' and '.join(missing)} is not set",
                remedy="Start the program with poprun or torchrun, or set them to the host of process 0 and a free "
                "port there.",
            )
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        limit = timedelta(seconds=min(self.limit, 300.0))
        try:
            store = TCPStore(
                os.environ["MASTER_ADDR"],
                int(os.environ["MASTER_PORT"]),
                size,
                rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True",  # else torchrun has made it
                timeout=limit,
                wait_for_workers=False,
                multi_tenant=True,  # a program that makes a group of its own at the same port shares it
            )
        except Exception as error:
            what = "cannot listen there" if rank == 0 else "cannot reach it"
            raise LostProcess(
                f"Process 0 of {size} is to be at {where}, and rank {rank} {what}: {said(error)}",
                remedy="Start all processes, with the same MASTER_ADDR and MASTER_PORT.",
            ) from error
        return distributed.PrefixStore(f"abele/{generation}", store)

    def _wait_for_all(self) -> None:
        self._store.set(f"here/{self.rank}", "1")
        limit = min(self.limit, 300.0)
        until = time.monotonic() + limit
        missing = list(range(self.size))
        while True:
            missing = [rank for rank in missing if not self._store.check([f"here/{rank}"])]
            if not missing:
                return
            if time.monotonic() > until:
                raise LostProcess(
                    f"Rank {', '.join(map(str, missing))} of {self.size} has not come within {limit:g} s",
                    remedy="Start all processes; look at what the missing ones said.",
                )
            time.sleep(0.02)

    def _connect(self, address: str) -> Any:
        gloo: Any = self._distributed.ProcessGroupGloo
        options = gloo._Options()
        options._timeout = timedelta(seconds=120)
        options._threads = 2
        name = os.environ.get("GLOO_SOCKET_IFNAME")
        device = gloo.create_device(interface=name) if name else gloo.create_device(hostname=address)
        options._devices = [device]
        try:
            return gloo(self._distributed.PrefixStore("gloo", self._store), self.rank, self.size, options)
        except RuntimeError as error:
            until = time.monotonic() + _VERDICT
            while (fault := self._watch.fault()) is None and time.monotonic() < until:
                time.sleep(0.01)
            who = f"Rank {fault.rank} {fault.why}" if fault is not None else said(error)
            raise LostProcess(
                f"The {self.size} processes could not connect to each other: {who}",
                remedy="GLOO_SOCKET_IFNAME names the network interface to use.",
            ) from error


def _keep(thing: Any) -> None:
    """Never take it apart: what waits for a process that hangs would be waited for when this process ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _own_address() -> str:
    """This host's address as the others reach it: that of the interface through which process 0 is reached."""
    name = os.environ.get("GLOO_SOCKET_IFNAME")
    if name:
        return _address_of(name)
    master = os.environ.get("MASTER_ADDR", "127.0.0.1")
    family, _, _, _, address = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)  # sends nothing: the system chooses the interface
        return probe.getsockname()[0]


def _address_of(interface: str) -> str:
    """The IPv4 address of a network interface."""
    import fcntl
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        asked = struct.pack("256s", interface.encode()[:15])
        try:
            return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), 0x8915, asked)[20:24])  # SIOCGIFADDR
        except OSError as error:
            raise InvalidOption(
                f"GLOO_SOCKET_IFNAME={interface!r} names no network interface with an address ({error.strerror})"
            ) from error


def _seconds(name: str, usual: float) -> float:
    given = os.environ.get(name)
    if not given:
        return usual
    try:
        value = float(given)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise InvalidOption(f"{name}={given!r} must be a number of seconds above 0")
    return value

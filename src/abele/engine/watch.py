"""Who of several processes is still alive: a connection of each to a hub in process 0, with a beat once in a while.

The system closes the connection of a process that dies, so that the others know at once; one that is stopped, or whose
host is cut off, falls silent. Beats say what a process is doing, and a process that leaves says why: so the others can
name the one at fault, and not one that failed after it.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from abele.user import is_own


@dataclass
class Fault:
    """What happened to a process: ``why`` continues the sentence that begins with its rank."""

    rank: int
    why: str


@dataclass
class _Peer:
    """What the hub knows of one process."""

    socket: socket.socket
    rank: int = -1
    name: str = ""
    heard: float = field(default_factory=time.monotonic)
    rest: bytes = b""
    left: bool = False
    lost: bool = False


class Hub:
    """The hub, a thread in process 0.

    Args:
        size: how many processes there are.
        silence: seconds without a beat after which a process counts as hung.
    """

    def __init__(self, host: str, size: int, silence: float) -> None:
        self._size, self._silence = size, silence
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._server = socket.create_server((host, 0), family=family)
        self.port: int = self._server.getsockname()[1]
        self._peers: dict[socket.socket, _Peer] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)
        self._doing: dict[int, dict[str, Any]] = {}
        self._told: list[dict[str, Any]] = []
        threading.Thread(target=self._run, name="abele hub", daemon=True).start()

    def descriptors(self) -> Iterator[socket.socket]:
        """All sockets, for a fork to close."""
        yield self._server
        yield from list(self._peers)

    def _run(self) -> None:
        pause = min(1.0, self._silence / 10)
        looked = sent = time.monotonic()
        while True:
            for key, _ in self._selector.select(pause):
                if key.fileobj is self._server:
                    self._accept()
                else:
                    self._read(self._peers[key.fileobj])  # type: ignore[index]
            now = time.monotonic()
            if now - looked > self._silence / 2:  # this process itself stood still: what it did not hear says nothing
                for peer in self._peers.values():
                    peer.heard = now
            looked = now
            for peer in list(self._peers.values()):
                if now - peer.heard > self._silence and peer.rank >= 0 and not peer.lost and not peer.left:
                    peer.lost = True
                    self._tell(peer.rank, f"has given no sign of life for {self._silence:g} s{peer.name}")
            if now - sent > pause:
                sent = now
                self._send({"doing": self._doing})

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._server.accept()
            self._peers[connection] = _Peer(connection)
            self._selector.register(connection, selectors.EVENT_READ)

    def _read(self, peer: _Peer) -> None:
        try:
            data = peer.socket.recv(65536)
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(peer.socket)
            del self._peers[peer.socket]
            peer.socket.close()
            if not peer.left and not peer.lost and peer.rank >= 0:
                self._tell(peer.rank, f"has died{peer.name}")
            return
        peer.heard = time.monotonic()
        *lines, peer.rest = (peer.rest + data).split(b"\n")
        try:
            for line in lines:
                self._obey(peer, json.loads(line))
        except (ValueError, KeyError, TypeError):  # somebody else who has found the port
            if peer.rank < 0:
                peer.left = True

    def _obey(self, peer: _Peer, message: dict[str, Any]) -> None:
        if "rank" in message:
            peer.rank, peer.name = message["rank"], message["name"]
            self._send_to(peer, *self._told)
        elif "stopped" in message:
            self._tell(peer.rank, message["stopped"])
        elif "bye" in message:
            peer.left = True
            reason = message["bye"]
            self._tell(peer.rank, f"has ended with {reason}" if reason else "has ended")
        else:
            self._doing[peer.rank] = message

    def _tell(self, rank: int, why: str) -> None:
        self._told.append({"fault": [rank, why]})
        self._send(self._told[-1])

    def _send(self, message: dict[str, Any]) -> None:
        for peer in self._peers.values():
            if peer.rank >= 0 and not peer.lost:  # what nobody reads fills up, and would hold this thread
                self._send_to(peer, message)

    def _send_to(self, peer: _Peer, *messages: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            peer.socket.sendall(b"".join(json.dumps(m).encode() + b"\n" for m in messages))


class Watch:
    """One process's end: beats, and hears of faults.

    Attributes:
        count: how many times this process has waited for the others; it tells who is behind.
        doing: what it waits for, or empty.
    """

    def __init__(self, address: tuple[str, int], rank: int, silence: float) -> None:
        self.rank, self.count, self.doing = rank, 0, ""
        self._silence = silence
        self._faults: list[Fault] = []
        self._others: dict[int, dict[str, Any]] = {}
        self._heard = time.monotonic()
        self._lock = threading.Lock()
        self._closed = False
        self._main = threading.main_thread().ident
        self._socket = socket.create_connection(address, timeout=60)
        self._say({"rank": rank, "name": f" (process {os.getpid()} on {socket.gethostname()})"})
        self._socket.settimeout(silence / 10)  # before the threads: who leaves at once closes it
        threading.Thread(target=self._beat, name="abele beat", daemon=True).start()
        threading.Thread(target=self._hear, name="abele watch", daemon=True).start()

    def descriptors(self) -> Iterator[socket.socket]:
        """All sockets, for a fork to close."""
        yield self._socket

    def fault(self) -> Fault | None:
        """The first process that went wrong or left, other than this one."""
        if not self._faults and time.monotonic() - self._heard > self._silence:
            self._faults.append(Fault(0, f"has given no sign of life for {self._silence:g} s"))
        return next((f for f in self._faults if f.rank != self.rank), None)

    def behind(self) -> list[Fault]:
        """The processes that have not come to what this one waits for, and where they are."""
        late = sorted((int(r), d) for r, d in self._others.items() if d["count"] < self.count and int(r) != self.rank)
        return [Fault(rank, f"has not come to it; it is at {doing['at'] or 'an unknown line'}") for rank, doing in late]

    def stopped(self, why: str) -> None:
        """Tell the others that this process takes no further part; ``why`` continues a sentence."""
        if not self._closed:
            self._say({"stopped": why})

    def leave(self, reason: str = "") -> None:
        """Say goodbye; ``reason`` is the error that this process ends with."""
        if not self._closed:
            self._say({"bye": reason})
            self._closed = True
            self._socket.close()

    def _beat(self) -> None:
        while not self._closed:
            self._say({"count": self.count, "doing": self.doing, "at": self._line()})
            time.sleep(min(1.0, self._silence / 10))

    def _line(self) -> str:
        """The innermost line of the user's program at which the main thread is, or an empty string."""
        frame = sys._current_frames().get(self._main or 0)
        while frame is not None and not is_own(frame.f_code.co_filename):
            frame = frame.f_back
        return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"

    def _say(self, message: dict[str, Any]) -> None:
        with self._lock, contextlib.suppress(OSError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _hear(self) -> None:
        rest, last = b"", time.monotonic()
        while not self._closed:
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                data = None
            except OSError:
                data = b""
            now = time.monotonic()
            if data == b"":
                if not self._closed and not any(f.rank == 0 for f in self._faults):
                    self._faults.append(Fault(0, "has died"))
                return
            if data:
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
            if data or now - last > self._silence / 2:
                self._heard = now
            last = now

    def _take(self, message: dict[str, Any]) -> None:
        if "fault" in message:
            self._faults.append(Fault(*message["fault"]))
        else:
            self._others = message["doing"]

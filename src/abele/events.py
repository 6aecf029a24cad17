"""What a run says of itself while it goes on: lines of JSON in a file, for whoever wants to follow it.

Nothing is recorded unless a recorder is open: ``abele run --live`` opens one, and the environment variable
``ABELE_LIVE=FILE`` does for any program. The run only adds to a queue in memory; a thread writes sums of it, at most
five times a second, so that neither a slow disk nor a reader can hold the run up. What cannot be written is said once
and kept, as sums, until it can. Readers have the file and nothing else (``report/live``).

The events, one a line, each with its number ``n`` and ``t``, seconds since the run began:

- ``run``, the first line: ``schema``, ``abele`` (version), ``id`` of the run, ``pid``, ``started`` (seconds since
  1970), ``command``.
- ``program``, when one has been compiled: its number ``program`` and what ``charge/figures.py`` says of it.
- ``steps``: ``count`` runs of a ``program`` from its ``first`` one on (from 0): ``wall`` and ``gap``, seconds of them
  all together in the runs and between each and the run before it, ``wall_max``, ``samples``; of ``losses`` runs whose
  loss is a number ``loss_sum``, ``loss_min`` and ``loss_max``; and in ``loss_bad`` how many are infinite or none.
- ``message``: ``level`` and ``text``.
- ``end``: ``status`` (``ended``, ``failed``, ``interrupted``) and ``error``. ``report`` comes after it when a report
  ``profile.pop`` has been written beside the file.

A file that grows beyond ``LIMIT`` is written anew with neighbouring ``steps`` put together, so that it stays bounded
however long the run is, and no sum changes.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import stat
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from abele.errors import InvalidOption

try:
    import fcntl
except ImportError:  # not a Unix system: nothing tells then that another process writes the same file
    fcntl = None

SCHEMA = 1
VARIABLE = "ABELE_LIVE"
"""Names the file that any program records to."""
PERIOD = 0.2
"""Seconds between two writings."""
SHARE = 0.0025
"""Share of the process's CPU time that writing may take; where it is more, there are fewer writings."""
SLOWEST = 1.0
"""Seconds between two writings even so."""
LIMIT = 4 << 20
"""Bytes of the file from which on it is folded."""
MESSAGES = 1000
"""Messages that a folded file keeps."""
WAITING = 100
"""Messages between two writings; of more only the number is told."""
LONGEST = 2000
"""Characters of a message."""
HUGE = 1e300
"""A loss beyond it counts as infinite, so that sums stay numbers."""

UNSEEN = 100_000
"""Runs between two looks of the thread at most, should a disk hang; of more the earliest are lost."""

Event = dict[str, Any]

_as_text = json.JSONEncoder(default=str).encode


class Recorder:
    """Writes the events of one run to a file, in the place of an earlier run's.

    Raises:
        InvalidOption: the file cannot be written, is something else than events, or another process records to it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._queue: list[Event] = []
        self._ran: deque[tuple[int, int, float, float, float | None]] = deque(maxlen=UNSEEN)
        self._samples: list[int] = []
        self._steps: dict[int, Event] = {}
        self._number = self._messages = self._left_out = self._size = 0
        self._next_fold, self._failing = LIMIT, False
        self._before = self._began = time.perf_counter()
        from abele import __version__

        about = {"event": "run", "schema": SCHEMA, "abele": __version__, "id": uuid.uuid4().hex[:12]}
        about |= {"pid": os.getpid(), "started": time.time(), "command": _command()[:LONGEST]}
        self._file = _fresh(self.path, self._encoded([about | {"t": 0.0}]))
        self._size = os.fstat(self._file).st_size
        self._going = threading.Lock()
        self._going.acquire()
        self._thread = threading.Thread(target=self._go_on, name="abele-live", daemon=True)
        self._thread.start()

    @property
    def thread(self) -> int:
        """The thread that writes, as ``time.pthread_getcpuclockid`` wants it."""
        assert self._thread.ident is not None
        return self._thread.ident

    # what happens ------------------------------------------------------------------------------------------------

    def program(self, figures: Mapping[str, Any]) -> int:
        """A program has been compiled; returns its number. ``figures``: see ``charge/figures.py``."""
        with self._lock:
            number = len(self._samples)
            self._samples.append(figures["samples"])
            self._queue.append({"event": "program", "t": self._now(), "program": number, **figures})
        return number

    def step(self, program: int, number: int, started: float, ended: float, loss: Any = None) -> None:
        """One run of a program.

        Args:
            program: its number; ``number`` of the run, from 0.
            started, ended: readings of ``time.perf_counter``.
            loss: an array of the losses of its micro-batches and replicas, where it has them; their mean is kept.
        """
        if loss is not None:
            loss = loss.item() if loss.size == 1 else float(loss.mean(dtype="float64"))
        self._ran.append((program, number, started, ended, loss))  # and no more: the program is waiting

    def message(self, text: str, level: str = "info") -> None:
        """A line for the log; a very long one is cut, and of very many in a moment only the number is kept."""
        with self._lock:
            if self._messages >= WAITING:
                self._left_out += 1
                return
            self._messages += 1
            self._queue.append({"event": "message", "t": self._now(), "level": level, "text": str(text)[:LONGEST]})

    def end(self, status: str = "ended", error: str = "") -> None:
        """The program is over."""
        with self._lock:
            self._queue.append({"event": "end", "t": self._now(), "status": status, "error": error[:LONGEST]})

    def report(self) -> None:
        """``profile.pop`` has been written beside the file."""
        with self._lock:
            self._queue.append({"event": "report", "t": self._now()})

    def close(self) -> None:
        """Write what is left. A disk that hangs is waited for two seconds."""
        self._going.release()
        self._thread.join(2)
        self._ran = deque(maxlen=0)

    def _now(self) -> float:
        return time.perf_counter() - self._began

    # writing, in the thread --------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        over, written = False, 0.0
        while not over:
            over = self._going.acquire(timeout=PERIOD)
            now = time.monotonic()
            dear = time.thread_time() > SHARE * time.process_time()  # as where many programs share the processors
            if dear and now - written < SLOWEST and not over:
                continue
            written = now
            try:
                self._add_up()
                self._write()
                if self._size > self._next_fold:
                    self._fold()
                self._failing = False
            except OSError as error:
                if not self._failing:
                    remedy = "The run goes on; what happens meanwhile is written when that is possible again."
                    _tell(f"{str(self.path)!r} cannot be written: {error.strerror or error}. {remedy}")
                self._failing = True
        os.close(self._file)

    def _add_up(self) -> None:
        """Put the runs since the last time into the sums of their programs."""
        ran, sums, before = self._ran, self._steps, self._before
        while ran:
            program, number, started, ended, loss = ran.popleft()
            wall, gap = ended - started, started - before if number else 0.0  # compiling is before the first
            before = ended
            steps = sums.get(program)
            if steps is None:
                steps = sums[program] = {"event": "steps", "t": 0.0, "program": program, "first": number, "count": 0}
                steps |= {"wall": 0.0, "gap": 0.0, "wall_max": 0.0, "samples": 0}
            steps["t"] = ended - self._began
            steps["count"] += 1
            steps["wall"] += wall
            steps["gap"] += gap
            steps["samples"] += self._samples[program]
            if wall > steps["wall_max"]:
                steps["wall_max"] = wall
            if loss is None:
                continue
            if not -HUGE < loss < HUGE:
                steps["loss_bad"] = steps.get("loss_bad", 0) + 1
            elif "losses" not in steps:
                steps.update(losses=1, loss_sum=loss, loss_min=loss, loss_max=loss)
            else:
                steps["losses"] += 1
                steps["loss_sum"] += loss
                if loss < steps["loss_min"]:
                    steps["loss_min"] = loss
                elif loss > steps["loss_max"]:
                    steps["loss_max"] = loss
        self._before = before

    def _write(self) -> None:
        if not self._queue and not self._steps:
            return
        with self._lock:
            queue, self._queue, self._messages = self._queue, [], 0
            left_out, self._left_out = self._left_out, 0
        if left_out:
            queue.append({"event": "message", "t": self._now(), "level": "info", "text": f"{left_out} more messages"})
        number = self._number
        data = self._encoded(sorted([*queue, *self._steps.values()], key=lambda row: row["t"]))
        try:
            _append(self._file, self._size, data)
        except OSError:
            self._number = number
            with self._lock:
                self._queue = _without_old(queue, WAITING) + self._queue
            raise
        self._size += len(data)
        self._steps = {}

    def _encoded(self, rows: Iterable[Event]) -> bytes:
        lines = []
        for row in rows:
            lines.append(_as_text({"n": self._number, **row}))
            self._number += 1
        return "".join(line + "\n" for line in lines).encode()

    def _fold(self) -> None:
        """Write the file anew, at half its bound or as small as it gets."""
        rows = [json.loads(line) for line in self.path.read_bytes().splitlines()]
        data = b""
        for _ in range(8):
            rows = folded(rows)
            data = "".join(_as_text(row) + "\n" for row in rows).encode()
            if len(data) <= LIMIT // 2:
                break
        before, self._file = self._file, _renewed(self.path, data)
        os.close(before)
        self._size = len(data)
        self._next_fold = max(LIMIT, 2 * self._size)


def merged(a: Event, b: Event) -> Event:
    """Two ``steps`` of one program as one, at the place of the later."""
    both = b | {"first": a["first"]}
    for name in ("count", "wall", "gap", "samples", "losses", "loss_sum", "loss_bad"):
        if name in a or name in b:
            both[name] = a.get(name, 0) + b.get(name, 0)
    for name, of in (("wall_max", max), ("loss_min", min), ("loss_max", max)):
        given = [row[name] for row in (a, b) if name in row]
        if given:
            both[name] = of(given)
    return both


def folded(rows: Iterable[Event]) -> list[Event]:
    """Events with every two neighbouring ``steps`` of a program as one, and the last ``MESSAGES`` messages."""
    kept: list[Event | None] = []
    alone: dict[int, int] = {}
    for row in rows:
        if row["event"] == "steps":
            place = alone.pop(row["program"], None)
            if place is None:
                alone[row["program"]] = len(kept)
            else:
                earlier, kept[place] = kept[place], None
                assert earlier is not None
                row = merged(earlier, row)
        kept.append(row)
    return _without_old([row for row in kept if row is not None], MESSAGES)


def _without_old(rows: list[Event], messages: int) -> list[Event]:
    """Events with the last ``messages`` of their messages."""
    surplus = sum(row["event"] == "message" for row in rows) - messages
    kept = []
    for row in rows:
        if row["event"] == "message" and surplus > 0:
            surplus -= 1
        else:
            kept.append(row)
    return kept


# files -----------------------------------------------------------------------------------------------------------


def _append(file: int, size: int, data: bytes) -> None:
    """Write all of it or nothing: half a line is cut off again."""
    done = 0
    try:
        while done < len(data):
            done += os.write(file, data[done:])
    except OSError:
        if done:
            os.ftruncate(file, size)
        raise


def _renewed(path: Path, data: bytes) -> int:
    """A new file in the place of the one at ``path``, locked as long as it is open."""
    fresh = path.with_name(path.name + ".new")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _append(file, 0, data)
        os.replace(fresh, path)
    except BaseException:
        os.close(file)
        with contextlib.suppress(OSError):
            os.unlink(fresh)
        raise
    return file


def _fresh(path: Path, data: bytes) -> int:
    """As ``_renewed``, at the beginning of a run: only in the place of nothing or of another run's events."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        check_events(path)
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return _renewed(path, data)
    except BlockingIOError as error:
        remedy = "Give each a file of its own."
        raise InvalidOption(f"Another process records to {str(path)!r}", remedy=remedy) from error
    except OSError as error:
        why = error.strerror or error
        raise InvalidOption(f"{str(path)!r} cannot be written: {why}", remedy="Choose another place.") from error


def check_events(path: Path) -> None:
    """That there is nothing at ``path`` yet, or the events of a run.

    Raises:
        InvalidOption: there is something else, or it cannot be looked at.
    """
    other = "Give a new file, or one that an earlier run made."
    try:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
                raise InvalidOption(f"{str(path)!r} is no file that events can be in", remedy=other)
            with path.open("rb") as file:
                start = file.read(64)
            if start and b'"event":"run"' not in start.replace(b" ", b""):
                raise InvalidOption(f"{str(path)!r} is there and holds something else than events", remedy=other)
    except OSError as error:
        raise InvalidOption(f"{str(path)!r} cannot be read: {error.strerror or error}", remedy=other) from error


def running(path: Path) -> bool:
    """Whether a process records to this file now; where that cannot be told, whether the file is there."""
    try:
        with path.open("rb") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return False
        return True
    except BlockingIOError:
        return True
    except OSError:
        return False


# the one that is open --------------------------------------------------------------------------------------------

_open: Recorder | None = None
_asked = False


def current() -> Recorder | None:
    """The recorder that is open; the first time one is asked for it is opened if ``$ABELE_LIVE`` names a file."""
    return _open if _asked else _from_environment()


def message(text: str, level: str = "info") -> None:
    """Say something in the log of whoever follows this run; without a recorder nothing happens."""
    recorder = current()
    if recorder is not None:
        recorder.message(text, level)


@contextlib.contextmanager
def opened(recorder: Recorder) -> Iterator[Recorder]:
    """Make ``recorder`` the current one, and close it."""
    global _open, _asked
    before = _open, _asked
    _open, _asked = recorder, True
    try:
        yield recorder
    finally:
        _open, _asked = before
        recorder.close()


def _from_environment() -> Recorder | None:
    global _open, _asked
    _asked = True
    path = os.environ.get(VARIABLE)
    if path and os.environ.get("RANK", "0") == "0":  # of several processes the first speaks for all
        try:
            _open = Recorder(path)
            atexit.register(_end, _open)
        except InvalidOption as error:
            _tell(f"{VARIABLE}: {error} Nothing is recorded.")
    return _open


def _end(recorder: Recorder) -> None:
    """The end of a program that no command watches: what stopped it is what Python has printed last."""
    error = getattr(sys, "last_value", None)
    if error is None:
        recorder.end()
    else:
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        recorder.end(status, f"{type(error).__name__}: {error}")
    recorder.close()


def _forget() -> None:
    """In a fork: the parent goes on recording."""
    global _open, _asked
    if _open is not None:
        _open._ran = deque(maxlen=0)
        with contextlib.suppress(OSError):
            os.close(_open._file)
    _open, _asked = None, True


def _command() -> str:
    program = Path(sys.argv[0] if sys.argv else "")
    name = program.parent.name if program.name == "__main__.py" else program.name
    return " ".join([name, *sys.argv[1:]])


def _tell(text: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"abele: {text}\n")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

"""Processes that map a function over items: results, deaths, and ends by Ctrl-C, a closed generator, a dead parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from abele.workers import GROWTH, Workers, _most_bytes


def no_death(item: int, status: int | None) -> str:
    raise AssertionError(f"{item} died with {status}")


@pytest.mark.parametrize("jobs", [0, 1, 2, 5])
def test_every_item_once(jobs: int) -> None:
    with Workers(str, jobs, no_death) as workers:
        for count in (0, 1, 7):
            assert dict(workers.run(range(count))) == {i: str(i) for i in range(count)}
    assert multiprocessing.active_children() == []


def test_a_worker_that_has_grown_is_replaced(monkeypatch) -> None:
    kept: list[int] = []  # each worker has its own, and begins with none

    def grow(item: int) -> tuple[int, int]:
        kept.append(item)
        return item, os.getpid()

    monkeypatch.setattr("abele.workers._most_bytes", lambda: len(kept) * (GROWTH // 2))
    with Workers(grow, 2, no_death) as workers:
        found = dict(workers.run(range(12)))
        assert len(multiprocessing.active_children()) == 2
    assert {place: item for place, (item, _) in found.items()} == {i: i for i in range(12)}
    tried = Counter(pid for _, pid in found.values())
    assert max(tried.values()) == 3 and len(tried) >= 4, "the third is more than it may keep"
    assert multiprocessing.active_children() == []


def test_a_process_knows_what_it_holds() -> None:
    assert 1 << 20 < _most_bytes() < 1 << 40


def test_what_is_raised_comes_back() -> None:
    def fail(item: int) -> str:
        raise ValueError(f"no {item}")

    with pytest.raises(ValueError, match="no 3"), Workers(fail, 2, no_death) as workers:
        list(workers.run([3]))
    assert multiprocessing.active_children() == []


def test_a_generator_that_is_left_stops_what_runs() -> None:
    def slow(item: int) -> str:
        time.sleep(60 * item)
        return str(item)

    started = time.monotonic()
    with Workers(slow, 2, no_death) as workers:
        assert next(workers.run([0, 1, 1])) == (0, "0")
    assert time.monotonic() - started < 30 and multiprocessing.active_children() == []


MAPPING = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell hands it down ignored
from pathlib import Path
from abele.workers import Workers

def attempt(item):
    Path(f"worker-{os.getpid()}").touch()
    time.sleep(float(sys.argv[1]))

try:
    with Workers(attempt, 2, print) as workers:
        list(workers.run(range(9)))
except KeyboardInterrupt:
    sys.exit(130)
"""


def running(folder: Path, seconds: float) -> tuple[subprocess.Popen, list[int]]:
    """A mapping in a session of its own, whose two workers are at work, and their ids."""
    whole = subprocess.Popen(
        [sys.executable, "-c", MAPPING, str(seconds)], cwd=folder, stderr=-1, text=True, start_new_session=True
    )
    while len(found := list(folder.glob("worker-*"))) < 2:
        assert whole.poll() is None, whole.stderr.read() if whole.stderr else ""
        time.sleep(0.02)
    return whole, [int(path.name.partition("-")[2]) for path in found]


def alive(pid: int) -> bool:
    """Whether a process still runs; one that ended and that nobody has asked about does not."""
    status = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    return status != "" and not status.startswith("Z")


def ended(pids: list[int]) -> bool:
    deadline = time.monotonic() + 30
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(alive, pids))


@pytest.mark.parametrize("whole_group", [True, False])
def test_ctrl_c_ends_all_at_once_and_quietly(tmp_path: Path, whole_group: bool) -> None:
    mapping, workers = running(tmp_path, 60)
    (os.killpg if whole_group else os.kill)(mapping.pid, signal.SIGINT)
    _, err = mapping.communicate(timeout=30)
    assert mapping.returncode == 130 and err == ""
    assert ended(workers)


def test_workers_end_quietly_after_their_parent(tmp_path: Path) -> None:
    mapping, workers = running(tmp_path, 0.5)
    mapping.kill()
    _, err = mapping.communicate(timeout=30)
    assert err == "" and ended(workers)

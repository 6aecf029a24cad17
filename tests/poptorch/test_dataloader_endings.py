"""However loading ahead ends, nothing is left: no process, shared memory or open file; and nobody waits for ever."""

from __future__ import annotations

import multiprocessing.resource_tracker
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tests import together

import poptorch
from poptorch import DataLoaderMode, SharingStrategy

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="processes are looked up in /proc")

SHARED = Path("/dev/shm")


class Slow(torch.utils.data.Dataset):
    """Rows of 1,000 numbers; the element ``stuck`` never comes, ``broken`` raises."""

    def __init__(self, length: int, stuck: int = -1, broken: int = -1) -> None:
        self.length, self.stuck, self.broken = length, stuck, broken

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.stuck:
            time.sleep(600)
        if index == self.broken:
            raise KeyError("no such row")
        return torch.full((1000,), float(index))


def loader(dataset: Slow, strategy: SharingStrategy = SharingStrategy.Fork, **more) -> poptorch.DataLoader:
    asynchronous = {"sharing_strategy": strategy, "early_preload": True}
    return poptorch.DataLoader(
        poptorch.Options(), dataset, batch_size=2, mode=DataLoaderMode.Async, async_options=asynchronous, **more
    )


def descendants(pid: int) -> set[int]:
    """The processes that a process has started, and those they have."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            parents[int(folder.name)] = int(parent)
    found, new = set(), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return found


def wait_until(holds, seconds: float = 15.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it does not become so"
        time.sleep(0.02)


def gone(pids: set[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text() for pid in pids)


def workers_of(pids: list[int]) -> set[int]:
    """These processes and, once they have started them, their two workers each."""
    wait_until(lambda: all(len(descendants(pid)) == 2 for pid in pids))
    return set(pids).union(*map(descendants, pids))


def held() -> tuple[set[int], set[Path], int]:
    """Processes of this one, entries of shared memory, and the number of open files."""
    return descendants(os.getpid()), set(SHARED.glob("torch_*")), len(os.listdir("/proc/self/fd"))


@pytest.fixture
def nothing_is_left():
    """That a test leaves no process, no shared memory and no open file."""
    loader(Slow(2)).terminate()
    processes, shared, files = held()
    yield
    wait_until(lambda: held()[0] <= processes)
    wait_until(lambda: held()[1] <= shared)
    assert held()[2] <= files


@pytest.mark.parametrize("strategy", [SharingStrategy.Fork, SharingStrategy.ForkServer, SharingStrategy.FileSystem])
def test_loaders_come_and_go_without_a_leak(strategy: SharingStrategy) -> None:
    def use(times: int) -> None:
        for _ in range(times):
            made = loader(Slow(8), strategy, num_workers=1)
            assert len(list(made)) == 4
            kept = next(iter(made))
            made.terminate()
            assert kept.shape == (2, 1000)

    multiprocessing.resource_tracker.ensure_running()  # it and the fork server stay
    if strategy is SharingStrategy.ForkServer:
        use(1)
    processes, shared, files = held()
    use(5 if strategy is SharingStrategy.Fork else 1)
    wait_until(lambda: held()[0] <= processes)
    wait_until(lambda: held()[1] <= shared)
    # torch has a socket to the keeper of each worker's shared files, and closes it when the program ends.
    assert held()[2] <= files + (strategy is SharingStrategy.FileSystem)


def test_a_worker_that_is_killed_leaves_nothing(nothing_is_left: None) -> None:
    made = loader(Slow(1000), num_workers=2)
    iterator = iter(made)
    next(iterator)
    worker = made._accessor._worker._process.pid
    own = workers_of([worker])
    os.kill(worker, signal.SIGKILL)
    with pytest.raises(poptorch.Error, match=r"exit code -9 \(SIGKILL; the system may have run out of memory\)"):
        for _ in range(1000):
            next(iterator)
    wait_until(lambda: gone(own), 2.0)
    with pytest.raises(poptorch.Error, match="terminated"):
        next(iterator)


def test_a_worker_of_the_worker_that_is_killed_is_named(nothing_is_left: None, capfd) -> None:
    made = loader(Slow(1000), num_workers=2)
    iterator = iter(made)
    next(iterator)
    worker = made._accessor._worker._process.pid
    victim = min(workers_of([worker]) - {worker})
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(poptorch.Error, match=rf"DataLoader worker \(pid(\(s\))? {victim}\)"):
        for _ in range(1000):
            next(iterator)


def test_a_data_set_that_raises_in_a_worker_of_the_worker_leaves_nothing(nothing_is_left: None, capfd) -> None:
    made = loader(Slow(100, broken=30), num_workers=2)
    with pytest.raises(poptorch.Error, match="KeyError: 'no such row'"):
        list(made)


def test_a_data_set_that_is_stuck_does_not_hold_up_the_end(nothing_is_left: None, monkeypatch) -> None:
    monkeypatch.setattr("poptorch._async_reader.PATIENCE", 0.2)
    made = loader(Slow(1000, stuck=20), num_workers=2)
    next(iter(made))
    worker = made._accessor._worker._process.pid
    own = workers_of([worker])
    made.terminate()
    wait_until(lambda: gone(own), 2.0)


PROGRAM = """
import signal, time
from test_dataloader_endings import Slow, loader
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's job in the background ignores
made = [loader(Slow(10_000, stuck=stuck), num_workers=2) for stuck in (-1, 20)]
print(*(each._accessor._worker._process.pid for each in made), flush=True)
while True:
    for _ in made[0]:
        time.sleep(0.001)
"""


def test_a_program_that_is_interrupted_leaves_nothing_of_a_loader_that_flows_and_of_one_that_is_stuck() -> None:
    shared = set(SHARED.glob("torch_*"))
    folders = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": folders},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert program.stdout is not None
    try:
        own = workers_of([int(pid) for pid in program.stdout.readline().split()])
        os.killpg(program.pid, signal.SIGINT)
        _, error = program.communicate(timeout=60)
    finally:
        program.kill()
    assert program.returncode == -signal.SIGINT
    assert error.count("Traceback") == 1 and error.strip().endswith("KeyboardInterrupt")
    wait_until(lambda: gone(own))
    wait_until(lambda: set(SHARED.glob("torch_*")) <= shared)


@together.needs_fork
def test_a_program_that_is_killed_leaves_nothing() -> None:
    def work(rank: int, size: int) -> None:
        made = loader(Slow(10_000), num_workers=2)
        print(made._accessor._worker._process.pid, flush=True)
        while True:
            for _ in made:
                time.sleep(0.001)

    shared = set(SHARED.glob("torch_*"))
    with together.started(work, 1) as (program,):
        program.says("\n")
        own = workers_of([int(program.out)])
        os.kill(program.pid, signal.SIGKILL)
        assert program.wait().status == -signal.SIGKILL
    wait_until(lambda: gone(own))
    wait_until(lambda: set(SHARED.glob("torch_*")) <= shared)

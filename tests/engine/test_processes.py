"""Replicas in several processes: the numbers of one process, and errors that name who went wrong."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from abele.engine import Engine
from abele.engine.processes import LIMIT, SILENCE, Processes, join
from abele.engine.watch import Fault, Hub, Watch
from abele.errors import AbeleError, InvalidOption, LostProcess
from abele.ir import Builder, Port
from abele.ir.types import f16, f32
from tests import together
from tests.engine.support import load, schedule_of, store

pytestmark = together.needs_fork

REPLICAS = 4
CASES = {
    "all_reduce": {"reduction": "mean"},
    "all_reduce of some": {"reduction": "sum", "group": 2, "stride": 2},
    "all_reduce of neighbours": {"reduction": "sum", "group": 2},
    "reduce_scatter": {"reduction": "mean", "group": REPLICAS},
    "reduce_scatter of some": {"reduction": "sum", "group": 2, "stride": 2},
    "all_gather": {"group": REPLICAS, "shape": (REPLICAS, 12)},
    "all_to_all": {"group": REPLICAS},
    "replica_shard": {"group": REPLICAS},
}


def engine(rank: int, size: int) -> Engine:
    """All collectives on one stream, all-reduces in a row and of half, and a state that sums up over runs."""
    b = Builder("all")
    state = b.input(f32(3), "state", "state")
    x, half = load(b, "x", f32(4, 3)), load(b, "half", f16(5))
    for name, attributes in CASES.items():
        operand = b.reshape(x, shape=(12,)) if name == "all_gather" else x
        store(b, name, getattr(b, name.split()[0])(operand, **attributes))
    store(b, "half", b.all_reduce(half, reduction="sum"))
    store(b, "in a row", b.mul(b.all_reduce(x), b.all_reduce(b.mul(x, x))))
    after = b.add(state, b.all_reduce(load(b, "more", f32(3))))
    return Engine(schedule_of(b.finish([after], [Port("state", "state")]), REPLICAS), process=(rank, size))


def streams(first: int, count: int) -> dict[str, np.ndarray]:
    """What ``count`` replicas load, from ``first``."""
    draw = np.random.default_rng(0).standard_normal
    shapes = {"x": (4, 3), "half": (5,), "more": (3,)}
    drawn = {n: draw((1, REPLICAS, *s)).astype(np.float16 if n == "half" else np.float32) for n, s in shapes.items()}
    return {name: value[:, first : first + count] for name, value in drawn.items()}


@pytest.mark.parametrize("size", [2, 4])
def test_collectives_over_processes_give_the_numbers_of_one(size: int, tmp_path: Path) -> None:
    def work(rank: int, size: int) -> None:
        own = engine(rank, size)
        own.write("state", np.full(3, float(rank + 1), np.float32))
        own.share(["state"])
        result = own.run(streams(own.first_replica, own.replicas))
        own.run(streams(own.first_replica, own.replicas))
        said = own.share_object({"rank": rank}, "a test")
        result |= {"state": own.read("state"), "of all": own.read_all("state"), "said": said}
        (tmp_path / str(rank)).write_bytes(pickle.dumps(result))

    own = engine(0, 1)
    own.write("state", np.ones(3, np.float32))
    whole = own.run(streams(0, REPLICAS))
    own.run(streams(0, REPLICAS))
    together.run(work, size)
    parts = [pickle.loads((tmp_path / str(rank)).read_bytes()) for rank in range(size)]
    for name, value in whole.items():
        joined = np.concatenate([part[name] for part in parts], axis=1)
        assert joined.dtype == value.dtype
        np.testing.assert_array_equal(joined, value, err_msg=name)
    for part in parts:
        np.testing.assert_array_equal(part["state"], own.read("state"))
        np.testing.assert_array_equal(part["of all"], own.read_all("state"))
        assert part["said"] == {"rank": 0}


def test_a_large_tensor_travels_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("abele.engine.collectives.BUFFER", 5)

    def work(rank: int, size: int) -> None:
        b = Builder("large")
        x = load(b, "x", f32(3, 4))
        store(b, "a", b.all_reduce(x))
        store(b, "b", b.all_reduce(b.mul(x, x)))
        given = np.random.default_rng(1).standard_normal((1, size, 3, 4)).astype(np.float32)
        made = Engine(schedule_of(b.finish([]), size), process=(rank, size)).run({"x": given[:, rank : rank + 1]})
        np.testing.assert_array_equal(made["a"][0, 0], given.sum(axis=1)[0])
        np.testing.assert_allclose(made["b"][0, 0], (given**2).sum(axis=1)[0], rtol=1e-6)

    together.run(work, 2)


# Processes that go wrong


def stepping(rank: int, size: int) -> None:
    """Step for ever; one process goes wrong in its third step, before it gives what the others wait for."""
    b = Builder("one")
    store(b, "sum", b.all_reduce(load(b, "x", f32(3))))
    own = Engine(schedule_of(b.finish([]), size), process=(rank, size))
    plain, done = Processes.sum, [0]

    def sum_or_fail(self: Processes, array: np.ndarray, doing: str) -> None:
        done[0] += 1
        if rank == int(os.environ["FAILS"]) and done[0] == 3:
            print("now", flush=True)
            fail(os.environ["HOW"])
        plain(self, array, doing)

    Processes.sum = sum_or_fail
    while True:
        own.run({"x": np.ones((1, 1, 3), np.float32)})


def fail(how: str) -> None:
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "raises":
        raise ValueError("no such picture")
    elif how == "leaves":
        raise SystemExit(0)
    time.sleep(600)


@pytest.mark.parametrize(
    ("how", "rank", "said"),
    [
        ("killed", 2, r"Rank 2 has died \(process \d+ on .*\), while rank [01] of 3 waited for all in: all_reduce"),
        ("killed", 0, "Rank 0 has died"),
        ("stopped", 2, "Rank 2 has given no sign of life for 3 s"),
        ("stopped", 0, "Rank 0 has given no sign of life for 3 s"),
        ("raises", 2, "Rank 2 has stopped in run 3 with ValueError: no such picture"),
        ("leaves", 1, "Rank 1 has stopped in run 3 with SystemExit: 0, while rank "),
        ("sleeps", 2, r"Rank 2 has not come to it; it is at .*test_processes.py:\d+, after 8 s"),
    ],
)
def test_a_process_that_goes_wrong_in_the_middle_of_a_step_is_named(how: str, rank: int, said: str) -> None:
    limits = {"sleeps": {LIMIT: "8"}, "stopped": {SILENCE: "3"}}.get(how, {})
    with together.started(stepping, 3, FAILS=str(rank), HOW=how, **limits) as processes:
        processes[rank].says("now")
        for process in processes[:rank] + processes[rank + 1 :]:
            process.wait(30)
            assert process.status == 1
            with pytest.raises(LostProcess, match=said):
                raise LostProcess(process.error.rpartition("LostProcess: ")[2])
            assert "Look at what that process said last" in process.error


def test_a_process_that_goes_on_after_an_error_in_a_step_holds_nobody_up() -> None:
    def work(rank: int, size: int) -> None:
        b = Builder("one")
        store(b, "sum", b.all_reduce(b.log(load(b, "x", f32(3)))))
        own = Engine(schedule_of(b.finish([]), size), process=(rank, size), exceptions=True)
        for value in (1.0, -1.0 if rank == 1 else 1.0, 1.0):
            try:
                own.run({"x": np.full((1, 1, 3), value, np.float32)})
            except AbeleError as error:
                print(type(error).__name__, str(error).partition(", while")[0])

    first, second = together.run(work, 2)
    lost = "LostProcess Rank 1 has stopped in run 2 with FloatingPointFault: The operation log makes a NaN"
    assert [line[: len(lost)] for line in first.out.splitlines()] == [lost, lost]
    assert second.out.startswith("FloatingPointFault") and lost in second.out


def test_a_stranger_at_the_port_disturbs_nobody() -> None:
    hub = Hub("127.0.0.1", 1, 30.0)
    address = ("127.0.0.1", hub.port)
    own = Watch(address, 0, 30.0)
    with socket.create_connection(address) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\n\n[1]\n")
    other = Watch(address, 1, 30.0)
    other.leave("an error")
    until = time.monotonic() + 20
    while own.fault() is None and time.monotonic() < until:
        time.sleep(0.01)
    assert own.fault() == Fault(1, "has ended with an error")
    own.leave()


def test_processes_that_do_different_things_say_so() -> None:
    def work(rank: int, size: int) -> None:
        own = engine(rank, size)
        own.write("state", np.full(3, float(rank), np.float32))
        with pytest.raises(LostProcess, match=r"different things. rank 0: run 1 of the program .*; rank 1: run 1 of"):
            own.run(streams(own.first_replica, own.replicas))
        own.share(["state"])
        own.run(streams(own.first_replica, own.replicas))
        with pytest.raises(LostProcess, match=r"rank 0: copying weights .*; rank 1: run 3 of the program"):
            own.share(["state"]) if rank == 0 else own.run(streams(own.first_replica, own.replicas))

    together.run(work, 2)


def test_where_the_first_process_is_must_be_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.setenv("MASTER_PORT", "1")
    with pytest.raises(InvalidOption, match=r"does not know where process 0 is: MASTER_ADDR is not set.* poprun or"):
        join(1, 2)
    with pytest.raises(InvalidOption, match="Process 2 of 2: processes are numbered from 0"):
        join(2, 2)


def test_a_process_that_never_comes_is_named() -> None:
    def work(rank: int, size: int) -> None:
        if rank == 0:
            join(rank, size)

    with together.started(work, 2, **{LIMIT: "2"}) as processes:
        assert "Rank 1 of 2 has not come within 2 s" in processes[0].wait(30).error


def test_a_group_that_the_program_has_made_itself_is_shared() -> None:
    def work(rank: int, size: int) -> None:
        import torch

        torch.distributed.init_process_group("gloo")
        with pytest.raises(InvalidOption, match=f"calls this process {rank} of 2, the options {1 - rank} of 2"):
            join(1 - rank, size)
        assert join(rank, size).gather(np.array([rank]), "a test").tolist() == [[0], [1]]
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()

    together.run(work, 2)

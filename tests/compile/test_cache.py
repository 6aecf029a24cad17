"""The cache of programs when several processes compile the same one at once."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from abele.compile.cache import Cache
from abele.compile.executable import compile_graph
from abele.compile.pipelines import CompileOptions
from abele.ir import Builder, Port
from abele.ir.types import f32
from abele.machine.system import find_system
from tests import together

pytestmark = together.needs_fork


def graph():
    b = Builder("small")
    x = b.input(f32(4, 8), "data", "x")
    return b.finish([b.relu(x)], [Port("anchor", "y")])


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_one_process_compiles_and_the_others_take_what_it_made(tmp_path: Path) -> None:
    def work(rank: int, size: int) -> None:
        made = compile_graph(graph(), CompileOptions(find_system("bow")), cache=Cache(tmp_path))
        print("cached" if made.cached else "compiled", made.key)

    processes = together.run(work, 4)
    said = sorted(process.out.split()[0] for process in processes)
    assert said == ["cached", "cached", "cached", "compiled"]
    assert len({process.out.split()[1] for process in processes}) == 1


def test_a_process_that_dies_while_it_compiles_lets_the_others_in(tmp_path: Path) -> None:
    def work(rank: int, size: int) -> None:
        with Cache(tmp_path).alone("key"):
            print("alone", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    with together.started(work, 3) as processes:
        for process in processes:
            assert process.wait(30).status == -signal.SIGKILL
            assert process.out == "alone\n"
    with Cache(tmp_path).alone("key"):
        assert files(tmp_path) == ["key.lock"]
    assert files(tmp_path) == [], "what the dead left is gone"


def test_locks_are_held_by_one_and_leave_no_file(tmp_path: Path) -> None:
    """Every process adds to a number in a file, which loses none as long as one is in at a time."""
    total = tmp_path / "total"
    total.write_text("0")

    def work(rank: int, size: int) -> None:
        for _ in range(50):
            with Cache(tmp_path).alone("key"):
                total.write_text(str(int(total.read_text()) + 1))

    together.run(work, 4)
    assert total.read_text() == "200"
    assert files(tmp_path) == ["total"]


def test_a_lock_goes_when_what_it_guards_is_interrupted(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Cache(tmp_path).alone("key"):
        raise KeyboardInterrupt
    assert files(tmp_path) == []


def test_a_folder_that_cannot_be_written_to_locks_nobody_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with Cache(tmp_path / "file").alone("key"):
        pass

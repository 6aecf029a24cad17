"""The cache of programs when several processes compile the same one at once."""

from __future__ import annotations

import os
import signal
from pathlib import Path

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


def test_a_folder_that_cannot_be_written_to_locks_nobody_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with Cache(tmp_path / "file").alone("key"):
        pass

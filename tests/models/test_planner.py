"""The planner `best` never loses to `poplibs`, on any model of the zoo."""

from __future__ import annotations

import pytest

from abele.charge import charged
from abele.compile.executable import compile_graph
from abele.programs import compile_options, load
from abele.zoo import ZOO


@pytest.mark.parametrize("half", [False, True], ids=["float", "half"])
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", ZOO)
def test_best_never_loses(name: str, train: bool, half: bool) -> None:
    loaded = load(name, train=train, half=half, small=True)
    found = {}
    for planner in ("best", "poplibs"):
        options = compile_options(loaded, system="gc200", planner=planner)
        found[planner] = charged(compile_graph(loaded.graph, options).schedule, options.system)
    best, poplibs = found["best"], found["poplibs"]
    assert best.memory.fits or not poplibs.memory.fits
    assert best.cycles.total < poplibs.cycles.total, "each of them has chains or epilogues that fuse"

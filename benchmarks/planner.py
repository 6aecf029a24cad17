"""The planner `best` against `poplibs`: modelled cycles of each model of the zoo in half, micro-batches of one sample.

``device`` leaves out the host's link, which no plan changes; the target is for the whole program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from benchmarks.base import Benchmark, Row, Settings, apart

GROUP = "Planner best against poplibs (modelled cycles on bow-2000)"
TARGET = 1.25
"""Least geometric mean of the ratios."""


def benchmarks() -> list[Benchmark]:
    """A row for each model and mode, and their geometric mean."""
    from abele.zoo import ZOO

    names = [(name, train) for name in ZOO for train in (False, True)]
    ratios: dict[tuple[str, bool], float] = {}
    found = [
        Benchmark(GROUP, f"{name}-{_mode(train)}", _model(name, train, ratios), quick=name in ("mlp", "bert-base"))
        for name, train in names
    ]
    return [*found, Benchmark(GROUP, "mean", lambda _: _mean(ratios))]


def _mode(train: bool) -> str:
    return "training" if train else "inference"


def _model(name: str, train: bool, ratios: dict[tuple[str, bool], float]) -> Callable[[Settings], Sequence[Row]]:
    def run(settings: Settings) -> Sequence[Row]:
        best, poplibs = (apart(cycles, name, train, planner) for planner in ("best", "poplibs"))
        ratio = ratios[name, train] = poplibs[0] / best[0]
        return [
            {
                "model": name,
                "mode": _mode(train),
                "poplibs, cycles": poplibs[0],
                "best, cycles": best[0],
                "ratio": ratio,
                "device": poplibs[1] / best[1],
                "limit": 1.0,
                "holds": ratio >= 1.0,
                "best, compile s": best[2],
            }
        ]

    return run


def _mean(ratios: dict[tuple[str, bool], float]) -> Sequence[Row]:
    if not ratios:
        return []
    ratio = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    row: Row = {"model": "geometric mean", "mode": "", "poplibs, cycles": "", "best, cycles": "", "ratio": ratio}
    return [{**row, "limit": TARGET, "holds": ratio >= TARGET}]


def cycles(name: str, train: bool, planner: str) -> tuple[float, float, float]:
    """Cycles of one step, those without the host's, and CPU seconds of compiling."""
    from abele.compile.executable import compile_graph
    from abele.cost import cost
    from abele.programs import compile_options, load

    loaded = load(name, train=train, half=True)
    options = compile_options(loaded, system="bow-2000", planner=planner)
    executable = compile_graph(loaded.graph, options)
    total = cost(executable.schedule, options.system).cycles
    return total.total, total.total - total.host, executable.compile_seconds

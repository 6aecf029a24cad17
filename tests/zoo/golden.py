"""Modelled figures of the zoo, kept in `golden.csv` so that a review sees what a change does to them.

`make golden` computes them anew and writes each as it was in the last commit, as it is now, and the ratio of the two.
All models are full size, in half precision with one sample, on a Bow-2000.
"""

from __future__ import annotations

import csv
import io
import subprocess
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

FILE = Path(__file__).with_name("golden.csv")
COLUMNS = ("model", "mode", "figure", "before", "now", "ratio")
Figures = dict[str, int]


def figures(model: str, mode: str) -> Figures:
    """Cycles of a run, of its exchange and of its syncs; bytes of the fullest tile; energy in microjoules.

    ``poplibs`` is the cycles with the planner that plans as the vendor's libraries did, the others are of ``best``.
    """
    from abele import programs
    from abele.compile.executable import compile_graph
    from abele.cost import cost

    loaded = programs.load(model, train=mode == "training", half=True)
    best, poplibs = (
        cost(compile_graph(loaded.graph, options).schedule, options.system, samples=1)
        for options in (programs.compile_options(loaded, system="bow-2000", planner=p) for p in ("best", "poplibs"))
    )
    return {
        "cycles": round(best.cycles.total),
        "exchange": round(best.cycles.exchange),
        "sync": round(best.cycles.sync),
        "memory": best.memory.max,
        "microjoules": round(best.energy.joules * 1e6),
        "poplibs": round(poplibs.cycles.total),
    }


def cases() -> list[tuple[str, str]]:
    """Every model of the zoo, in both modes."""
    from abele.zoo import ZOO

    return [(model, mode) for model in sorted(ZOO) for mode in ("inference", "training")]


def parse(text: str) -> dict[tuple[str, str], Figures]:
    """The figures of a golden file, as they are ``now`` in it."""
    found: dict[tuple[str, str], Figures] = {}
    for row in csv.DictReader(io.StringIO(text)):
        found.setdefault((row["model"], row["mode"]), {})[row["figure"]] = int(row["now"])
    return found


def rows(
    before: Mapping[tuple[str, str], Figures], now: Mapping[tuple[str, str], Figures]
) -> Iterable[tuple[str | int, ...]]:
    """The lines of a golden file."""
    for case, values in now.items():
        for figure, value in values.items():
            was = before.get(case, {}).get(figure, value)
            yield (*case, figure, was, value, f"{value / was:.4f}" if was else "")


def main() -> None:
    """Write the file and print what moved."""
    shown = subprocess.run(
        ["git", "show", f"HEAD:./{FILE.name}"], cwd=FILE.parent, capture_output=True, text=True, check=False
    )
    asked = cases()
    with ProcessPoolExecutor() as pool:
        now = dict(zip(asked, pool.map(figures, *zip(*asked, strict=True)), strict=True))
    lines = list(rows(parse(shown.stdout), now))
    with FILE.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *lines])
    moved = [line for line in lines if line[3] != line[4]]
    for line in moved:
        print(",".join(map(str, line)))
    print(f"{len(lines)} figures, {len(moved)} of them other than in the last commit")


if __name__ == "__main__":
    main()

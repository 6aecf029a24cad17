"""CPU time of two ways to do the same thing, in rounds that take turns, so that a noisy neighbour disturbs both."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """Medians of process CPU seconds for one step each, and how many rounds they are of.

    ``native`` is our engine without torch, where it is something else.
    """

    name: str
    ours: float
    theirs: float
    rounds: int
    native: float | None = None

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    def __str__(self) -> str:
        native = f"   without torch {self.native * 1e3:10.3f} ms" if self.native is not None else ""
        ratio = f"ratio {self.ratio:5.2f}"
        return f"{self.name:34s} {self.ours * 1e3:10.3f} ms {self.theirs * 1e3:10.3f} ms   {ratio}{native}"


def compare(
    name: str,
    ours: Callable[[], object],
    theirs: Callable[[], object],
    native: Callable[[], object] | None = None,
    rounds: int = 7,
    seconds: float = 0.3,
) -> Result:
    """All after two warm runs, ``seconds`` of each in every round."""
    functions = [f for f in (ours, theirs, native) if f is not None]
    for _ in range(2):
        for f in functions:
            f()
    counts = [max(1, int(seconds / max(1e-6, _cpu(f, 1)))) for f in functions]
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for f, count, into in zip(functions, counts, times, strict=True):
            into.append(_cpu(f, count))
    medians = [statistics.median(t) for t in times]
    result = Result(name, medians[0], medians[1], rounds, medians[2] if native is not None else None)
    print(result, flush=True)
    return result


def _cpu(f: Callable[[], object], count: int) -> float:
    start = time.process_time()
    for _ in range(count):
        f()
    return (time.process_time() - start) / count


def one_thread() -> None:
    """One thread for torch and the libraries below it: what is compared is work, not cores."""
    import torch

    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)

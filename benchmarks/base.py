"""What a benchmark is, and how times are taken: CPU time, in rounds that take turns, so that a busy machine hits all alike."""

from __future__ import annotations

import gc
import multiprocessing
import resource
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
"""One line of a table: column to value. Columns are shown in the order of the first row that has them."""


@dataclass(frozen=True)
class Settings:
    """How much to measure.

    Attributes:
        rounds: rounds of each measurement; the medians are reported.
        quick: a smaller set, to see that everything runs.
    """

    rounds: int = 7
    quick: bool = False


@dataclass(frozen=True)
class Benchmark:
    """One measurement.

    Attributes:
        group: heading of the table that its rows stand in, the same text for all rows of a table.
        name: chosen on the command line by a part of ``module.name``.
        run: measures and gives the rows of the table. What it raises is reported as the error of that line.
        quick: whether it is part of the quick set.
    """

    group: str
    name: str
    run: Callable[[Settings], Sequence[Row]]
    quick: bool = True


def interleaved(
    calls: Mapping[str, Callable[[], Any]], rounds: int, *, least_seconds: float = 0.02, warm: int = 2
) -> dict[str, list[float]]:
    """CPU seconds of one call of each, ``rounds`` figures each; the calls take turns.

    Args:
        least_seconds: a short call is repeated within a round until it takes about this long.
        warm: calls of each before anything is measured.
    """
    repeats = {}
    for name, call in calls.items():
        for _ in range(warm):
            call()
        start = time.process_time()
        call()
        repeats[name] = max(1, round(least_seconds / max(time.process_time() - start, 1e-6)))
    found: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds):
        order = list(calls.items())
        for name, call in order if turn % 2 == 0 else reversed(order):
            start = time.process_time()
            for _ in range(repeats[name]):
                call()
            found[name].append((time.process_time() - start) / repeats[name])
    return found


def compared(name: str, ours: Callable[[], Any], torch: Callable[[], Any], settings: Settings) -> Row:
    """The row of one workload: CPU milliseconds of a step of our engine and of torch eager, and their ratio.

    The ratio is the median of the rounds' own ratios; at most 1 means no slower than torch.
    """
    found = interleaved({"ours": ours, "torch": torch}, settings.rounds)
    ratios = [a / b for a, b in zip(found["ours"], found["torch"], strict=True)]
    ratio = statistics.median(ratios)
    return {
        "workload": name,
        "abele, CPU ms": statistics.median(found["ours"]) * 1e3,
        "torch eager, CPU ms": statistics.median(found["torch"]) * 1e3,
        "ratio": ratio,
        "limit": 1.0,
        "holds": ratio <= 1.0,
    }


def peak_bytes() -> int:
    """The most memory that this process has held so far, bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def apart(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """``function(*arguments)`` in a process of its own, a fork of this one: nothing it does or remembers stays.

    The process that calls must not have run torch's threads, which do not survive a fork.

    Raises:
        RuntimeError: the function raised (with its traceback), or its process died, say for want of memory.
    """
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def work() -> None:
        here.close()
        try:
            answer = (True, function(*arguments, **keywords))
        except BaseException as error:
            answer = (False, f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
        there.send(answer)
        there.close()

    gc.collect()
    process = context.Process(target=work)
    process.start()
    there.close()
    try:
        good, answer = here.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"the process died with status {process.exitcode}") from None
    finally:
        here.close()
    process.join()
    if not good:
        raise RuntimeError(answer)
    return answer

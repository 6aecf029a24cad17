"""What a benchmark is, and how one is run apart from all others."""

from __future__ import annotations

import gc
import multiprocessing
import resource
import sys
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

"""Integer arithmetic that means the same for one tile (``int``) and for many (NumPy integer arrays)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

Count: TypeAlias = Any
"""An ``int``, or a NumPy integer array with one entry for each class of tiles."""


def _is_array(*values: Count) -> bool:
    return any(isinstance(value, np.ndarray) for value in values)


def ceil_div(a: Count, b: Count) -> Count:
    """``a / b`` rounded up."""
    return -(-a // b)


def largest(a: Count, b: Count) -> Count:
    """The larger of two counts, entry by entry."""
    return np.maximum(a, b) if _is_array(a, b) else max(a, b)


def smallest(a: Count, b: Count) -> Count:
    """The smaller of two counts, entry by entry."""
    return np.minimum(a, b) if _is_array(a, b) else min(a, b)


def choose(condition: Any, yes: Count, no: Count) -> Count:
    """``yes`` where ``condition`` holds, else ``no``; both are evaluated."""
    return np.where(condition, yes, no) if _is_array(condition, yes, no) else (yes if condition else no)


def common_divisor(a: Count, b: Count) -> Count:
    """Greatest common divisor, entry by entry."""
    return np.gcd(a, b) if _is_array(a, b) else math.gcd(a, b)


def log2_ceil(n: Count) -> Count:
    """The smallest ``k`` with ``2**k >= n``; 0 for ``n <= 1``."""
    if not _is_array(n):
        return max(0, int(n) - 1).bit_length()
    return np.ceil(np.log2(np.maximum(n, 1))).astype(np.int64)


def worker_sums(positions: Count, row: Count, workers: int, piece: Callable[[Count], Count]) -> list[Count]:
    """For each worker the sum of ``piece(length)`` over its runs, 0 where it has none.

    Positions are dealt out in order, ``positions / workers`` to each as evenly as whole ones allow, and a worker's
    share is cut into runs where rows of length ``row`` end (0: never), as graphcore/poplibs deals them
    (``partitionConvPartialByWorker``).
    """
    row = choose(row > 0, row, largest(positions, 1))
    whole, found = piece(row), []
    for worker in range(workers):
        begin, end = positions * worker // workers, positions * (worker + 1) // workers
        length = end - begin
        first_row, last_row = begin // row, largest(end - 1, begin) // row
        runs = last_row - first_row + 1
        first = smallest(length, (first_row + 1) * row - begin)
        ends = piece(first) + choose(runs > 1, piece(end - last_row * row), 0)
        found.append(choose(length > 0, ends + largest(runs - 2, 0) * whole, 0))
    return found


def most(counts: Sequence[Count]) -> Count:
    """The largest of several counts, entry by entry."""
    return functools.reduce(largest, counts)

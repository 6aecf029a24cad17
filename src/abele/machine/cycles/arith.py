"""Integer arithmetic that means the same for one tile (``int``) and for many (NumPy integer arrays)."""

from __future__ import annotations

import math
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


def row_pieces(positions: Count, row: Count) -> Count:
    """Most rows of length ``row`` that one worker touches with ``positions`` consecutive positions.

    Whole rows, or whole parts of one row, start at a boundary; anything else may straddle one more.
    ``row`` 0 means that all positions form one run.
    """
    row = choose(row > 0, row, largest(positions, 1))
    length = largest(positions, 1)
    straddling = ceil_div(length - 1, row) + 1
    return choose(length % row == 0, length // row, choose(row % length == 0, 1, straddling))

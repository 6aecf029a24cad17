"""8-bit floats: how a number comes to lie on their grid.

The machine's two formats differ in the split of exponent and mantissa. Neither has infinities or a negative zero, and
their biases are one larger than IEEE's would be: what the field calls ``e4m3fnuz`` and ``e5m2fnuz``. What is beyond
the largest number becomes it. On the host a tensor of them is kept as half, of which both grids are a part. The scale
that the machine's tensors may carry beside them (a power of two) is always 1 here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.ir.types import DType


@dataclass(frozen=True, slots=True)
class Grid:
    """The numbers of a format: bits of mantissa, the exponent of the least normal one, and the largest."""

    mantissa: int
    least_exponent: int
    most: float


GRIDS: Mapping[DType, Grid] = {DType.F143: Grid(3, -7, 240.0), DType.F152: Grid(2, -15, 57344.0)}
"""Source: "8-bit Numerical Formats for Deep Neural Networks" (arXiv 2206.02915), exponent biases of 8 and 16."""


def to_float8(array: Any, dtype: DType) -> np.ndarray:
    """The nearest numbers of an 8-bit format, ties to even, as float64; nan stays nan."""
    grid = GRIDS[dtype]
    x = np.asarray(array, np.float64)
    exponent = np.maximum(np.frexp(x)[1] - 1, grid.least_exponent) - grid.mantissa
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.ldexp(np.rint(np.ldexp(x, -exponent)), exponent)
    return np.clip(near, -grid.most, grid.most) + 0.0

"""Recipes: expressions written one below the other, and those of softmax.

``shape`` is the whole tensor, strides are row-major. Results are rounded to ``dtype``; sums are always float32.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.codegen.expression import Expr, Operand, Output
from abele.codegen.module import Kernel
from abele.codegen.reduce import reduce_kernels
from abele.codegen.space import contiguous

Kernels = tuple[Kernel, ...]
LOWEST = float(np.finfo(np.float32).min)
"""The least finite float."""


def along(shape: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    """Strides over ``shape`` of a row-major tensor that has only the dimensions ``dims``."""
    own = contiguous([shape[d] for d in dims])
    return tuple(own[list(dims).index(d)] if d in dims else 0 for d in range(len(shape)))


class Recipe:
    """Collects operands and expressions, giving each a number that the next may use."""

    def __init__(self, operands: Sequence[Operand]) -> None:
        self.operands = list(operands)
        self.exprs: list[Expr] = []

    def __call__(self, fn: str, *args: int, dtype: str = "f32", **attrs: float) -> int:
        self.exprs.append(Expr(fn, args, dtype, **attrs))
        return len(self.operands) + len(self.exprs) - 1

    def const(self, value: float) -> int:
        return self("const", value=value)

    def powers(self, x: int, safe: bool) -> tuple[int, int, int]:
        """``x`` less its maximum, the exponential of that, and its sum; safe: of minus infinities, these are finite."""
        most = self("reduce_max", x)
        shifted = self("sub", x, self("max", most, self.const(LOWEST)) if safe else most)
        power = self("exp", shifted)
        total = self("reduce_sum", power)
        return shifted, power, self("max", total, self.const(1.0)) if safe else total

    def mean(self, node: int, count: int) -> int:
        return self("div", self("reduce_sum", node), self.const(count))


def softmax(
    shape: Sequence[int], axis: int = -1, dtype: str = "f32", *, log: bool = False, safe: bool = False
) -> Kernels:
    """Softmax or log-softmax over one axis; a safe softmax gives zeros for minus infinities. Pointers: x, y."""
    whole = contiguous(shape)
    r = Recipe([Operand(dtype, whole)])
    shifted, power, total = r.powers(0, safe)
    y = r("sub", shifted, r("log", total), dtype=dtype) if log else r("div", power, total, dtype=dtype)
    # For the logarithm the second pass needs the shifted value again, which is cheap.
    stash = () if log else ((power, 0),)
    return reduce_kernels(shape, (axis,), r.operands, r.exprs, [Output(y, dtype, whole)], stash)


def softmax_gradient(shape: Sequence[int], axis: int = -1, dtype: str = "f32", *, log: bool = False) -> Kernels:
    """Gradient by the result. Pointers: y, dy, dx.

    Softmax: ``dx = y (dy - sum(y dy))``. Log-softmax: ``dx = dy - exp(y) sum(dy)``.
    """
    whole = contiguous(shape)
    r = Recipe([Operand(dtype, whole)] * 2)
    if log:
        dx = r("sub", 1, r("mul", r("exp", 0), r("reduce_sum", 1)), dtype=dtype)
    else:
        dx = r("mul", 0, r("sub", 1, r("reduce_sum", r("mul", 0, 1))), dtype=dtype)
    return reduce_kernels(shape, (axis,), r.operands, r.exprs, [Output(dx, dtype, whole)])

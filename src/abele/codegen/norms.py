"""Softmax and normalisation, forward and backward, as recipes for :func:`~abele.codegen.reduce.reduce_kernels`.

Each function returns the kernels of one operation. ``shape`` is the whole tensor; ``axes`` are the normalised
dimensions (for batch norm, all but the channel). Strides default to row-major; a tensor that varies only along
some dimensions (scale, shift, statistics) is given by those dimensions. Results are rounded to ``dtype``; sums
and statistics are always float32. Sources: the definitions of softmax, of layer norm (Ba, Kiros and Hinton,
2016), batch norm (Ioffe and Szegedy, 2015) and RMS norm (Zhang and Sennrich, 2019), and their derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from abele.codegen.expression import Expr, Operand, Output
from abele.codegen.module import Kernel
from abele.codegen.reduce import reduce_kernels
from abele.codegen.space import contiguous

Kernels = tuple[Kernel, ...]


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

    def mean(self, node: int, count: int) -> int:
        return self("div", self("reduce_sum", node), self.const(count))


def _axes(shape: Sequence[int], axes: Sequence[int]) -> tuple[tuple[int, ...], list[int], int]:
    reduced = tuple(sorted(a % len(shape) for a in axes))
    kept = [d for d in range(len(shape)) if d not in reduced]
    return reduced, kept, math.prod(shape[a] for a in reduced)


def softmax(shape: Sequence[int], axis: int = -1, dtype: str = "f32", *, log: bool = False) -> Kernels:
    """Softmax or log-softmax over one axis. Pointers: x, y."""
    whole = contiguous(shape)
    r = Recipe([Operand(dtype, whole)])
    shifted = r("sub", 0, r("reduce_max", 0))
    power = r("exp", shifted)
    total = r("reduce_sum", power)
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


def norm(
    shape: Sequence[int],
    axes: Sequence[int],
    epsilon: float,
    *,
    affine: Sequence[int] | None = None,
    centred: bool = True,
    residual: bool = False,
    dtype: str = "f32",
) -> Kernels:
    """``y = (x - mean) * rstd * scale + shift`` with statistics over ``axes``.

    Layer norm: ``axes`` are the last ones and ``affine`` the same; batch norm in training: ``axes`` are all but
    the channel and ``affine`` is the channel. ``affine`` None: no scale and shift. ``centred`` False: RMS norm,
    without mean and shift. ``residual``: x is the sum of two tensors, which is written as well.

    Pointers: x, [second addend], [scale, [shift]], y, [mean], rstd, [sum of the addends]. The statistics are
    float32 over the kept dimensions.
    """
    axes, kept, count = _axes(shape, axes)
    whole, stat = contiguous(shape), along(shape, kept)
    operands = [Operand(dtype, whole)] * (2 if residual else 1)
    if affine is not None:
        operands += [Operand(dtype, along(shape, [a % len(shape) for a in affine]))] * (2 if centred else 1)
    r = Recipe(operands)
    x = r("add", 0, 1, dtype=dtype) if residual else 0
    mean = r.mean(x, count) if centred else None
    d = x if mean is None else r("sub", x, mean)
    rstd = r("rsqrt", r("add", r.mean(r("mul", d, d), count), r.const(epsilon)))
    y = r("mul", d, rstd)
    if affine is not None:
        scale = 2 if residual else 1
        y = r("mul", y, scale)
        y = r("add", y, scale + 1) if centred else y
    outputs = [Output(r("cast", y, dtype=dtype), dtype, whole)]
    if mean is not None:
        outputs.append(Output(mean, "f32", stat))
    outputs.append(Output(rstd, "f32", stat))
    stash: tuple[tuple[int, int], ...] = ()
    if residual:
        # The sum is a result of its own; written by the first pass, the later ones read it back.
        outputs.append(Output(x, dtype, whole))
        stash = ((x, len(outputs) - 1),)
    return reduce_kernels(shape, axes, r.operands, r.exprs, outputs, stash)


def norm_gradient(
    shape: Sequence[int],
    axes: Sequence[int],
    *,
    affine: Sequence[int] | None = None,
    centred: bool = True,
    dtype: str = "f32",
) -> Kernels:
    """Gradient of :func:`norm` by x: with ``n = (x - mean) rstd`` and ``g = dy scale``,
    ``dx = rstd (g - mean(g) - n mean(g n))`` (without ``mean(g)`` when not centred).

    Pointers: x, dy, [mean], rstd, [scale], dx.
    """
    axes, kept, count = _axes(shape, axes)
    whole, stat = contiguous(shape), along(shape, kept)
    operands = [Operand(dtype, whole)] * 2 + [Operand("f32", stat)] * (2 if centred else 1)
    if affine is not None:
        operands.append(Operand(dtype, along(shape, [a % len(shape) for a in affine])))
    r = Recipe(operands)
    rstd = 3 if centred else 2
    n = r("mul", r("sub", 0, 2) if centred else 0, rstd)
    g = r("mul", 1, rstd + 1) if affine is not None else 1
    inner = r("mul", n, r.mean(r("mul", g, n), count))
    left = r("sub", g, r.mean(g, count)) if centred else g
    dx = r("mul", r("sub", left, inner), rstd, dtype=dtype)
    return reduce_kernels(shape, axes, r.operands, r.exprs, [Output(dx, dtype, whole)])


def affine_gradient(
    shape: Sequence[int],
    axes: Sequence[int],
    affine: Sequence[int],
    *,
    centred: bool = True,
    dtype: str = "f32",
) -> Kernels:
    """Gradients of :func:`norm` by scale and shift: sums of ``dy n`` and ``dy`` over the other dimensions.

    Pointers: x, dy, [mean], rstd, dscale, [dshift], [workspace].
    """
    axes, kept, _ = _axes(shape, axes)
    own = [a % len(shape) for a in affine]
    over = [d for d in range(len(shape)) if d not in own]
    whole, stat = contiguous(shape), along(shape, kept)
    r = Recipe([Operand(dtype, whole)] * 2 + [Operand("f32", stat)] * (2 if centred else 1))
    n = r("mul", r("sub", 0, 2) if centred else 0, 3 if centred else 2)
    results = [r("reduce_sum", r("mul", 1, n), dtype=dtype)]
    if centred:
        results.append(r("reduce_sum", 1, dtype=dtype))
    outputs = [Output(node, dtype, along(shape, own)) for node in results]
    return reduce_kernels(shape, over, r.operands, r.exprs, outputs)

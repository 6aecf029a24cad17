"""Reductions, scans, order statistics and norms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from abele.importers.torch.emitter import Emitter, axes_of, axis_of
from abele.importers.torch.rules.elementwise import log_add, truth
from abele.importers.torch.table import rule
from abele.ir import DType, Value

Dims = Sequence[int] | int | None


def reduced(e: Emitter, name: str, x: Value, axes: tuple[int, ...], keep: bool, **attributes: Any) -> Value:
    """A reduction; over no axes at all it is the operand itself."""
    return e.emit(name, x, axes=axes, keep=keep, **attributes) if axes else x


@rule("sum", "mean")
def total(e: Emitter, x: Value, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Value:
    axes = axes_of(dim, len(x.shape))
    x = e.operand(x)
    return reduced(e, "reduce_sum" if e.name == "sum" else "mean", x, axes, keepdim)


@rule("prod")
def prod(e: Emitter, x: Value, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Value:
    return reduced(e, "reduce_prod", e.operand(x), axes_of(dim, len(x.shape)), keepdim)


@rule("amax", "amin")
def extreme(e: Emitter, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    return reduced(e, "reduce_max" if e.name == "amax" else "reduce_min", x, axes_of(dim, len(x.shape)), keepdim)


@rule("max", "min")
def max_(e: Emitter, x: Value, other: Any = None, keepdim: bool = False, dim: int | None = None) -> Any:
    """Three forms: of all elements, along a dimension with indices, and of two tensors."""
    if isinstance(other, Value):
        return e.binary(e.name, x, other)
    dim = other if dim is None else dim
    rank = len(x.shape)
    if dim is None:
        return reduced(e, f"reduce_{e.name}", x, tuple(range(rank)), False)
    if not rank:
        return x, e.number(0, DType.I32)
    axis = axis_of(dim, rank)
    values = e.emit(f"reduce_{e.name}", x, axes=(axis,), keep=keepdim)
    return values, e.emit(f"arg_{e.name}", x, axis=axis, keep=keepdim)


@rule("argmax", "argmin")
def arg_extreme(e: Emitter, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    rank = len(x.shape)
    if not rank:
        return e.number(0, DType.I32)
    if dim is None:
        found = e.emit(f"arg_{e.name[3:]}", e.reshape(x, (math.prod(x.shape),)), axis=0, keep=False)
        return e.reshape(found, e.out.shape)
    return e.emit(f"arg_{e.name[3:]}", x, axis=axis_of(dim, rank), keep=keepdim)


@rule("aminmax")
def aminmax(e: Emitter, x: Value, dim: int | None = None, keepdim: bool = False) -> tuple[Value, Value]:
    axes = axes_of(dim, len(x.shape))
    return reduced(e, "reduce_min", x, axes, keepdim), reduced(e, "reduce_max", x, axes, keepdim)


@rule("any", "all")
def any_(e: Emitter, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    return reduced(e, f"reduce_{e.name}", truth(e, x), axes_of(dim, len(x.shape)), keepdim)


@rule("count_nonzero")
def count_nonzero(e: Emitter, x: Value, dim: Dims = None) -> Value:
    return reduced(e, "reduce_sum", e.cast(truth(e, x), DType.I32), axes_of(dim, len(x.shape)), False)


@rule("logsumexp")
def logsumexp(e: Emitter, x: Value, dim: Dims, keepdim: bool = False) -> Value:
    return reduced(e, "logsumexp", e.operand(x), axes_of(dim, len(x.shape)), keepdim)


def _correction(unbiased: Any, correction: Any) -> float:
    if isinstance(unbiased, bool):
        return 1.0 if unbiased else 0.0
    return 1.0 if correction is None else float(correction)


@rule("var", "std")
def var(
    e: Emitter, x: Value, dim: Any = None, unbiased: Any = None, keepdim: bool = False, correction: Any = None
) -> Value:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    axes = axes_of(dim, len(x.shape))
    name = "variance" if e.name == "var" else "std"
    return e.emit(name, x, axes=axes, keep=keepdim, correction=_correction(unbiased, correction))


@rule("var_mean", "std_mean")
def var_mean(
    e: Emitter, x: Value, dim: Any = None, unbiased: Any = None, keepdim: bool = False, correction: Any = None
) -> tuple[Value, Value]:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    axes = axes_of(dim, len(x.shape))
    name = "variance" if e.name == "var_mean" else "std"
    spread = e.emit(name, x, axes=axes, keep=keepdim, correction=_correction(unbiased, correction))
    return spread, reduced(e, "mean", x, axes, keepdim)


@rule("linalg_vector_norm", "norm")
def norm(e: Emitter, x: Value, ord: Any = 2, dim: Dims = None, keepdim: bool = False, dtype: Any = None) -> Value:
    order = 2 if ord is None else ord
    order = {"inf": math.inf, "-inf": -math.inf}.get(order, order) if isinstance(order, str) else order
    x = e.operand(x)
    axes = axes_of(dim, len(x.shape))
    return e.emit("norm", x, order=float(order), axes=axes, keep=keepdim)


@rule("cumsum")
def cumsum(e: Emitter, x: Value, dim: int, dtype: Any = None) -> Value:
    x = e.operand(x)
    return e.emit("cumsum", x, axis=axis_of(dim, len(x.shape))) if x.shape else x


@rule("cumprod")
def cumprod(e: Emitter, x: Value, dim: int, dtype: Any = None) -> Value:
    x = e.operand(x)
    return _scanned(e, x, axis_of(dim, len(x.shape)), lambda e, a, b: e.emit("mul", a, b)) if x.shape else x


@rule("logcumsumexp")
def logcumsumexp(e: Emitter, x: Value, dim: int) -> Value:
    return _scanned(e, x, axis_of(dim, len(x.shape)), log_add) if x.shape else x


def _scanned(e: Emitter, x: Value, axis: int, join: Callable[[Emitter, Value, Value], Value]) -> Value:
    """Running results of an associative function, in log-many steps: each joins what stands 1, 2, 4, ... before."""
    shift, size = 1, x.shape[axis]
    while shift < size:
        joined = join(e, e.slice(x, axis, 0, size - shift), e.slice(x, axis, shift, size))
        x = e.concat([e.slice(x, axis, 0, shift), joined], axis)
        shift *= 2
    return x


@rule("cummax", "cummin")
def running_extreme(e: Emitter, x: Value, dim: int) -> tuple[Value, Value]:
    """The running extreme and where it stands, the later place of equals: a scan over places, read at the end."""
    if not x.shape:
        return x, e.number(0, DType.I32)
    axis = axis_of(dim, len(x.shape))
    place = e.expand(e.emit("iota", shape=_along(x, axis), axis=axis, dtype="i32"), x.shape)
    test = "ge" if e.name == "cummax" else "le"

    def later(e: Emitter, a: Value, b: Value) -> Value:
        values = [e.emit("gather_elements", x, p, axis=axis) for p in (a, b)]
        kept = e.emit(test, values[1], values[0])
        if x.dtype.is_float:  # a number that is none stays
            first, second = (e.emit("is_nan", v) for v in values)
            kept = e.emit("logical_or", second, e.emit("logical_and", kept, e.emit("logical_not", first)))
        return e.emit("select", kept, b, a)

    place = _scanned(e, place, axis, later)
    return e.emit("gather_elements", x, place, axis=axis), place


def _along(x: Value, axis: int) -> tuple[int, ...]:
    return tuple(n if i == axis else 1 for i, n in enumerate(x.shape))


@rule("sort")
def sort(e: Emitter, x: Value, dim: Any = -1, descending: bool = False, stable: Any = None) -> Any:
    if not x.shape:
        return x, e.number(0, DType.I32)
    return e.emit("sort", x, axis=axis_of(dim, len(x.shape)), descending=descending)


@rule("sort.stable")
def sort_stable(e: Emitter, x: Value, stable: Any = None, dim: int = -1, descending: bool = False) -> Any:
    return sort(e, x, dim, descending)


@rule("argsort")
def argsort(e: Emitter, x: Value, dim: int = -1, descending: bool = False) -> Value:
    return sort(e, x, dim, descending)[1]


@rule("argsort.stable")
def argsort_stable(e: Emitter, x: Value, stable: bool = True, dim: int = -1, descending: bool = False) -> Value:
    return sort(e, x, dim, descending)[1]


@rule("topk")
def topk(e: Emitter, x: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if not x.shape:
        return x, e.number(0, DType.I32)
    return e.emit("top_k", x, k=k, axis=axis_of(dim, len(x.shape)), largest=largest)


def _nth(e: Emitter, x: Value, dim: int, n: int, keep: bool) -> tuple[Value, Value]:
    axis = axis_of(dim, len(x.shape))
    found = e.emit("sort", x, axis=axis, descending=False)
    shape = x.shape[:axis] + ((1,) if keep else ()) + x.shape[axis + 1 :]
    values, indices = (e.reshape(e.slice(v, axis, n, n + 1), shape) for v in found)
    return values, indices


@rule("searchsorted", "bucketize")
def searchsorted(
    e: Emitter, first: Any, second: Any, *given: Any, right: bool = False, side: Any = None, **_: Any
) -> Any:
    """The first boundary that does not lie below each value (nor is equal to it, with ``right``).

    Of sorted boundaries it is how many lie below; of others, where torch says nothing, mostly what its search finds.
    """
    edges, values = (first, second) if e.name == "searchsorted" else (second, first)
    right = bool(right or side == "right" or (len(given) > 1 and given[1]))
    kind = edges.dtype if not isinstance(values, Value) or values.dtype is edges.dtype else DType.F32
    values = e.operand(values, kind)
    count = edges.shape[-1]
    one = len(edges.shape) == 1
    shape = (1,) * len(values.shape) + (count,) if one else (*edges.shape[:-1], 1, count)
    edges = e.reshape(e.cast(edges, kind), shape)
    below = e.emit("le" if right else "lt", edges, e.reshape(values, (*values.shape, 1)))
    places = e.emit("iota", shape=below.shape, axis=len(values.shape), dtype="i32")
    return reduced(
        e, "reduce_min", e.emit("select", below, e.number(count, DType.I32), places), (len(values.shape),), False
    )


@rule("_cdist_forward")
def cdist(e: Emitter, a: Value, b: Value, p: float, compute_mode: Any = None) -> Value:
    """Distances between all rows of one and of the other."""
    left = e.reshape(a, (*a.shape[:-1], 1, a.shape[-1]))
    right = e.reshape(b, (*b.shape[:-2], 1, *b.shape[-2:]))
    gap = e.binary("sub", left, right)
    return e.emit("norm", gap, order=float(p), axes=(len(gap.shape) - 1,), keep=False)


@rule("_pdist_forward")
def pdist(e: Emitter, x: Value, p: float = 2) -> Value:
    """Distances between each row and all rows behind it."""
    rows = np.triu_indices(x.shape[0], 1)
    first, second = (e.emit("gather", x, e.constant(r.astype(np.int32)), axis=0) for r in rows)
    return e.emit("norm", e.binary("sub", first, second), order=float(p), axes=(1,), keep=False)


@rule("histc")
def histc(e: Emitter, x: Value, bins: int = 100, min: float = 0, max: float = 0) -> Value:
    """Counts in bins of one width between two bounds, those of the values where both are alike.

    Integers are counted too, as on other accelerators (not on the CPU), through f32.
    """
    x = e.reshape(x, (x.type.size,))
    if not x.dtype.is_float:
        return e.cast(histc(e, e.cast(x, DType.F32), bins, min, max), x.dtype)
    low, high = (e.number(v, x.dtype) for v in (min, max))
    if min == max:
        low, high = (e.emit(f"reduce_{n}", x, axes=(0,), keep=False) for n in ("min", "max"))
    span = e.emit("sub", high, low)
    span = e.emit("select", e.emit("eq", span, e.number(0, x.dtype)), e.number(1, x.dtype), span)
    share = e.emit("div", e.emit("mul", e.emit("sub", x, low), e.number(bins, x.dtype)), span)
    place = e.emit("clamp", e.emit("floor", share), low=0.0, high=float(bins - 1))
    inside = e.emit("logical_and", e.emit("ge", x, low), e.emit("le", x, high))
    # What lies outside, and what is no number, is counted in one bin more.
    place = e.emit("select", inside, place, e.number(bins, x.dtype))
    counts = e.number(0, x.dtype, (bins + 1,))
    ones = e.number(1, x.dtype, x.shape)
    return e.slice(e.emit("scatter_add", counts, e.cast(place, DType.I32), ones, axis=0), 0, 0, bins)


@rule("kthvalue")
def kthvalue(e: Emitter, x: Value, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    return _nth(e, x, dim, k - 1, keepdim)


@rule("median.dim")
def median_dim(e: Emitter, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    return _nth(e, x, dim, (x.shape[dim] - 1) // 2, keepdim)


@rule("median")
def median(e: Emitter, x: Value) -> Value:
    size = math.prod(x.shape)
    return _nth(e, e.reshape(x, (size,)), 0, (size - 1) // 2, False)[0]

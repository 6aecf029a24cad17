"""Reductions over chosen axes, arg-reductions and running sums.

``axes`` is a sorted tuple; with ``keep`` the reduced dimensions stay as size 1. Half is summed in float, rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.errors import InvalidOperand
from abele.ir.builder import Builder
from abele.ir.graph import Operation, Value
from abele.ir.operation import REQUIRED, Arg, Gradient, NotDifferentiable, Primitive, Sample, register
from abele.ir.types import DType, TensorType, f16, f32, i32
from abele.ops.rules import (
    Attributes,
    like,
    need_axis,
    need_dtype,
    need_operands,
    no_flops,
    to_float,
)


def axes_of(name: str, attributes: Attributes, rank: int) -> tuple[int, ...]:
    """The attribute ``axes``, checked: sorted, distinct dimensions of the operand."""
    axes = attributes["axes"]
    if not isinstance(axes, tuple) or list(axes) != sorted(set(axes)):
        raise InvalidOperand(f"{name} has axes {axes!r}; they must be a sorted list without repeats")
    return tuple(need_axis(name, axis, rank) for axis in axes)


def reduced(shape: Sequence[int], axes: Sequence[int], keep: bool) -> tuple[int, ...]:
    """The shape after reducing ``axes``."""
    if keep:
        return tuple(1 if d in axes else n for d, n in enumerate(shape))
    return tuple(n for d, n in enumerate(shape) if d not in axes)


def kept_shape(op: Operation) -> tuple[int, ...]:
    """The result's shape with the reduced dimensions as 1."""
    axes = op.attributes["axes"] if "axes" in op.attributes else (op.attributes["axis"],)
    return reduced(op.operands[0].shape, axes, True)


def spread_back(b: Builder, value: Value, op: Operation) -> Value:
    """A value of the result's shape as it broadcasts against the operand."""
    shape = kept_shape(op)
    return value if value.shape == shape else b.reshape(value, shape=shape)


@dataclass(frozen=True)
class Reduction:
    """One reduction: ``compute(x, axes, keep)`` in NumPy, the dtypes it takes, and its gradient."""

    name: str
    compute: Callable[[np.ndarray, tuple[int, ...], bool], Any]
    allowed: Callable[[DType], bool]
    words: str
    gradient: Gradient | NotDifferentiable


def _lowest(x: np.ndarray) -> Any:
    return -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min


def _highest(x: np.ndarray) -> Any:
    return np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).max


def _sum_gradient(b: Builder, op: Operation, given: Sequence[Value | None]) -> Sequence[Value | None]:
    (dy,), (x,) = given, op.operands
    assert dy is not None
    spread = spread_back(b, dy, op)
    return (spread if spread.shape == x.shape else b.expand(spread, shape=x.shape),)


def _extreme_gradient(b: Builder, op: Operation, given: Sequence[Value | None]) -> Sequence[Value | None]:
    """To the elements that are the extreme, in equal shares."""
    (dy,), (x,) = given, op.operands
    assert dy is not None
    taken = b.eq(x, spread_back(b, op.result, op))
    ones = b.cast(taken, dtype="f32")
    shares = b.reduce_sum(ones, axes=op.attributes["axes"], keep=True)
    each = b.div(to_float(b, spread_back(b, dy, op)), shares)
    return (b.cast_to(b.select(taken, each, like(b, 0.0, each)), x.dtype),)


def _product_gradient(b: Builder, op: Operation, given: Sequence[Value | None]) -> Sequence[Value | None]:
    """The product of the other elements: by division where nothing is 0, else only the one 0 has any."""
    (dy,), (x,) = given, op.operands
    assert dy is not None
    wide, axes = to_float(b, x), op.attributes["axes"]
    none, one = like(b, 0.0, wide), like(b, 1.0, wide)
    zero = b.eq(wide, none)
    zeros = b.reduce_sum(b.cast(zero, dtype="f32"), axes=axes, keep=True)
    safe = b.select(zero, one, wide)
    product = b.reduce_prod(safe, axes=axes, keep=True)
    alone = b.logical_and(zero, b.eq(zeros, one))
    others = b.select(b.eq(zeros, none), b.div(product, safe), b.select(alone, product, none))
    return (b.cast_to(b.mul(to_float(b, spread_back(b, dy, op)), others), x.dtype),)


_TRUTH = NotDifferentiable("its results are true or false")
REDUCTIONS = (
    Reduction(
        "reduce_sum",
        lambda x, axes, keep: np.sum(x, axis=axes, keepdims=keep, dtype=x.dtype),
        lambda d: d.is_number,
        "a number",
        _sum_gradient,
    ),
    Reduction(
        "reduce_max",
        lambda x, axes, keep: np.max(x, axis=axes, keepdims=keep, initial=_lowest(x)),
        lambda d: d.is_number,
        "a number",
        _extreme_gradient,
    ),
    Reduction(
        "reduce_min",
        lambda x, axes, keep: np.min(x, axis=axes, keepdims=keep, initial=_highest(x)),
        lambda d: d.is_number,
        "a number",
        _extreme_gradient,
    ),
    Reduction(
        "reduce_prod",
        lambda x, axes, keep: np.prod(x, axis=axes, keepdims=keep, dtype=x.dtype),
        lambda d: d.is_number,
        "a number",
        _product_gradient,
    ),
    Reduction(
        "reduce_any",
        lambda x, axes, keep: np.any(x, axis=axes, keepdims=keep),
        lambda d: d is DType.BOOL,
        "bool",
        _TRUTH,
    ),
    Reduction(
        "reduce_all",
        lambda x, axes, keep: np.all(x, axis=axes, keepdims=keep),
        lambda d: d is DType.BOOL,
        "bool",
        _TRUTH,
    ),
)

SHAPES = (
    ((3, 5), (1,)),
    ((3, 5), (0,)),
    ((4, 3, 50), (0, 2)),
    ((2, 130), (0, 1)),
    ((300,), (0,)),
    ((), ()),
    ((4, 5), ()),
    ((0, 3), (1,)),
)
"""Shape and axes of the samples of reductions."""


def _samples(r: Reduction) -> Iterable[Sample]:
    first = DType.BOOL if r.words == "bool" else DType.F32
    draw = "boolean" if first is DType.BOOL else "normal"
    for number, (shape, axes) in enumerate(SHAPES):
        yield Sample((Arg(TensorType(shape, first), draw),), {"axes": axes, "keep": bool(number % 2)})
    yield Sample((Arg(TensorType((3, 0), first), draw),), {"axes": (1,), "keep": False}, "nothing to reduce")
    if first is DType.F32:
        yield Sample((Arg(f16(5, 70)),), {"axes": (1,), "keep": False})
        yield Sample((Arg(f16(200)),), {"axes": (0,), "keep": True})
        yield Sample((Arg(i32(4, 9), "integers", -3, 4),), {"axes": (0,), "keep": False})


def _make(r: Reduction) -> Primitive:
    def infer(operands: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        need_operands(r.name, operands, 1)
        need_dtype(r.name, operands, r.allowed, r.words)
        (x,) = operands
        return (x.with_shape(reduced(x.shape, axes_of(r.name, attributes, x.rank), bool(attributes["keep"]))),)

    def reference(operands: Sequence[np.ndarray], attributes: Attributes, results: Sequence[TensorType]):
        return (r.compute(operands[0], attributes["axes"], bool(attributes["keep"])),)

    def flops(operands: Sequence[TensorType], results: Sequence[TensorType], attributes: Attributes) -> int:
        return max(0, operands[0].size - results[0].size) if operands[0].dtype.is_float else 0

    return Primitive(
        r.name,
        {"axes": REQUIRED, "keep": False},
        infer,
        reference,
        r.gradient,
        flops,
        lambda: _samples(r),
        traits=frozenset({"any_strides"} if r.name in ("reduce_sum", "reduce_max") else ()),
    )


for _reduction in REDUCTIONS:
    register(_make(_reduction))


# Arg-reductions


def _arg_reduction(name: str, find: Callable[..., Any]) -> Primitive:
    def infer(operands: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        need_operands(name, operands, 1)
        need_dtype(name, operands, lambda d: d.is_number, "a number")
        (x,) = operands
        axis = need_axis(name, attributes["axis"], x.rank)
        if x.shape[axis] == 0:
            raise InvalidOperand(f"{name} of {x} over axis {axis}, which is empty")
        return (TensorType(reduced(x.shape, (axis,), bool(attributes["keep"])), DType.I32),)

    def reference(operands: Sequence[np.ndarray], attributes: Attributes, results: Sequence[TensorType]):
        return (find(operands[0], axis=attributes["axis"], keepdims=bool(attributes["keep"])),)

    def samples() -> Iterable[Sample]:
        for shape, axis in (((3, 7), 1), ((7, 3), 0), ((2, 150), 1), ((300,), 0), ((4, 3, 5), 1), ((0, 3), 1)):
            yield Sample((Arg(f32(*shape), "distinct"),), {"axis": axis, "keep": axis == 0})
        yield Sample((Arg(f16(4, 60), "distinct"),), {"axis": 1})
        yield Sample((Arg(i32(4, 60), "integers", -2, 3),), {"axis": 1}, "with ties: the first wins")

    return Primitive(
        name,
        {"axis": REQUIRED, "keep": False},
        infer,
        reference,
        NotDifferentiable("its results are positions"),
        no_flops,
        samples,
    )


register(_arg_reduction("arg_max", np.argmax))
register(_arg_reduction("arg_min", np.argmin))


# Running sums


def _infer_cumsum(operands: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    need_operands("cumsum", operands, 1)
    need_dtype("cumsum", operands, lambda d: d.is_number, "a number")
    need_axis("cumsum", attributes["axis"], operands[0].rank)
    return (operands[0],)


def _cumsum(operands: Sequence[np.ndarray], attributes: Attributes, results: Sequence[TensorType]):
    return (np.cumsum(operands[0], axis=attributes["axis"], dtype=operands[0].dtype),)


def _cumsum_gradient(b: Builder, op: Operation, given: Sequence[Value | None]) -> Sequence[Value | None]:
    (dy,), axis = given, op.attributes["axis"]
    assert dy is not None
    return (b.flip(b.cumsum(b.flip(dy, axes=(axis,)), axis=axis), axes=(axis,)),)


def _cumsum_samples() -> Iterable[Sample]:
    for shape, axis in (((3, 7), 1), ((7, 3), 0), ((4, 3, 30), 1), ((200,), 0), ((0, 3), 1), ((3, 0), 1)):
        yield Sample((Arg(f32(*shape)),), {"axis": axis})
    yield Sample((Arg(f16(2, 90)),), {"axis": 1})
    yield Sample((Arg(i32(2, 9), "integers", -9, 9),), {"axis": 1})


register(
    Primitive(
        "cumsum",
        {"axis": REQUIRED},
        _infer_cumsum,
        _cumsum,
        _cumsum_gradient,
        lambda operands, results, attributes: operands[0].size if operands[0].dtype.is_float else 0,
        _cumsum_samples,
    )
)

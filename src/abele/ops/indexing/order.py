"""Order: the k largest, and sorting, along one axis. Results are values and ``i32`` indices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from abele.errors import InvalidOperand
from abele.ir import (
    REQUIRED,
    Arg,
    Builder,
    DType,
    Operation,
    Primitive,
    Sample,
    TensorType,
    Value,
    f16,
    f32,
    i32,
    register,
)
from abele.ir.operation import Attributes
from abele.ops.indexing.op import zeros
from abele.ops.rules import need_axis, need_operands, no_flops


def order(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """Indices that sort ``x`` along ``axis``; equal elements keep their order, NaN counts as the largest."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    # A stable descending order: sort the reversed sequence upwards, read it backwards.
    backwards = np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    return x.shape[axis] - 1 - backwards


def _infer_top_k(operands: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
    need_operands("top_k", operands, 1)
    (x,) = operands
    axis, k = need_axis("top_k", attributes["axis"], x.rank), int(attributes["k"])
    if not 0 <= k <= x.shape[axis]:
        raise InvalidOperand(f"top_k: k={k} of dimension {axis} of operand 0, {x}")
    values = x.with_shape((*x.shape[:axis], k, *x.shape[axis + 1 :]))
    return [values, values.with_dtype(DType.I32)]


def _top_k(operands: Sequence[np.ndarray], attributes: Attributes, results: Sequence[TensorType]):
    (x,) = operands
    axis, k = int(attributes["axis"]), int(attributes["k"])
    indices = np.take(order(x, axis, bool(attributes["largest"])), np.arange(k), axis=axis)
    return [np.take_along_axis(x, indices, axis), indices]


def _ordered_gradient(b: Builder, op: Operation, d: Sequence[Value | None]) -> list[Value | None]:
    dvalues = d[0]
    if dvalues is None:
        return [None]
    (x,) = op.operands
    into = zeros(b, x.type)
    return [b.scatter_elements(into, op.results[1], dvalues, axis=op.attributes["axis"], reduction="add")]


def _top_k_samples() -> Iterable[Sample]:
    for x, k, axis, largest in (
        (f32(4, 9), 3, 1, True),
        (f32(9, 4), 2, 0, False),
        (f16(3, 5), 5, 1, True),
        (f32(17), 1, 0, True),
        (f32(2, 3, 7), 4, 2, False),
        (f32(3, 4), 0, 1, True),
        (f32(0, 4), 2, 1, True),
    ):
        yield Sample((Arg(x, "distinct"),), {"k": k, "axis": axis, "largest": largest})
    yield Sample((Arg(i32(4, 12), "integers", 0, 5),), {"k": 6, "axis": 1, "largest": True}, "ties")


register(
    Primitive(
        "top_k",
        {"k": REQUIRED, "axis": REQUIRED, "largest": True},
        _infer_top_k,
        _top_k,
        _ordered_gradient,
        no_flops,
        _top_k_samples,
    )
)


def _infer_sort(operands: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
    need_operands("sort", operands, 1)
    (x,) = operands
    need_axis("sort", attributes["axis"], x.rank)
    return [x, x.with_dtype(DType.I32)]


def _sort(operands: Sequence[np.ndarray], attributes: Attributes, results: Sequence[TensorType]):
    (x,) = operands
    axis = int(attributes["axis"])
    indices = order(x, axis, bool(attributes["descending"]))
    return [np.take_along_axis(x, indices, axis), indices]


def _sort_samples() -> Iterable[Sample]:
    for x, axis, descending in (
        (f32(4, 9), 1, False),
        (f32(9, 4), 0, True),
        (f16(3, 5), 1, True),
        (f32(2, 3, 7), 1, False),
        (f32(0, 4), 0, False),
        (f32(4, 1), 1, True),
    ):
        yield Sample((Arg(x, "distinct"),), {"axis": axis, "descending": descending})
    yield Sample((Arg(i32(4, 12), "integers", 0, 5),), {"axis": 1, "descending": True}, "ties keep their order")


register(
    Primitive(
        "sort",
        {"axis": REQUIRED, "descending": False},
        _infer_sort,
        _sort,
        _ordered_gradient,
        no_flops,
        _sort_samples,
    )
)

"""Indexing: gather and scatter by whole slices or by element, embedding, one-hot.

Indices are ``i32`` and lie in ``[0, size)``: the importer makes negative ones positive, and an index out of range is a
fault of the program (the reference raises ``IndexError``). Where several updates meet in one element, sums are
exact in the reference and rounded once; ``scatter_elements`` with reduction ``none`` keeps the last of them in
row-major order of the updates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from abele.errors import InvalidOperand
from abele.ir import (
    REQUIRED,
    Arg,
    Builder,
    Composite,
    DType,
    NotDifferentiable,
    Operation,
    Primitive,
    Sample,
    TensorType,
    Value,
    boolean,
    f16,
    f32,
    i32,
    register,
)
from abele.ir.operation import Attributes
from abele.ops.rules import need_axis, need_operands, no_flops

REDUCTIONS = ("none", "add", "mul", "max", "min")


def _indices(name: str, position: int, type_: TensorType) -> None:
    if type_.dtype is not DType.I32:
        raise InvalidOperand(f"{name}: operand {position} (indices) must be i32, it is {type_}")


def zeros(b: Builder, type_: TensorType) -> Value:
    return b.constant(0.0, type_.dtype, type_.shape)


# gather and scatter_add: whole slices


def _infer_gather(operands: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
    need_operands("gather", operands, 2)
    x, indices = operands
    axis = need_axis("gather", attributes["axis"], x.rank)
    _indices("gather", 1, indices)
    return [x.with_shape(x.shape[:axis] + indices.shape + x.shape[axis + 1 :])]


def _gather(operands: Sequence[np.ndarray], attributes: Attributes, results: Sequence[TensorType]):
    x, indices = operands
    axis = int(attributes["axis"])
    _in_range(indices, x.shape[axis])
    return [np.take(x, indices, axis=axis)]


def _gather_gradient(b: Builder, op: Operation, d: Sequence[Value | None]) -> list[Value | None]:
    (dy,) = d
    if dy is None:
        return [None, None]
    x, indices = op.operands
    return [b.scatter_add(zeros(b, x.type), indices, dy, axis=op.attributes["axis"]), None]


def _gather_samples() -> Iterable[Sample]:
    for x, indices, axis in (
        (f32(7, 5), i32(4), 0),
        (f32(7, 5), i32(9), 1),
        (f16(6, 8), i32(2, 3), 0),
        (f32(3, 5, 2), i32(2, 2), 1),
        (f16(3, 5), i32(), 1),
        (i32(11), i32(30), 0),
        (f32(4, 3), i32(0), 0),
        (f32(4, 0), i32(3), 0),
        (f32(1, 3), i32(5), 0),
        (boolean(6, 2), i32(3), 0),
        (f32(1500, 3), i32(7), 0),
    ):
        draw = "integers" if not x.dtype.is_float else "normal"
        low, high = (0.0, 2.0) if x.dtype is DType.BOOL else (-50.0, 50.0)
        note = "an index twice" if math.prod(indices.shape) > x.shape[axis] else ""
        yield Sample((Arg(x, draw, low, high), Arg(indices, "integers", 0, x.shape[axis])), {"axis": axis}, note)


register(
    Primitive(
        "gather",
        {"axis": REQUIRED},
        _infer_gather,
        _gather,
        _gather_gradient,
        no_flops,
        _gather_samples,
    )
)


def _infer_scatter_add(operands: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
    need_operands("scatter_add", operands, 3)
    base, indices, updates = operands
    axis = need_axis("scatter_add", attributes["axis"], base.rank)
    _indices("scatter_add", 1, indices)
    wanted = base.with_shape(base.shape[:axis] + indices.shape + base.shape[axis + 1 :])
    if updates != wanted:
        raise InvalidOperand(f"scatter_add: operand 2 (updates) must be {wanted}, it is {updates}")
    if base.dtype is DType.BOOL:
        raise InvalidOperand(f"scatter_add: operand 0 must be a number, it is {base}")
    return [base]


def _scatter_add(operands: Sequence[np.ndarray], attributes: Attributes, results: Sequence[TensorType]):
    base, indices, updates = operands
    axis = int(attributes["axis"])
    _in_range(indices, base.shape[axis])
    total = np.moveaxis(base.copy(), axis, 0)
    flat = updates.reshape((*base.shape[:axis], indices.size, *base.shape[axis + 1 :]))
    np.add.at(total, indices.ravel(), np.moveaxis(flat, axis, 0))
    return [np.moveaxis(total, 0, axis)]


def _in_range(indices: np.ndarray, size: int) -> None:
    if indices.size and (indices.min() < 0 or indices.max() >= size):
        raise IndexError(f"an index lies outside [0, {size})")


def _scatter_add_gradient(b: Builder, op: Operation, d: Sequence[Value | None]) -> list[Value | None]:
    (dy,) = d
    if dy is None:
        return [None, None, None]
    return [dy, None, b.gather(dy, op.operands[1], axis=op.attributes["axis"])]


def _scatter_add_samples() -> Iterable[Sample]:
    for base, indices, axis in (
        (f32(7, 5), i32(4), 0),
        (f32(3, 5), i32(20), 0),
        (f16(6, 8), i32(2, 9), 0),
        (f32(3, 5, 2), i32(2, 2), 1),
        (f16(3, 5), i32(), 1),
        (i32(11), i32(30), 0),
        (f32(4, 3), i32(0), 0),
        (f32(4, 0), i32(3), 0),
    ):
        draw = "normal" if base.dtype.is_float else "integers"
        updates = base.with_shape(base.shape[:axis] + indices.shape + base.shape[axis + 1 :])
        yield Sample(
            (Arg(base, draw, -50, 50), Arg(indices, "integers", 0, base.shape[axis]), Arg(updates, draw, -50, 50)),
            {"axis": axis},
            "repeated indices" if math.prod(indices.shape) > base.shape[axis] else "",
        )


register(
    Primitive(
        "scatter_add",
        {"axis": REQUIRED},
        _infer_scatter_add,
        _scatter_add,
        _scatter_add_gradient,
        lambda operands, results, attributes: operands[2].size if operands[2].dtype.is_float else 0,
        _scatter_add_samples,
    )
)


# gather_elements and scatter_elements: one index for each element


def _within(name: str, x: TensorType, indices: TensorType, axis: int) -> None:
    fits = x.rank == indices.rank and all(
        i == axis or n <= m for i, (n, m) in enumerate(zip(indices.shape, x.shape, strict=True))
    )
    if not fits:
        raise InvalidOperand(
            f"{name}: operand 1 (indices) {indices} must have the rank of operand 0, {x}, and be no longer than it in "
            f"any dimension but {axis}"
        )


def _infer_gather_elements(operands: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
    need_operands("gather_elements", operands, 2)
    x, indices = operands
    axis = need_axis("gather_elements", attributes["axis"], x.rank)
    _indices("gather_elements", 1, indices)
    _within("gather_elements", x, indices, axis)
    return [x.with_shape(indices.shape)]


def cut(x: np.ndarray, shape: Sequence[int], axis: int) -> np.ndarray:
    """The leading corner of ``x`` with the sizes ``shape``, whole along ``axis``."""
    return x[tuple(slice(None) if i == axis else slice(n) for i, n in enumerate(shape))]


def _gather_elements(operands: Sequence[np.ndarray], attributes: Attributes, results: Sequence[TensorType]):
    x, indices = operands
    axis = int(attributes["axis"])
    _in_range(indices, x.shape[axis])
    if not indices.size:
        return [np.zeros(indices.shape, x.dtype)]
    return [np.take_along_axis(cut(x, indices.shape, axis), indices.astype(np.int64), axis)]


def _gather_elements_gradient(b: Builder, op: Operation, d: Sequence[Value | None]) -> list[Value | None]:
    (dy,) = d
    if dy is None:
        return [None, None]
    x, indices = op.operands
    grad = b.scatter_elements(zeros(b, x.type), indices, dy, axis=op.attributes["axis"], reduction="add")
    return [grad, None]


def _element_shapes() -> Iterable[tuple[TensorType, TensorType, int]]:
    yield f32(5, 7), i32(5, 3), 1
    yield f32(5, 7), i32(9, 7), 0
    yield f16(4, 6), i32(3, 11), 1
    yield f32(3, 4, 5), i32(2, 6, 3), 1
    yield f16(9), i32(20), 0
    yield i32(4, 3), i32(4, 2), 1
    yield f32(4, 3), i32(4, 0), 1
    yield f32(3, 1), i32(3, 5), 1


def _gather_elements_samples() -> Iterable[Sample]:
    for x, indices, axis in _element_shapes():
        draw = "normal" if x.dtype.is_float else "integers"
        yield Sample(
            (Arg(x, draw, -50, 50), Arg(indices, "integers", 0, x.shape[axis])),
            {"axis": axis},
            "an index twice" if indices.shape[axis] > x.shape[axis] else "",
        )


register(
    Primitive(
        "gather_elements",
        {"axis": REQUIRED},
        _infer_gather_elements,
        _gather_elements,
        _gather_elements_gradient,
        no_flops,
        _gather_elements_samples,
    )
)


def _infer_scatter_elements(operands: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
    need_operands("scatter_elements", operands, 3)
    base, indices, updates = operands
    axis = need_axis("scatter_elements", attributes["axis"], base.rank)
    _indices("scatter_elements", 1, indices)
    _within("scatter_elements", base, indices, axis)
    if updates != base.with_shape(indices.shape):
        raise InvalidOperand(
            f"scatter_elements: operand 2 (updates) must be {base.with_shape(indices.shape)}, it is {updates}"
        )
    reduction = attributes["reduction"]
    if reduction not in REDUCTIONS:
        raise InvalidOperand(f"scatter_elements: reduction {reduction!r} is not one of {', '.join(REDUCTIONS)}")
    if base.dtype is DType.BOOL and reduction in ("add", "mul"):
        raise InvalidOperand(f"scatter_elements: reduction {reduction!r} needs numbers, operand 0 is {base}")
    return [base]


def scatter_into(total: np.ndarray, index: tuple[np.ndarray, ...], updates: np.ndarray, reduction: str) -> None:
    """Bring ``updates`` into ``total[index]`` one after another, in their order."""
    if reduction == "none":
        # The last of several updates to an element is kept: of equal keys, unique() finds the first of the reverse.
        flat = np.ravel_multi_index(index, total.shape)[::-1]
        keys, last = np.unique(flat, return_index=True)
        total.reshape(-1)[keys] = updates[::-1][last]
        return
    ufunc = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction]
    ufunc.at(total, index, updates)


def _scatter_elements(operands: Sequence[np.ndarray], attributes: Attributes, results: Sequence[TensorType]):
    base, indices, updates = operands
    axis = int(attributes["axis"])
    _in_range(indices, base.shape[axis])
    total = np.ascontiguousarray(base).copy()
    if indices.size:
        place = [grid.ravel() for grid in np.indices(indices.shape)]
        place[axis] = indices.ravel()
        scatter_into(total, tuple(place), updates.ravel(), str(attributes["reduction"]))
    return [total]


def _scatter_elements_gradient(b: Builder, op: Operation, d: Sequence[Value | None]) -> list[Value | None]:
    (dy,) = d
    if dy is None:
        return [None, None, None]
    base, indices, updates = op.operands
    axis, reduction = op.attributes["axis"], op.attributes["reduction"]

    def gathered(x: Value) -> Value:
        return b.gather_elements(x, indices, axis=axis)

    def scattered(start: float, x: Value, how: str) -> Value:
        return b.scatter_elements(b.constant(start, x.dtype, base.shape), indices, x, axis=axis, reduction=how)

    if reduction == "add":
        return [dy, None, gathered(dy)]
    if reduction == "none":
        # Of several updates to one element the last is kept, and it alone has a gradient.
        kept = b.scatter_elements(dy, indices, zeros(b, updates.type), axis=axis, reduction="none")
        turn = b.iota(shape=indices.shape, axis=axis, dtype="i32")
        base_turn = b.constant(-1, DType.I32, base.shape)
        last = b.scatter_elements(base_turn, indices, turn, axis=axis, reduction="none")
        alone = b.select(b.eq(gathered(last), turn), gathered(dy), b.constant(0.0, dy.dtype))
        return [kept, None, alone]
    if reduction == "mul":
        # The product of the others: the product of all that are not zero, over this one; with one zero among them
        # only that one has a gradient, with two none has. Divisions by zero never happen.
        dbase = b.mul(dy, scattered(1.0, updates, "mul"))
        zero = b.eq(updates, b.constant(0.0, updates.dtype))
        one, none = b.constant(1.0, updates.dtype), b.constant(0.0, updates.dtype)
        safe = b.select(zero, one, updates)
        product = gathered(b.scatter_elements(base, indices, safe, axis=axis, reduction="mul"))
        naught = gathered(scattered(0.0, b.cast(zero, dtype=str(updates.dtype)), "add"))
        others = b.sub(naught, b.cast(zero, dtype=str(updates.dtype)))
        alone = b.select(b.eq(others, none), b.div(product, safe), none)
        return [dbase, None, b.mul(gathered(dy), alone)]
    # The gradient of a maximum is shared evenly by all that reach it, the base among them (as in torch).
    y = op.result
    one = b.constant(1.0, base.dtype)
    base_hit = b.cast(b.eq(base, y), dtype=str(base.dtype))
    hit = b.cast(b.eq(updates, gathered(y)), dtype=str(base.dtype))
    share = b.div(dy, b.max(b.add(base_hit, scattered(0.0, hit, "add")), one))
    return [b.mul(share, base_hit), None, b.mul(gathered(share), hit)]


def _scatter_elements_samples() -> Iterable[Sample]:
    for reduction in REDUCTIONS:
        for base, indices, axis in _element_shapes():
            draw = "distinct" if base.dtype.is_float else "integers"
            yield Sample(
                (
                    Arg(base, draw, -50, 50),
                    Arg(indices, "integers", 0, base.shape[axis]),
                    Arg(base.with_shape(indices.shape), draw, -50, 50),
                ),
                {"axis": axis, "reduction": reduction},
                "repeated indices",
            )


register(
    Primitive(
        "scatter_elements",
        {"axis": REQUIRED, "reduction": "none"},
        _infer_scatter_elements,
        _scatter_elements,
        _scatter_elements_gradient,
        lambda operands, results, attributes: (
            operands[2].size if operands[2].dtype.is_float and attributes["reduction"] != "none" else 0
        ),
        _scatter_elements_samples,
    )
)


# embedding and one_hot


def _embedding(b: Builder, operands: Sequence[Value], attributes: Attributes) -> list[Value]:
    need_operands("embedding", [v.type for v in operands], 2)
    weight, indices = operands
    if weight.type.rank != 2:
        raise InvalidOperand(f"embedding: operand 0 (weight) must have two dimensions, it is {weight.type}")
    return [b.gather(weight, indices, axis=0)]


def _embedding_gradient(b: Builder, op: Operation, d: Sequence[Value | None]) -> list[Value | None]:
    (dy,) = d
    if dy is None:
        return [None, None]
    weight, indices = op.operands
    padding = op.attributes["padding_index"]
    if padding is not None:
        used = b.ne(indices, b.constant(int(padding), DType.I32))
        used = b.reshape(used, shape=(*indices.shape, 1))
        dy = b.select(used, dy, b.constant(0.0, dy.dtype))
    return [b.scatter_add(zeros(b, weight.type), indices, dy, axis=0), None]


def _embedding_samples() -> Iterable[Sample]:
    for weight, indices, padding in (
        (f32(10, 6), i32(4), None),
        (f32(5, 3), i32(2, 7), 2),
        (f16(9, 8), i32(3, 4), 0),
        (f32(5, 3), i32(0), None),
        (f32(5, 3), i32(), 1),
    ):
        yield Sample((Arg(weight), Arg(indices, "integers", 0, weight.shape[0])), {"padding_index": padding})


register(Composite("embedding", {"padding_index": None}, _embedding, _embedding_samples, _embedding_gradient))


def _one_hot(b: Builder, operands: Sequence[Value], attributes: Attributes) -> list[Value]:
    need_operands("one_hot", [v.type for v in operands], 1)
    (indices,) = operands
    _indices("one_hot", 0, indices.type)
    classes = b.iota(shape=(attributes["classes"],), axis=0, dtype="i32")
    hit = b.eq(b.reshape(indices, shape=(*indices.shape, 1)), classes)
    return [b.cast(hit, dtype=attributes["dtype"])]


def _one_hot_samples() -> Iterable[Sample]:
    for indices, classes, dtype in (
        (i32(5), 7, "f32"),
        (i32(2, 3), 4, "f16"),
        (i32(), 3, "i32"),
        (i32(0), 3, "f32"),
        (i32(4), 1, "f32"),
    ):
        yield Sample((Arg(indices, "integers", 0, classes),), {"classes": classes, "dtype": dtype})


register(
    Composite(
        "one_hot",
        {"classes": REQUIRED, "dtype": "f32"},
        _one_hot,
        _one_hot_samples,
        NotDifferentiable("its operand is an index"),
    )
)

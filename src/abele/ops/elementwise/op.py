"""Elementwise primitives: the tables of functions, ``select``, ``cast``, ``fill`` and ``iota``; all broadcast as NumPy.

Operands of one operation have one dtype, which is the result's too; comparisons and tests give bool.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from abele.errors import InvalidOperand
from abele.ir.builder import Builder
from abele.ir.float8 import to_float8
from abele.ir.graph import Operation, Value
from abele.ir.operation import (
    REQUIRED,
    Arg,
    Gradient,
    NotDifferentiable,
    Primitive,
    Sample,
    register,
)
from abele.ir.types import DType, TensorType, boolean, f16, f32, i32
from abele.ops.elementwise.functions import BINARY, UNARY, WORDS, Derive, Function, allowed
from abele.ops.rules import (
    Attributes,
    broadcast,
    dtype_attribute,
    like,
    need_axis,
    need_dtype,
    need_operands,
    need_same_dtype,
    no_flops,
    to_float,
    unbroadcast,
)

LINEAR = ("add", "sub")
"""Functions whose gradient is the result's own, up to sign: nothing is rounded before it is summed."""


def pointwise_gradient(derive: Derive, *, once: bool = False, again: str = "") -> Gradient:
    """The gradient slot of an elementwise operation from a rule in float.

    Half operands are taken to float first and the gradients rounded once, after they are summed over what was
    broadcast. With ``again`` the rule gets the result computed anew in float by that primitive, since the rounded one
    is too coarse for rules such as tanh's. ``once`` says that the rule rounds once as it is written.
    """

    def gradient(b: Builder, op: Operation, given: Sequence[Value | None]) -> Sequence[Value | None]:
        (dy,), y = given, op.result
        assert dy is not None
        repeated = any(v.shape != y.shape for v in op.operands)
        detour = y.dtype is DType.F16 and not (once and (not repeated or op.name in LINEAR))
        operands = list(op.operands)
        if detour:
            operands, dy = [to_float(b, v) for v in operands], to_float(b, dy)
            y = b.emit(again, operands, op.attributes)[0] if again else to_float(b, y)
        found = derive(b, dy, operands, y)
        return [
            None if g is None or not v.dtype.is_float else b.cast_to(unbroadcast(b, g, v.shape), v.dtype)
            for g, v in zip(found, op.operands, strict=True)
        ]

    return gradient


def _make(f: Function) -> Primitive:
    def infer(operands: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        need_operands(f.name, operands, f.arity)
        need_dtype(f.name, operands, allowed(f.kinds), WORDS[f.kinds])
        dtype = need_same_dtype(f.name, operands)
        return (TensorType(broadcast(f.name, operands), DType.BOOL if f.truth else dtype),)

    def reference(operands: Sequence[np.ndarray], attributes: Attributes, results: Sequence[TensorType]):
        return (f.compute(*operands),)

    def flops(operands: Sequence[TensorType], results: Sequence[TensorType], attributes: Attributes) -> int:
        return f.flops * results[0].size if operands[0].dtype.is_float else 0

    gradient = f.gradient
    if not isinstance(gradient, NotDifferentiable):
        gradient = pointwise_gradient(gradient, once=f.once, again=f.name)
    return Primitive(
        f.name, {}, infer, reference, gradient, flops, lambda: _samples(f), traits=frozenset({"elementwise"})
    )


def argument(type: TensorType, domain: tuple[float, float] = (-2.0, 2.0)) -> Arg:
    """An operand of a sample with values of ``domain`` that suit its dtype."""
    low, high = domain
    if type.dtype is DType.BOOL:
        return Arg(type, "boolean")
    if type.dtype.is_float:
        return Arg(type, "uniform", low, high)
    return Arg(type, "integers", max(low, 0.0) if type.dtype in (DType.U8, DType.U32) else low, high + 1)


SHAPES: dict[int, tuple[tuple[tuple[int, ...], ...], ...]] = {
    1: (((3, 5),), ((),), ((0, 4),), ((2, 67),)),
    2: (
        ((4, 3), (4, 3)),
        ((2, 9, 16), (16,)),
        ((3, 1), (1, 5)),
        ((), (5,)),
        ((0, 3), (3,)),
    ),
    3: (((4, 3), (4, 3), (4, 3)), ((2, 1, 5), (3, 1), ()), ((0,), (0,), (1,))),
}
"""Shapes of the operands of samples, by their number: plain, broadcast both ways, scalar, empty, odd."""


def _samples(f: Function) -> Iterable[Sample]:
    domain = f.domain or ((-3.0, 3.0),) * f.arity
    dtypes = [d for d in (DType.F32, DType.F16, DType.I32, DType.U8, DType.BOOL) if allowed(f.kinds)(d)]
    for shapes in SHAPES[f.arity]:
        types = [TensorType(s, dtypes[0]) for s in shapes]
        yield Sample(tuple(argument(t, d) for t, d in zip(types, domain, strict=True)), {})
    for dtype in dtypes[1:]:
        for shapes in (SHAPES[f.arity][0], SHAPES[f.arity][1])[: 2 if dtype is DType.F16 else 1]:
            types = [TensorType(s, dtype) for s in shapes]
            yield Sample(tuple(argument(t, d) for t, d in zip(types, domain, strict=True)), {})


for _function in (*UNARY, *BINARY):
    register(_make(_function))


# select


def _infer_select(operands: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    need_operands("select", operands, 3)
    need_dtype("select", operands[:1], allowed("bool"), "bool (the condition)")
    dtype = need_same_dtype("select (after the condition)", operands[1:])
    return (TensorType(broadcast("select", operands), dtype),)


def _select(b: Builder, dy: Value, operands: Sequence[Value], y: Value):
    condition, none = operands[0], like(b, 0.0, dy)
    return None, b.select(condition, dy, none), b.select(condition, none, dy)


def _select_samples() -> Iterable[Sample]:
    for shapes in SHAPES[3]:
        yield Sample((Arg(boolean(*shapes[0]), "boolean"), Arg(f32(*shapes[1])), Arg(f32(*shapes[2]))), {})
    yield Sample((Arg(boolean(33), "boolean"), Arg(f16(33)), Arg(f16(33))), {})
    yield Sample((Arg(boolean(2, 9), "boolean"), argument(i32(9), (-9, 9)), argument(i32(2, 1), (-9, 9))), {})


register(
    Primitive(
        "select",
        {},
        _infer_select,
        lambda operands, attributes, results: (np.where(*operands),),
        pointwise_gradient(_select, once=True),
        no_flops,
        _select_samples,
        traits=frozenset({"elementwise"}),
    )
)


# cast


def convert(array: np.ndarray, dtype: DType) -> np.ndarray:
    """``array`` as ``dtype``: floats to integers go toward zero, what is out of range to the nearest end, nan to 0."""
    if dtype is DType.BOOL:
        return np.asarray(array) != 0
    if dtype.is_float8:
        return to_float8(array, dtype)
    if np.asarray(array).dtype.kind == "f" and dtype.is_integer:
        ends = np.iinfo(dtype.numpy)
        return np.clip(np.trunc(np.nan_to_num(array, posinf=np.inf, neginf=-np.inf)), ends.min, ends.max).astype(
            dtype.numpy
        )
    return np.asarray(array).astype(np.float64 if dtype.is_float else dtype.numpy)


def _infer_cast(operands: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    need_operands("cast", operands, 1)
    return (operands[0].with_dtype(dtype_attribute("cast", attributes)),)


def _cast_gradient(b: Builder, op: Operation, given: Sequence[Value | None]) -> Sequence[Value | None]:
    (dy,), (x,) = given, op.operands
    assert dy is not None
    return (b.cast_to(dy, x.dtype) if x.dtype.is_float and dy.dtype.is_float else None,)


def _cast_samples() -> Iterable[Sample]:
    pairs = "f32 f16, f16 f32, f32 i32, i32 f32, f16 i8, i8 f16, f32 bool, bool f32, i32 u8, u8 i32, u32 f32, f32 f32"
    for pair in pairs.split(", "):
        source, to = pair.split()
        yield Sample((argument(TensorType((5, 9), DType(source)), (-90.0, 90.0)),), {"dtype": to})
    yield Sample((Arg(f32(0, 3)),), {"dtype": "f16"})
    yield Sample((Arg(f32()),), {"dtype": "f16"})


register(
    Primitive(
        "cast",
        {"dtype": REQUIRED},
        _infer_cast,
        lambda operands, attributes, results: (convert(operands[0], DType(str(attributes["dtype"]))),),
        _cast_gradient,
        no_flops,
        _cast_samples,
        traits=frozenset({"elementwise"}),
    )
)


# fill and iota


def _made(name: str, operands: Sequence[TensorType], attributes: Attributes) -> TensorType:
    need_operands(name, operands, 0)
    shape = attributes["shape"]
    if not isinstance(shape, tuple) or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise InvalidOperand(f"{name} has shape {shape!r}; it must be a list of sizes")
    dtype = dtype_attribute(name, attributes)
    if dtype.is_float8:
        raise InvalidOperand(f"{name} cannot make {dtype}", remedy="Make f16 and cast it.")
    return TensorType(shape, dtype)


def _infer_iota(operands: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    made = _made("iota", operands, attributes)
    need_axis("iota", attributes["axis"], made.rank)
    return (made,)


def count(length: int, first: int, attributes: Attributes) -> np.ndarray:
    """``length`` numbers of an iota, from its index ``first``."""
    return attributes["start"] + attributes["step"] * np.arange(first, first + length)


def _iota(operands: Sequence[np.ndarray], attributes: Attributes, results: Sequence[TensorType]):
    shape, axis = results[0].shape, int(attributes["axis"])
    numbers = count(shape[axis], 0, attributes)
    return (np.broadcast_to(numbers.reshape((-1,) + (1,) * (len(shape) - axis - 1)), shape),)


CONSTANT = NotDifferentiable("it has no operands")

register(
    Primitive(
        "fill",
        {"value": REQUIRED, "dtype": REQUIRED, "shape": REQUIRED},
        lambda operands, attributes: (_made("fill", operands, attributes),),
        lambda operands, attributes, results: (np.full(results[0].shape, attributes["value"]),),
        CONSTANT,
        no_flops,
        lambda: [
            Sample((), {"value": value, "dtype": dtype, "shape": shape})
            for value, dtype, shape in (
                (1.5, "f32", (3, 7)),
                (float("-inf"), "f16", (65,)),
                (-7, "i32", ()),
                (True, "bool", (2, 2)),
                (0.0, "f32", (0, 3)),
            )
        ],
        traits=frozenset({"constant", "any_strides"}),
    )
)
register(
    Primitive(
        "iota",
        {"shape": REQUIRED, "axis": REQUIRED, "dtype": REQUIRED, "start": 0, "step": 1},
        _infer_iota,
        _iota,
        CONSTANT,
        no_flops,
        lambda: [
            Sample((), {"shape": shape, "axis": axis, "dtype": dtype, "start": start, "step": step})
            for shape, axis, dtype, start, step in (
                ((40,), 0, "i32", 0, 1),
                ((3, 50), 1, "f32", 2, 3),
                ((30, 3), 0, "i32", 5, -1),
                ((0, 2), 0, "i32", 0, 1),
                ((9,), 0, "f16", 0, 2),
            )
        ],
        traits=frozenset({"constant"}),
    )
)

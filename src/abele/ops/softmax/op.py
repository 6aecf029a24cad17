"""Softmax and log-softmax along one axis, and their gradients from the result. The arithmetic is in f32.

A *safe* softmax gives zeros for a row of minus infinities, which else is NaN: the row's maximum is taken to be finite,
and the sum, which is at least 1 for all other rows, to be no less than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from abele.errors import InvalidOperand
from abele.ir import REQUIRED, Arg, Builder, Composite, DType, Operation, Sample, Value, register
from abele.ir.operation import Attributes
from abele.ir.types import f16, f32
from abele.ops.rules import LOWEST


def to_f32(b: Builder, x: Value) -> Value:
    """``x`` in f32."""
    return x if x.dtype is DType.F32 else b.cast(x, dtype="f32")


def to_dtype(b: Builder, x: Value, dtype: DType) -> Value:
    """``x`` in ``dtype``."""
    return x if x.dtype is dtype else b.cast(x, dtype=str(dtype))


def _axis(name: str, operands: Sequence[Value], attributes: Attributes) -> int:
    """The axis, counted from the front; raises ``InvalidOperand`` when an operand does not fit."""
    first = operands[0].type
    axis = attributes["axis"]
    if not first.dtype.is_float:
        raise InvalidOperand(f"Operand 0 of {name} is {first}", remedy="Cast it to f32 or f16 first.")
    if not isinstance(axis, int) or not -first.rank <= axis < first.rank:
        raise InvalidOperand(f"axis {axis} of {name} on {first}", remedy=f"It lies from 0 to {first.rank - 1}.")
    for position, value in enumerate(operands):
        if value.type != first:
            raise InvalidOperand(f"Operand {position} of {name} is {value.type}, operand 0 is {first}")
    return axis % first.rank


def _softmax(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    axes = (_axis("softmax", operands, attributes),)
    (x,) = operands
    wide = to_f32(b, x)
    most = b.reduce_max(wide, axes=axes, keep=True)
    if attributes.get("safe"):
        most = b.max(most, b.constant(LOWEST, DType.F32))
    e = b.exp(b.sub(wide, most))
    total = b.reduce_sum(e, axes=axes, keep=True)
    if attributes.get("safe"):
        total = b.max(total, b.constant(1.0, DType.F32))
    return (to_dtype(b, b.div(e, total), x.dtype),)


def _log_softmax(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    axes = (_axis("log_softmax", operands, attributes),)
    (x,) = operands
    wide = to_f32(b, x)
    z = b.sub(wide, b.reduce_max(wide, axes=axes, keep=True))
    total = b.reduce_sum(b.exp(z), axes=axes, keep=True)
    return (to_dtype(b, b.sub(z, b.log(total)), x.dtype),)


def _softmax_grad(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    axes = (_axis("softmax_grad", operands, attributes),)
    dy, y = (to_f32(b, v) for v in operands)
    total = b.reduce_sum(b.mul(dy, y), axes=axes, keep=True)
    return (to_dtype(b, b.mul(y, b.sub(dy, total)), operands[0].dtype),)


def _log_softmax_grad(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    axes = (_axis("log_softmax_grad", operands, attributes),)
    dy, y = (to_f32(b, v) for v in operands)
    total = b.reduce_sum(dy, axes=axes, keep=True)
    return (to_dtype(b, b.sub(dy, b.mul(b.exp(y), total)), operands[0].dtype),)


def _softmax_gradient(b: Builder, op: Operation, outer: Sequence[Value | None]) -> Sequence[Value | None]:
    (dy,) = outer
    return (None if dy is None else b.softmax_grad(dy, op.result, axis=op.attributes["axis"]),)


def _log_softmax_gradient(b: Builder, op: Operation, outer: Sequence[Value | None]) -> Sequence[Value | None]:
    """From the result; in half from the operand, since a logarithm rounded to half is off by up to 0.4 % in ``exp``."""
    (dy,), (x,) = outer, op.operands
    if dy is None:
        return (None,)
    if x.dtype is DType.F32:
        return (b.log_softmax_grad(dy, op.result, **op.attributes),)
    y = b.log_softmax(to_f32(b, x), **op.attributes)
    return (to_dtype(b, b.log_softmax_grad(to_f32(b, dy), y, **op.attributes), x.dtype),)


def _samples(count: int):
    def samples() -> Iterable[Sample]:
        for type_, axis in (
            (f32(3, 5), 1),
            (f32(5, 3), 0),
            (f16(7, 33), 1),
            (f32(2, 3, 4), 1),
            (f16(2, 1, 9), -1),
            (f32(4), 0),
            (f32(0, 3), 1),
        ):
            yield Sample((Arg(type_),) * count, {"axis": axis}, f"{type_} along {axis}")

    return samples


def _softmax_samples() -> Iterable[Sample]:
    yield from _samples(1)()
    yield Sample((Arg(f32(3, 5)),), {"axis": 1, "safe": True}, "safe")


_AXIS = {"axis": REQUIRED}

register(Composite("softmax", _AXIS | {"safe": False}, _softmax, _softmax_samples, _softmax_gradient))
register(Composite("log_softmax", _AXIS, _log_softmax, _samples(1), _log_softmax_gradient))
register(Composite("softmax_grad", _AXIS, _softmax_grad, _samples(2)))
register(Composite("log_softmax_grad", _AXIS, _log_softmax_grad, _samples(2)))

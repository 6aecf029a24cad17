"""What the ``op`` modules of all families share: checks of operands, broadcasting, and steps that gradients repeat.

Imports the ``ir`` and NumPy alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from abele.errors import InvalidOperand
from abele.ir.builder import Builder
from abele.ir.graph import Attributes, Value
from abele.ir.types import DType, TensorType

LOWEST = float(np.finfo(np.float32).min)
"""The least finite float."""


def need_operands(name: str, operands: Sequence[TensorType], count: int) -> None:
    """Raise unless there are ``count`` operands."""
    if len(operands) != count:
        raise InvalidOperand(f"{name} takes {count} operand{'s' * (count != 1)}, not {len(operands)}")


def need_same_dtype(name: str, operands: Sequence[TensorType]) -> DType:
    """The one dtype of all operands."""
    for i, t in enumerate(operands):
        if t.dtype != operands[0].dtype:
            raise InvalidOperand(
                f"Operand {i} of {name} is {t}, but operand 0 is {operands[0]}",
                remedy="Operands of one operation have one dtype; put a cast before it.",
            )
    return operands[0].dtype


def need_dtype(name: str, operands: Sequence[TensorType], allowed: Callable[[DType], bool], kind: str) -> None:
    """Raise unless ``allowed`` holds for the dtype of each operand; ``kind`` says in words what it asks."""
    for i, t in enumerate(operands):
        if not allowed(t.dtype):
            raise InvalidOperand(f"Operand {i} of {name} is {t}; it must be {kind}")


def is_float(dtype: DType) -> bool:
    return dtype.is_float


def need_axis(name: str, axis: Any, rank: int) -> int:
    """``axis`` when it is a dimension, counted from the front."""
    if not isinstance(axis, int) or not 0 <= axis < rank:
        raise InvalidOperand(f"{name} has axis {axis!r}; its operand has dimensions 0 to {rank - 1}")
    return axis


def dtype_attribute(name: str, attributes: Attributes) -> DType:
    """The attribute ``dtype``; raises ``InvalidOperand`` when it is none of the machine's types."""
    if attributes["dtype"] not in tuple(DType):
        raise InvalidOperand(f"{name} has dtype {attributes['dtype']!r}", remedy=f"Known: {', '.join(DType)}.")
    return DType(str(attributes["dtype"]))


def extents(kernel: Sequence[int], dilation: Sequence[int]) -> tuple[int, ...]:
    """How many input positions a window spans in every dimension."""
    return tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))


def broadcast(name: str, operands: Sequence[TensorType]) -> tuple[int, ...]:
    """The shape to which the operands broadcast, dimensions aligned from the last as in NumPy."""
    rank = max((t.rank for t in operands), default=0)
    shape = [1] * rank
    for i, t in enumerate(operands):
        for d, size in enumerate(t.shape, rank - t.rank):
            if size != 1 and shape[d] not in (1, size):
                before = " and ".join(map(str, operands[:i]))
                raise InvalidOperand(f"Operand {i} of {name}, {t}, does not broadcast with {before} (dimension {d})")
            if size != 1:
                shape[d] = size
    return tuple(shape)


def unbroadcast(b: Builder, gradient: Value, shape: tuple[int, ...]) -> Value:
    """The gradient of a tensor of ``shape`` that was broadcast to ``gradient``'s shape: sums over what was repeated."""
    if gradient.shape == shape:
        return gradient
    extra = len(gradient.shape) - len(shape)
    axes = tuple(range(extra)) + tuple(
        extra + i for i, size in enumerate(shape) if size == 1 and gradient.shape[extra + i] != 1
    )
    if axes:
        gradient = b.reduce_sum(gradient, axes=axes, keep=True)
    return b.reshape(gradient, shape=shape) if gradient.shape != shape else gradient


def to_float(b: Builder, value: Value) -> Value:
    """A half value as float, anything else as it is: composites compute in float and round once."""
    return b.cast(value, dtype="f32") if value.dtype is DType.F16 else value


def in_float(body: Callable[..., Value]) -> Callable[[Builder, Sequence[Value], Attributes], Sequence[Value]]:
    """The expansion of an elementwise composite: ``body(builder, *operands, attributes)`` in float, rounded once."""

    def expand(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
        dtype = operands[0].dtype
        return (b.cast_to(body(b, *(to_float(b, v) for v in operands), attributes), dtype),)

    return expand


def like(b: Builder, number: float, value: Value) -> Value:
    """A scalar constant of the dtype of ``value``."""
    return b.constant(number if value.dtype.is_float else int(number), value.dtype)


def no_flops(operands: Sequence[TensorType], results: Sequence[TensorType], attributes: Attributes) -> int:
    """What only moves, makes or marks a tensor computes nothing."""
    return 0


def float8_product(operation: str, operands: Sequence[TensorType], attributes: Attributes) -> bool:
    """Whether a product's operands are 8-bit floats, of one kind or both; they are summed in half, else it raises."""
    if not operands or not all(type_.dtype.is_float8 for type_ in operands):
        return False
    if attributes["partials"] != "f16":
        raise InvalidOperand(
            f"{operation} cannot sum products of 8-bit floats in {attributes['partials']!r}",
            remedy="They are summed in 'f16'.",
        )
    return True


def product_type(operand: TensorType) -> DType:
    """The element type of a product of such an operand: its own, half for 8-bit floats."""
    return DType.F16 if operand.dtype.is_float8 else operand.dtype

"""What the rules emit with: a graph builder, the types that torch gives the results, and small conveniences.

Every convenience emits nothing where it would change nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from abele.errors import InvalidOperand
from abele.importers.torch.dtypes import machine_dtype
from abele.ir import Builder, DType, TensorType, Value

Operand = Value | int | float | bool


class Emitter:
    """``b``: the builder. ``outs``: the types of the results of the operation being translated, as torch gives
    them. ``meta``: its arguments as meta tensors, for rules that ask torch about types."""

    def __init__(self, constant: Callable[[np.ndarray], Value], key: Callable[[], Value]) -> None:
        self.b = Builder("main")
        self.outs: list[TensorType] = []
        self.meta: tuple = ()
        self.name = ""
        self._constant = constant
        self._key = key
        self._transposed: dict[Value, Value] = {}
        self._expanded: dict[Value, Value] = {}
        self._true: set[Value] = set()

    @property
    def out(self) -> TensorType:
        """The type of the first result."""
        return self.outs[0]

    # Types

    def promoted(self, a: Any, b: Any) -> DType:
        """The machine type in which torch computes with two arguments (tensors or numbers)."""
        return machine_dtype(torch.result_type(a, b))

    def cast(self, x: Value, dtype: DType) -> Value:
        return x if x.dtype is dtype else self.b.cast(x, dtype=str(dtype))

    def number(self, value: float | int | bool, dtype: DType, shape: Sequence[int] = ()) -> Value:
        """A tensor filled with one number, in this type."""
        if dtype is DType.BOOL:
            value = bool(value)
        elif dtype.is_float:
            value = float(value)
        else:
            value = int(value)
            if dtype is DType.I32 and not -(2**31) <= value < 2**31:
                raise InvalidOperand(
                    f"The number {value} is used with integers, and those of the machine have 32 bits",
                    remedy="Keep it within those of a 32-bit integer, or compute in float.",
                )
        made = self.b.constant(value, dtype, shape)
        if value is True:
            self._true.add(made)
        return made

    def operand(self, x: Operand, dtype: DType | None = None) -> Value:
        """A tensor operand, or a number made one, in this type (default: that of the result)."""
        dtype = dtype or self.out.dtype
        return self.cast(x, dtype) if isinstance(x, Value) else self.number(x, dtype)

    def unary(self, name: str, x: Operand, **attributes: Any) -> Value:
        """An elementwise operation computed in the type of the result."""
        return self.emit(name, self.operand(x), **attributes)

    def binary(self, name: str, a: Operand, b: Operand, dtype: DType | None = None) -> Value:
        """An elementwise operation on two operands in one type (default: that of the result)."""
        return self.emit(name, self.operand(a, dtype), self.operand(b, dtype))

    def emit(self, name: str, *operands: Value, **attributes: Any) -> Any:
        """Any operation: one value, or a tuple of them."""
        results = self.b.emit(name, operands, attributes)
        return results[0] if len(results) == 1 else results

    # Values known now

    def constant(self, array: np.ndarray) -> Value:
        """A tensor of known values: a fill, an iota, or a state input of the graph."""
        return self._constant(array)

    def key(self) -> Value:
        """A random key that no other operation has."""
        return self._key()

    # Shapes

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        return x if x.shape == tuple(shape) else self.b.reshape(x, shape=tuple(shape))

    def expand(self, x: Value, shape: Sequence[int]) -> Value:
        """NumPy's broadcast_to."""
        if x.shape == tuple(shape):
            return x
        result = self.b.expand(x, shape=tuple(shape))
        self._expanded[result] = self._expanded.get(x, x)
        return result

    def unexpanded(self, x: Value) -> Value:
        """What ``x`` was expanded from, for operations that broadcast anyway: of the same rank; else ``x`` itself."""
        source = self._expanded.get(x, x)
        return self.reshape(source, (1,) * (len(x.shape) - len(source.shape)) + source.shape)

    def both(self, a: Value, b: Value) -> Value:
        """``a and b`` of bools, without the operation where one is known to be true throughout."""
        shape = np.broadcast_shapes(a.shape, b.shape)
        for one, other in ((a, b), (b, a)):
            if one in self._true:
                return self.expand(other, shape)
        return self.emit("logical_and", a, b)

    def transpose(self, x: Value, permutation: Sequence[int]) -> Value:
        order = tuple(permutation)
        rank = len(order)
        if order == tuple(range(rank)):
            return x
        result = self.b.transpose(x, permutation=order)
        if rank >= 2 and order == (*range(rank - 2), rank - 1, rank - 2):
            self._transposed[result] = x
        return result

    def slice(self, x: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
        if (start, stop, step) == (0, x.shape[axis], 1):
            return x
        rank = len(x.shape)
        starts, stops, steps = [0] * rank, list(x.shape), [1] * rank
        starts[axis], stops[axis], steps[axis] = start, stop, step
        return self.b.slice(x, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))

    def crop(self, x: Value, shape: Sequence[int]) -> Value:
        """The corner of ``x`` at the origin with this shape."""
        if x.shape == tuple(shape):
            return x
        return self.b.slice(x, starts=(0,) * len(shape), stops=tuple(shape), steps=(1,) * len(shape))

    def concat(self, parts: Sequence[Value], axis: int) -> Value:
        parts = [p for p in parts if p.shape[axis]] or list(parts[:1])
        return parts[0] if len(parts) == 1 else self.b.concat(*parts, axis=axis)

    def replace(self, x: Value, axis: int, start: int, stop: int, part: Value) -> Value:
        """``x`` with the elements ``start`` to ``stop`` of one axis replaced."""
        tail = [self.slice(x, axis, stop, x.shape[axis])] if stop < x.shape[axis] else []
        head = [self.slice(x, axis, 0, start)] if start else []
        return self.concat([*head, part, *tail], axis)

    def broadcast_vector(self, x: Value, rank: int, axis: int) -> Value:
        """A vector shaped so that it broadcasts along ``axis`` of a tensor of this rank."""
        shape = [1] * rank
        shape[axis] = math.prod(x.shape)
        return self.reshape(x, shape)

    # Products

    def matmul(self, a: Value, b: Value) -> Value:
        """Matrix product of operands of rank 2 and more; a transposed operand becomes a flag."""
        flags = {}
        if a in self._transposed:
            a, flags["transpose_a"] = self._transposed[a], True
        if b in self._transposed:
            b, flags["transpose_b"] = self._transposed[b], True
        return self.b.matmul(a, b, **flags)


def axis_of(dim: int, rank: int) -> int:
    """A dimension that may count from the end, as an axis."""
    return dim % max(rank, 1)


def axes_of(dims: Sequence[int] | int | None, rank: int) -> tuple[int, ...]:
    """Sorted axes; ``None`` and an empty list mean all of them."""
    if dims is None or (not isinstance(dims, int) and not len(dims)):
        return tuple(range(rank))
    if isinstance(dims, int):
        dims = (dims,)
    return tuple(sorted(axis_of(d, rank) for d in dims)) if rank else ()

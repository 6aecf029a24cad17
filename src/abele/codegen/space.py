"""Iteration spaces: merging dimensions, and walking what remains with addresses that follow."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from abele.codegen.emit import Function, Value, element
from abele.codegen.expression import from_memory, load_type, to_memory
from abele.errors import InvalidOperand

Strides = tuple[int, ...]


def contiguous(shape: Sequence[int]) -> Strides:
    """Row-major strides of a shape, in elements."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def check(shape: Sequence[int], strides: Sequence[Strides]) -> None:
    """Every operand has one stride per dimension."""
    for s in strides:
        if len(s) != len(shape):
            raise InvalidOperand(f"an operand has strides {s} in an iteration space of shape {tuple(shape)}")


def collapse(
    shape: Sequence[int], strides: Sequence[Strides], kinds: Sequence[object] | None = None
) -> tuple[tuple[int, ...], list[Strides], list[object]]:
    """The same walk in as few dimensions as possible.

    Dimensions of size 1 go; two neighbours become one when every operand steps through them evenly and they
    are of one kind (``kinds`` tells, for example, kept dimensions from reduced ones).
    """
    marks = list(kinds) if kinds is not None else [None] * len(shape)
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    kept: list[object] = []
    for dim, size in enumerate(shape):
        if size == 1:
            continue
        here = [s[dim] for s in strides]
        if sizes and kept[-1] == marks[dim] and all(t[-1] == h * size for t, h in zip(steps, here)):
            sizes[-1] *= size
            for t, h in zip(steps, here):
                t[-1] = h
        else:
            sizes.append(size)
            kept.append(marks[dim])
            for t, h in zip(steps, here):
                t.append(h)
    return tuple(sizes), [tuple(t) for t in steps], kept


def permute(order: Sequence[int], values: Sequence[int]) -> tuple[int, ...]:
    return tuple(values[i] for i in order)


def lanes_for(size: int, most: int) -> int:
    """Lanes worth having for a dimension of this size: a power of two, at most ``most``."""
    return min(most, 1 << max(size - 1, 0).bit_length())


def coordinates(position: Value, shape: Sequence[int]) -> list[Value]:
    """The row-major coordinates of a position in ``shape``."""
    found: list[Value] = []
    fn = position.fn
    for size in reversed(shape[1:]):
        found.append(fn.emit("i64", f"urem i64 {position.text}, {size}"))
        position = fn.emit("i64", f"udiv i64 {position.text}, {size}")
    return [position, *reversed(found)] if shape else []


def offset(fn: Function, at: Sequence[Value], strides: Sequence[int]) -> Value:
    """The sum of coordinates times strides."""
    total = fn.const(0, "i64")
    for c, s in zip(at, strides, strict=True):
        if s:
            total = total + (c if s == 1 else c * s)
    return total


def nest(
    fn: Function,
    shape: Sequence[int],
    at: Sequence[Value],
    carried: Sequence[Value],
    body: Callable[..., Sequence[Value] | None],
) -> list[Value]:
    """Loops over ``shape``; ``body(coordinates, *carried)`` gives the next carried values."""
    if not shape:
        return list(body(at, *carried) or ())
    return fn.loop(0, shape[0], 1, carried, lambda i, *c: nest(fn, shape[1:], [*at, i], c, body))


class Row:
    """One operand along the vectorised dimension: reads and writes ``lanes`` elements at a position."""

    def __init__(self, fn: Function, base: Value, dtype: str, stride: int, lanes: int) -> None:
        self.fn, self.base, self.dtype, self.stride, self.lanes = fn, base, dtype, stride, lanes
        self.type = load_type(dtype, lanes)
        self._splat: Value | None = None

    def hoist(self) -> None:
        """Reads a broadcast operand once, here."""
        if self.stride == 0 and self._splat is None:
            loaded = self.fn.load(element(self.type), self.base).splat(self.lanes)
            self._splat = from_memory(loaded, self.dtype)

    def read(self, i: Value, mask: Value | None) -> Value:
        if self._splat is not None:
            return self._splat
        if self.stride == 0:
            loaded = self.fn.load(element(self.type), self.base).splat(self.lanes)
        elif self.stride == 1 or self.lanes == 1:
            where = self.fn.offset(self.base, i if self.stride == 1 else i * self.stride, element(self.type))
            loaded = self.fn.load(self.type, where, mask)
        else:
            where = self.fn.offset(self.base, i * self.stride, element(self.type))
            loaded = self.fn.gather(self.type, where, self._steps(), self._mask(mask))
        return from_memory(loaded, self.dtype)

    def write(self, value: Value, i: Value, mask: Value | None) -> None:
        value = to_memory(value, self.dtype)
        where = self.fn.offset(self.base, i if self.stride == 1 else i * self.stride, element(self.type))
        if self.stride == 1 or self.lanes == 1:
            self.fn.store(value, where, mask)
        else:
            self.fn.scatter(value, where, self._steps(), self._mask(mask))

    def _steps(self) -> Value:
        return self.fn.lane_numbers("i64", self.lanes) * self.stride

    def _mask(self, mask: Value | None) -> Value:
        return mask or self.fn.first_lanes(self.lanes, self.lanes)

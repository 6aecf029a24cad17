"""Stacking, rolling, triangles and repetition, made of the primitives that move elements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from abele.errors import InvalidOperand
from abele.ir.builder import Builder
from abele.ir.graph import Value
from abele.ir.operation import REQUIRED, Arg, Composite, Sample, register
from abele.ir.types import f16, f32, i32
from abele.ops.rules import (
    Attributes,
    like,
    need_axis,
)
from abele.ops.shape.op import numbers


def _stack(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    shapes = {v.shape for v in operands}
    if len(shapes) != 1:
        raise InvalidOperand(f"stack of {' and '.join(str(v.type) for v in operands)}: the shapes differ")
    shape = operands[0].shape
    axis = need_axis("stack", attributes["axis"], len(shape) + 1)
    longer = (*shape[:axis], 1, *shape[axis:])
    return (b.concat(*(b.reshape(v, shape=longer) for v in operands), axis=axis),)


def piece(b: Builder, x: Value, axis: int, start: int, stop: int) -> Value:
    """``x[start:stop]`` along one axis."""
    starts, stops = [0] * len(x.shape), list(x.shape)
    starts[axis], stops[axis] = start, stop
    return b.slice(x, starts=tuple(starts), stops=tuple(stops), steps=(1,) * len(x.shape))


def _roll(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    (x,) = operands
    axes = numbers("roll", attributes, "axes")
    for shift, axis in zip(numbers("roll", attributes, "shifts", len(axes)), axes, strict=True):
        size = x.shape[need_axis("roll", axis, len(x.shape))]
        cut = size - shift % size if size else 0
        if 0 < cut < size:
            x = b.concat(piece(b, x, axis, cut, size), piece(b, x, axis, 0, cut), axis=axis)
    return (x if x is not operands[0] else b.reshape(x, shape=x.shape),)


def _triangle(test: str):
    def expand(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
        (x,) = operands
        if len(x.shape) < 2:
            raise InvalidOperand(f"A triangle of {x.type}, which is not a matrix")
        rows, columns = x.shape[-2:]
        row = b.iota(shape=(rows, 1), axis=0, dtype="i32", start=attributes["diagonal"])
        column = b.iota(shape=(1, columns), axis=1, dtype="i32")
        kept = b.emit(test, (column, row))[0]
        return (b.select(kept, x, like(b, 0.0, x)),)

    return expand


def _repeat_interleave(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    (x,) = operands
    axis = need_axis("repeat_interleave", attributes["axis"], len(x.shape))
    times = int(attributes["repeats"])
    before, size, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    apart = b.reshape(x, shape=(*before, size, 1, *after))
    longer = b.expand(apart, shape=(*before, size, times, *after))
    return (b.reshape(longer, shape=(*before, size * times, *after)),)


def _stack_samples() -> Iterable[Sample]:
    for axis in (0, 1, 2):
        yield Sample((Arg(f32(3, 5)), Arg(f32(3, 5))), {"axis": axis})
    yield Sample((Arg(f16(9)),) * 3, {"axis": 1})
    yield Sample((Arg(f32()), Arg(f32())), {"axis": 0})
    yield Sample((Arg(f32(0, 2)),), {"axis": 0})


def _roll_samples() -> Iterable[Sample]:
    yield Sample((Arg(f32(4, 7)),), {"shifts": (3,), "axes": (1,)})
    yield Sample((Arg(f32(4, 7)),), {"shifts": (-1, 9), "axes": (0, 1)})
    yield Sample((Arg(f16(33)),), {"shifts": (33,), "axes": (0,)})
    yield Sample((Arg(f32(0, 3)),), {"shifts": (1,), "axes": (0,)})


def _triangle_samples() -> Iterable[Sample]:
    yield Sample((Arg(f32(4, 7)),), {"diagonal": 0})
    yield Sample((Arg(f32(2, 5, 5)),), {"diagonal": -1})
    yield Sample((Arg(f16(6, 3)),), {"diagonal": 2})
    yield Sample((Arg(i32(3, 3), "integers", -9, 9),), {"diagonal": 0})
    yield Sample((Arg(f32(0, 3)),), {"diagonal": 0})


def _repeat_samples() -> Iterable[Sample]:
    yield Sample((Arg(f32(4, 3)),), {"repeats": 3, "axis": 0})
    yield Sample((Arg(f16(2, 9)),), {"repeats": 2, "axis": 1})
    yield Sample((Arg(f32(0, 2)),), {"repeats": 2, "axis": 0})


register(Composite("stack", {"axis": REQUIRED}, _stack, _stack_samples))
register(Composite("roll", {"shifts": REQUIRED, "axes": REQUIRED}, _roll, _roll_samples))
register(Composite("tril", {"diagonal": 0}, _triangle("le"), _triangle_samples))
register(Composite("triu", {"diagonal": 0}, _triangle("ge"), _triangle_samples))
register(Composite("repeat_interleave", {"repeats": REQUIRED, "axis": REQUIRED}, _repeat_interleave, _repeat_samples))

"""What ``stencil`` means: a map whose operands are read at places shifted against the result.

A *tap* is ``(operand, starts, outside)``: element ``i`` of the result reads element ``i + starts`` of the operand, and
``outside`` where the operand has none. A tap without starts is an operand that broadcasts, as in a ``map``. The body is
that of a map, whose operands -1, -2 … are the taps in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from abele.errors import InvalidOperand
from abele.ir.operation import REQUIRED, Arg, Primitive, Sample, register
from abele.ir.types import TensorType, f16, f32
from abele.ops.elementwise.expression import FUSED_LATE, body_of, body_types, evaluate_body, map_flops
from abele.ops.rules import Attributes, broadcast

Tap = tuple[int, tuple[int, ...], float]


def taps_of(attributes: Attributes) -> tuple[Tap, ...]:
    """The attribute ``taps``; raises ``InvalidOperand`` when it is not a list of taps."""
    taps: Any = attributes["taps"]
    good = isinstance(taps, tuple) and all(
        isinstance(tap, tuple)
        and len(tap) == 3
        and isinstance(tap[1], tuple)
        and all(isinstance(s, int) for s in tap[1])
        for tap in taps
    )
    if not good:
        raise InvalidOperand("The taps of a stencil must be a list of (operand, starts, outside)")
    return taps


def tap_types(operands: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
    """What the body sees: a shifted operand in the shape of the result, any other as it is."""
    shape: Any = attributes["shape"]
    found = []
    for number, (operand, starts, _) in enumerate(taps_of(attributes)):
        if not 0 <= operand < len(operands):
            raise InvalidOperand(f"Tap {number} of a stencil reads operand {operand} of {len(operands)}")
        type_ = operands[operand]
        if starts and not len(starts) == type_.rank == len(shape):
            raise InvalidOperand(f"Tap {number} of a stencil shifts {type_} by {list(starts)} to {list(shape)}")
        found.append(type_.with_shape(shape) if starts else type_)
    return found


def shifted(array: np.ndarray, starts: Sequence[int], outside: float, shape: Sequence[int]) -> np.ndarray:
    """``array[i + starts]`` for every ``i`` of ``shape``; ``outside`` where there is no such element."""
    done = np.full(shape, outside, array.dtype)
    into = tuple(
        slice(min(n, max(0, -s)), max(0, min(n, size - s)))
        for s, n, size in zip(starts, shape, array.shape, strict=True)
    )
    out_of = tuple(slice(w.start + s, max(w.start, w.stop) + s) for w, s in zip(into, starts, strict=True))
    if all(w.stop > w.start for w in into):
        done[into] = array[out_of]
    return done


def _infer(operands: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    shape: Any = attributes["shape"]
    seen = tap_types(operands, attributes)
    types = body_types(body_of(attributes), seen)
    if broadcast("stencil", [*seen, TensorType(shape, types[-1].dtype)]) != shape:
        raise InvalidOperand(f"A stencil of shape {list(shape)} reads operands that broadcast beyond it")
    return (TensorType(shape, types[-1].dtype),)


def _stencil(operands: Sequence[np.ndarray], attributes: Attributes, results: Sequence[TensorType]):
    shape = results[0].shape
    read = [
        shifted(operands[operand], starts, outside, shape) if starts else operands[operand]
        for operand, starts, outside in taps_of(attributes)
    ]
    return (np.broadcast_to(evaluate_body(body_of(attributes), read), shape),)


def _summed(count: int, dtype: str) -> tuple:
    """A body that adds up so many taps."""
    first = ("add", dtype, (-1, -2), ())
    return (first, *(("add", dtype, (i - 3, -i), ()) for i in range(3, count + 1)))


def _samples() -> Iterable[Sample]:
    cross = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
    around = tuple((0, starts, 0.0) for starts in cross)
    yield Sample((Arg(f32(6, 9)),), {"taps": around, "shape": (6, 9), "body": _summed(5, "f32")})
    yield Sample((Arg(f16(5, 8)),), {"taps": around, "shape": (5, 8), "body": _summed(5, "f16")})
    # neighbours along time, with a scale for each column; nothing is padded
    steps = ((0, (0, 0), 0.0), (0, (3, 0), 0.0), (1, (), 0.0))
    weighed = (("sub", "f32", (-2, -1), ()), ("mul", "f32", (0, -3), ()))
    yield Sample((Arg(f32(11, 4)), Arg(f32(4))), {"taps": steps, "shape": (8, 4), "body": weighed})
    # two operands, one beside the other, the edge kept at one
    pairs = ((0, (0, -1, 0), 1.0), (1, (0, 0, 0), 0.0), (0, (0, 1, 0), 1.0))
    yield Sample((Arg(f32(2, 7, 3)), Arg(f32(2, 7, 3))), {"taps": pairs, "shape": (2, 7, 3), "body": _summed(3, "f32")})
    # a result larger than what it reads
    yield Sample(
        (Arg(f32(3, 4)),),
        {"taps": ((0, (-2, -2), 0.0), (0, (-1, -2), -1.0)), "shape": (7, 8), "body": _summed(2, "f32")},
    )
    yield Sample((Arg(f32(0, 3)),), {"taps": around[:2], "shape": (0, 3), "body": _summed(2, "f32")})


register(
    Primitive(
        "stencil",
        {"taps": REQUIRED, "shape": REQUIRED, "body": REQUIRED},
        _infer,
        _stencil,
        FUSED_LATE,
        lambda operands, results, attributes: map_flops(body_of(attributes), tap_types(operands, attributes)),
        _samples,
    )
)

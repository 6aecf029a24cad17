"""Mean, variance, standard deviation, log-sum-exp and norms, in float for half operands, rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from abele.ir.builder import Builder
from abele.ir.graph import Operation, Value
from abele.ir.operation import REQUIRED, Arg, Composite, Gradient, Sample, register
from abele.ir.types import f16, f32
from abele.ops.reduce.op import axes_of, spread_back
from abele.ops.rules import (
    Attributes,
    in_float,
    like,
    need_dtype,
    to_float,
)

Derive = Callable[[Builder, Operation, Value, Value, Value], Value]
"""``derive(builder, op, dy, x, y)``: the operand's gradient in float; ``dy`` and ``y`` broadcast against ``x``."""


def _gradient(derive: Derive) -> Gradient:
    def gradient(b: Builder, op: Operation, given: Sequence[Value | None]) -> Sequence[Value | None]:
        (dy,), (x,) = given, op.operands
        assert dy is not None
        wide = to_float(b, x)
        # The rounded half result is too coarse for the rules: it is computed again.
        y = op.result if wide is x else b.emit(op.name, (wide,), op.attributes)[0]
        dy = to_float(b, spread_back(b, dy, op))
        return (b.cast_to(derive(b, op, dy, wide, spread_back(b, y, op)), x.dtype),)

    return gradient


def _samples(settings: Sequence[Attributes]) -> Callable[[], Iterable[Sample]]:
    def samples() -> Iterable[Sample]:
        for setting in settings:
            yield Sample((Arg(f32(4, 9)),), {"axes": (1,), **setting})
            yield Sample((Arg(f32(3, 4, 20)),), {"axes": (0, 2), "keep": True, **setting})
            yield Sample((Arg(f32(2, 5)),), {"axes": (0, 1), **setting})
            yield Sample((Arg(f16(5, 40)),), {"axes": (1,), **setting})
            yield Sample((Arg(f32(0, 3)),), {"axes": (1,), **setting})

    return samples


def _count(x: Value, axes: Sequence[int]) -> int:
    return math.prod(x.shape[d] for d in axes)


def _checked(name: str, x: Value, a: Attributes) -> tuple[int, ...]:
    need_dtype(name, [x.type], lambda d: d.is_float, "f32 or f16")
    return axes_of(name, a, len(x.shape))


def _over(number: float) -> float:
    """1 / number; infinite where there is nothing to divide by, so that the result is nan as it should be."""
    return 1.0 / number if number > 0 else math.inf


def _mean(b: Builder, x: Value, a: Attributes) -> Value:
    axes = _checked("mean", x, a)
    total = b.reduce_sum(x, axes=axes, keep=a["keep"])
    return b.mul(total, like(b, _over(_count(x, axes)), total))


def _variance(b: Builder, x: Value, a: Attributes) -> Value:
    axes = _checked("variance", x, a)
    away = b.sub(x, b.mean(x, axes=axes, keep=True))
    total = b.reduce_sum(b.mul(away, away), axes=axes, keep=a["keep"])
    return b.mul(total, like(b, _over(_count(x, axes) - float(a["correction"])), total))


def _variance_gradient(b: Builder, op: Operation, dy: Value, x: Value, y: Value) -> Value:
    axes, correction = op.attributes["axes"], float(op.attributes["correction"])
    away = b.sub(x, b.mean(x, axes=axes, keep=True))
    return b.mul(away, b.mul(dy, like(b, 2.0 * _over(_count(x, axes) - correction), dy)))


def _logsumexp(b: Builder, x: Value, a: Attributes) -> Value:
    axes = _checked("logsumexp", x, a)
    most = b.reduce_max(x, axes=axes, keep=True)
    most = b.select(b.is_finite(most), most, like(b, 0.0, most))
    y = b.add(b.log(b.reduce_sum(b.exp(b.sub(x, most)), axes=axes, keep=True)), most)
    return y if a["keep"] else b.reshape(y, shape=tuple(n for d, n in enumerate(x.shape) if d not in axes))


def _norm(b: Builder, x: Value, a: Attributes) -> Value:
    axes, order = _checked("norm", x, a), float(a["order"])
    options = {"axes": axes, "keep": a["keep"]}
    if order == math.inf:
        return b.reduce_max(b.abs(x), **options)
    if order == -math.inf:
        return b.reduce_min(b.abs(x), **options)
    if order == 0:
        return b.reduce_sum(b.cast(b.ne(x, like(b, 0.0, x)), dtype=str(x.dtype)), **options)
    if order == 1:
        return b.reduce_sum(b.abs(x), **options)
    if order == 2:
        return b.sqrt(b.reduce_sum(b.mul(x, x), **options))
    total = b.reduce_sum(b.pow(b.abs(x), like(b, order, x)), **options)
    return b.pow(total, like(b, 1.0 / order, total))


def _norm_gradient(b: Builder, op: Operation, dy: Value, x: Value, y: Value) -> Value:
    """sign(x) |x|^(p-1) / y^(p-1); 0 where the norm is 0. The infinite norms share it among their elements."""
    order = float(op.attributes["order"])
    none, one = like(b, 0.0, dy), like(b, 1.0, dy)
    if order == 0:
        return b.mul(x, none)
    if math.isinf(order):
        taken = b.eq(b.abs(x), y)
        shares = b.reduce_sum(b.cast(taken, dtype="f32"), axes=op.attributes["axes"], keep=True)
        return b.select(taken, b.mul(b.sign(x), b.div(dy, shares)), none)
    if order == 1:
        return b.mul(b.sign(x), dy)
    empty = b.eq(y, none)
    ratio = b.div(x, b.select(empty, one, y))
    if order != 2:
        size = b.abs(ratio)
        ratio = b.mul(b.sign(ratio), b.pow(size, like(b, order - 1.0, ratio)))
    return b.select(empty, none, b.mul(ratio, dy))


def _std(b: Builder, x: Value, a: Attributes) -> Value:
    return b.sqrt(b.variance(x, axes=_checked("std", x, a), keep=a["keep"], correction=a["correction"]))


_AXES = {"axes": REQUIRED, "keep": False}
_CORRECTED = _AXES | {"correction": 1}

register(Composite("mean", _AXES, in_float(_mean), _samples(({},))))
register(
    Composite(
        "variance",
        _CORRECTED,
        in_float(_variance),
        _samples(({}, {"correction": 0})),
        _gradient(_variance_gradient),
    )
)
register(Composite("std", _CORRECTED, in_float(_std), _samples(({},))))
register(
    Composite(
        "logsumexp",
        _AXES,
        in_float(_logsumexp),
        _samples(({},)),
        _gradient(lambda b, op, dy, x, y: b.mul(dy, b.exp(b.sub(x, y)))),
    )
)
register(
    Composite(
        "norm",
        {"order": 2.0} | _AXES,
        in_float(_norm),
        _samples(({}, {"order": 1.0}, {"order": 3.0}, {"order": math.inf}, {"order": -math.inf}, {"order": 0.0})),
        _gradient(_norm_gradient),
    )
)

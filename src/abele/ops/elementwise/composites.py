"""Activations and other elementwise functions composed of primitives, in float for half operands, rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from abele.ir.builder import Builder
from abele.ir.graph import Operation, Value
from abele.ir.operation import REQUIRED, Arg, Composite, Gradient, Sample, register
from abele.ir.types import boolean, f16, f32
from abele.ops.elementwise.op import pointwise_gradient
from abele.ops.rules import (
    Attributes,
    in_float,
    like,
    to_float,
)

Body = Callable[..., Value]


def _samples(settings: Sequence[Attributes], domain: tuple[float, float], arity: int) -> Callable[[], Iterable[Sample]]:
    def samples() -> Iterable[Sample]:
        low, high = domain
        for shapes in (
            [(4, 9)] * arity,
            [(2, 3, 1), (5,), ()][:arity],
            [(0, 2)] * arity,
        ):
            yield Sample(tuple(Arg(f32(*s), "uniform", low, high) for s in shapes), settings[0])
        for setting in settings:
            yield Sample((Arg(f16(67), "uniform", low, high),) * arity, setting)
        for setting in settings[1:]:
            yield Sample((Arg(f32(33), "uniform", low, high),) * arity, setting)

    return samples


def register_function(
    name: str,
    body: Body,
    attributes: Mapping[str, Any] | None = None,
    *,
    settings: Sequence[Attributes] = ({},),
    domain: tuple[float, float] = (-4.0, 4.0),
    arity: int = 1,
    gradient: Gradient | None = None,
    exact: bool = False,
) -> None:
    """Register one; ``exact`` bodies round once in any dtype and stay in their operands'."""

    def expand(b: Builder, operands: Sequence[Value], given: Attributes) -> Sequence[Value]:
        return (body(b, *operands, given),)

    register(
        Composite(
            name,
            attributes or {},
            expand if exact else in_float(body),
            _samples(settings, domain, arity),
            gradient,
        )
    )


def _n(b: Builder, x: Value, number: Any) -> Value:
    return like(b, float(number), x)


def _below(b: Builder, x: Value) -> Value:
    """The negative part of ``x``, with slope 1 at 0."""
    return b.select(b.gt(x, _n(b, x, 0.0)), _n(b, x, 0.0), x)


def _above_or(b: Builder, x: Value, other: Value) -> Value:
    """``x`` where it is positive, else ``other``."""
    return b.select(b.gt(x, _n(b, x, 0.0)), x, other)


# Bounds


def _clamp(b: Builder, x: Value, a: Attributes) -> Value:
    if a["low"] is not None:
        x = b.max(x, like(b, a["low"], x))
    if a["high"] is not None:
        x = b.min(x, like(b, a["high"], x))
    return x


def _inside(least: str, most: str) -> Gradient:
    """The gradient of a clamp: what lies within the bounds passes."""

    def gradient(b: Builder, op: Operation, given: Sequence[Value | None]) -> Sequence[Value | None]:
        (dy,), (x,) = given, op.operands
        assert dy is not None
        for test, bound in ((least, op.attributes["low"]), (most, op.attributes["high"])):
            if bound is not None:
                kept = b.emit(test, (x, like(b, bound, x)))[0]
                dy = b.select(kept, dy, like(b, 0.0, dy))
        return (dy,)

    return gradient


_BOUNDS = ({"low": -1.0, "high": 2.0}, {"low": 0.0}, {"high": 0.5})
register_function("square", lambda b, x, a: b.mul(x, x), exact=True,
     gradient=pointwise_gradient(lambda b, dy, v, y: (b.mul(b.mul(dy, v[0]), _n(b, dy, 2.0)),), once=True))  # fmt: skip
register_function(
    "clamp", _clamp, {"low": None, "high": None}, settings=_BOUNDS, exact=True, gradient=_inside("ge", "le")
)
register_function("hardtanh", _clamp, {"low": -1.0, "high": 1.0}, settings=({}, {"low": 0.0, "high": 3.0}), exact=True,
     gradient=_inside("gt", "lt"))  # fmt: skip


# Smooth activations


def _gelu(b: Builder, x: Value, a: Attributes) -> Value:
    if a["approximate"] == "tanh":
        cube = b.mul(b.mul(x, b.mul(x, x)), _n(b, x, 0.044715))
        inner = b.tanh(b.mul(b.add(x, cube), _n(b, x, math.sqrt(2.0 / math.pi))))
    else:
        inner = b.erf(b.mul(x, _n(b, x, math.sqrt(0.5))))
    return b.mul(b.mul(x, _n(b, x, 0.5)), b.add(inner, _n(b, x, 1.0)))


def _gelu_grad(b: Builder, operands: Sequence[Value], a: Attributes) -> Sequence[Value]:
    """``dy`` times the slope of ``gelu`` at ``x``.

    All of it is made of ``-x``, so that nothing in it is the same as in ``gelu`` itself: a float tensor that both need
    would be written and read again, which takes longer than to compute it twice.
    """
    dy, x = operands
    n = to_float(b, b.neg(x))
    square = b.mul(n, n)
    if a["approximate"] == "tanh":
        slope = math.sqrt(2.0 / math.pi)
        inner = b.mul(n, b.add(b.mul(square, _n(b, n, 0.044715 * slope)), _n(b, n, slope)))
        t = b.tanh(inner)
        rise = b.add(b.mul(square, _n(b, n, 3 * 0.044715 * slope)), _n(b, n, slope))
        below, density = t, b.mul(b.mul(b.sub(_n(b, n, 1.0), b.mul(t, t)), rise), _n(b, n, 0.5))
    else:
        below = b.erf(b.mul(n, _n(b, n, math.sqrt(0.5))))
        density = b.mul(b.exp(b.mul(square, _n(b, n, -0.5))), _n(b, n, 1.0 / math.sqrt(2.0 * math.pi)))
    portion = b.mul(b.sub(_n(b, n, 1.0), below), _n(b, n, 0.5))
    whole = b.mul(to_float(b, dy), b.sub(portion, b.mul(n, density)))
    return (b.cast_to(whole, x.dtype),)


def _gelu_gradient(b: Builder, op: Operation, given: Sequence[Value | None]) -> Sequence[Value | None]:
    (dy,), (x,) = given, op.operands
    return (None if dy is None else b.emit("gelu_grad", (dy, x), op.attributes)[0],)


def _gelu_grad_samples() -> Iterable[Sample]:
    for x in (f32(4, 9), f16(67), f32(0, 2)):
        for approximate in ("none", "tanh"):
            yield Sample((Arg(x), Arg(x, "uniform", -4.0, 4.0)), {"approximate": approximate})


def _log1p_exp(b: Builder, x: Value) -> Value:
    """log(1 + exp(x)) without overflow: max(x, 0) + log(1 + exp(-|x|))."""
    return b.add(b.max(x, _n(b, x, 0.0)), b.log1p(b.exp(b.neg(b.abs(x)))))


def _softplus(b: Builder, x: Value, a: Attributes) -> Value:
    beta, threshold = float(a["beta"]), float(a["threshold"])
    scaled = x if beta == 1.0 else b.mul(x, _n(b, x, beta))
    smooth = _log1p_exp(b, scaled)
    if beta != 1.0:
        smooth = b.mul(smooth, _n(b, x, 1.0 / beta))
    return b.select(b.gt(scaled, _n(b, x, threshold)), x, smooth)


def _elu(b: Builder, x: Value, a: Attributes) -> Value:
    return _above_or(b, x, b.mul(b.expm1(_below(b, x)), _n(b, x, a["alpha"])))


def _celu(b: Builder, x: Value, a: Attributes) -> Value:
    alpha = float(a["alpha"])
    return _above_or(b, x, b.mul(b.expm1(b.mul(_below(b, x), _n(b, x, 1.0 / alpha))), _n(b, x, alpha)))


def _selu(b: Builder, x: Value, a: Attributes) -> Value:
    alpha, scale = 1.6732632423543772, 1.0507009873554805
    return b.mul(_above_or(b, x, b.mul(b.expm1(_below(b, x)), _n(b, x, alpha))), _n(b, x, scale))


def _hardsigmoid(b: Builder, x: Value, a: Attributes) -> Value:
    return b.hardtanh(b.add(b.mul(x, _n(b, x, 1.0 / 6.0)), _n(b, x, 0.5)), low=0.0, high=1.0)


register_function(
    "gelu", _gelu, {"approximate": "none"}, settings=({}, {"approximate": "tanh"}), gradient=_gelu_gradient
)
register(Composite("gelu_grad", {"approximate": "none"}, _gelu_grad, _gelu_grad_samples))
register_function("silu", lambda b, x, a: b.mul(x, b.sigmoid(x)))
register_function(
    "softplus", _softplus, {"beta": 1.0, "threshold": 20.0}, settings=({}, {"beta": 2.0, "threshold": 3.0})
)
register_function("log_sigmoid", lambda b, x, a: b.neg(_log1p_exp(b, b.neg(x))))
register_function("mish", lambda b, x, a: b.mul(x, b.tanh(_log1p_exp(b, x))))
register_function("elu", _elu, {"alpha": 1.0}, settings=({}, {"alpha": 0.5}))
register_function("celu", _celu, {"alpha": 1.0}, settings=({}, {"alpha": 2.0}))
register_function("selu", _selu)
register_function("hardsigmoid", _hardsigmoid)
register_function("hardswish", lambda b, x, a: b.mul(x, b.hardsigmoid(x)))
register_function("softsign", lambda b, x, a: b.div(x, b.add(b.abs(x), _n(b, x, 1.0))))
register_function("tanhshrink", lambda b, x, a: b.sub(x, b.tanh(x)))


# Piecewise linear activations

register_function("leaky_relu", lambda b, x, a: _above_or(b, x, b.mul(x, _n(b, x, a["slope"]))), {"slope": 0.01},
     settings=({}, {"slope": 0.25}))  # fmt: skip
register_function("hardshrink", lambda b, x, a: b.select(b.le(b.abs(x), _n(b, x, a["lambd"])), _n(b, x, 0.0), x),
     {"lambd": 0.5}, exact=True)  # fmt: skip
register_function("softshrink", lambda b, x, a: b.sub(x, b.clamp(x, low=-a["lambd"], high=a["lambd"])), {"lambd": 0.5})
register_function("threshold", lambda b, x, a: b.select(b.gt(x, _n(b, x, a["threshold"])), x, _n(b, x, a["value"])),
     {"threshold": REQUIRED, "value": REQUIRED}, exact=True,
     settings=({"threshold": 0.25, "value": -1.5},))  # fmt: skip
register_function("prelu", lambda b, x, w, a: _above_or(b, x, b.mul(x, w)), arity=2)


# Inverse hyperbolic functions and others


def _asinh(b: Builder, x: Value, a: Attributes) -> Value:
    # log(|x| + sqrt(x² + 1)), written so that small x keeps its digits.
    size = b.abs(x)
    square = b.mul(x, x)
    root = b.add(b.sqrt(b.add(square, _n(b, x, 1.0))), _n(b, x, 1.0))
    return b.mul(b.sign(x), b.log1p(b.add(size, b.div(square, root))))


def _acosh(b: Builder, x: Value, a: Attributes) -> Value:
    return b.log(b.add(x, b.sqrt(b.mul(b.sub(x, _n(b, x, 1.0)), b.add(x, _n(b, x, 1.0))))))


def _atanh(b: Builder, x: Value, a: Attributes) -> Value:
    return b.mul(b.sub(b.log1p(x), b.log1p(b.neg(x))), _n(b, x, 0.5))


def slope(rule: Callable[[Builder, Value], Value]) -> Gradient:
    """The gradient of a function of one operand, from the rule for its derivative there."""
    return pointwise_gradient(lambda b, dy, v, y: (b.mul(dy, rule(b, v[0])),))


register_function("asinh", _asinh, gradient=slope(lambda b, x: b.rsqrt(b.add(b.mul(x, x), _n(b, x, 1.0)))))
register_function("acosh", _acosh, domain=(1.2, 5.0),
     gradient=slope(lambda b, x: b.rsqrt(b.mul(b.sub(x, _n(b, x, 1.0)), b.add(x, _n(b, x, 1.0))))))  # fmt: skip
register_function("atanh", _atanh, domain=(-0.9, 0.9),
     gradient=slope(lambda b, x: b.reciprocal(b.sub(_n(b, x, 1.0), b.mul(x, x)))))  # fmt: skip


def _logit(b: Builder, x: Value, a: Attributes) -> Value:
    if a["eps"] is not None:
        eps = float(a["eps"])
        x = b.clamp(x, low=eps, high=1.0 - eps)
    return b.log(b.div(x, b.sub(_n(b, x, 1.0), x)))


register_function("logit", _logit, {"eps": None}, settings=({}, {"eps": 0.2}), domain=(0.05, 0.95))
register_function("lerp", lambda b, x, y, w, a: b.add(x, b.mul(w, b.sub(y, x))), arity=3)


def _nan_to_num(b: Builder, x: Value, a: Attributes) -> Value:
    largest = float(np.finfo(x.dtype.numpy).max)
    high = largest if a["posinf"] is None else a["posinf"]
    low = -largest if a["neginf"] is None else a["neginf"]
    done = b.select(b.eq(x, _n(b, x, math.inf)), _n(b, x, high), x)
    done = b.select(b.eq(x, _n(b, x, -math.inf)), _n(b, x, low), done)
    return b.select(b.is_nan(x), _n(b, x, a["nan"]), done)


register_function("nan_to_num", _nan_to_num, {"nan": 0.0, "posinf": None, "neginf": None},
     settings=({}, {"nan": 1.0, "posinf": 7.0, "neginf": -3.0}), exact=True)  # fmt: skip


def _masked_fill(b: Builder, operands: Sequence[Value], a: Attributes) -> Sequence[Value]:
    x, mask = operands
    return (b.select(mask, like(b, a["value"], x), x),)


def _masked_fill_samples() -> Iterable[Sample]:
    yield Sample((Arg(f32(3, 5)), Arg(boolean(3, 5), "boolean")), {"value": float("-inf")})
    yield Sample((Arg(f32(2, 3, 5)), Arg(boolean(3, 1), "boolean")), {"value": 2.5})
    yield Sample((Arg(f16(33)), Arg(boolean(33), "boolean")), {"value": -1e4})
    yield Sample((Arg(f32(0)), Arg(boolean(0), "boolean")), {"value": 0.0})


register(Composite("masked_fill", {"value": REQUIRED}, _masked_fill, _masked_fill_samples))

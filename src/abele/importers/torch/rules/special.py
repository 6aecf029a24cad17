"""Special functions."""

from __future__ import annotations

import math

from abele.importers.torch.emitter import Emitter, Operand
from abele.importers.torch.table import rule
from abele.ir import DType, Value

_NAMES = {
    "lgamma": "lgamma",
    "digamma": "digamma",
    "erfinv": "erfinv",
    "i0": "bessel_i0",
    "special_i0e": "bessel_i0e",
    "special_i1": "bessel_i1",
    "special_i1e": "bessel_i1e",
    "special_erfcx": "erfcx",
    "special_log_ndtr": "log_ndtr",
}


@rule(*_NAMES)
def special(e: Emitter, x: Value) -> Value:
    return e.unary(_NAMES[e.name], x)


@rule("special_zeta")
def zeta(e: Emitter, s: Operand, q: Operand) -> Value:
    return e.binary("zeta", s, q)


@rule("polygamma")
def polygamma(e: Emitter, n: int | Value, x: Value | int) -> Value:
    """``torch.polygamma(n, x)``; the in-place form has its operands the other way round."""
    order, x = (x, n) if isinstance(n, Value) else (n, x)
    assert isinstance(order, int)
    return e.unary("polygamma", x, order=order)


@rule("special_ndtri")
def ndtri(e: Emitter, p: Value) -> Value:
    """The inverse of the normal distribution: sqrt(2) erfinv(2p - 1)."""
    inner = e.binary("sub", e.binary("mul", p, 2.0), 1.0)
    return e.binary("mul", e.unary("erfinv", inner), math.sqrt(2.0))


@rule("sinc")
def sinc(e: Emitter, x: Value) -> Value:
    """sin(pi x) / (pi x); at zero it is one and its gradient zero, which the quotient would not say."""
    x = e.operand(x)
    zero, one = e.binary("eq", x, 0, x.dtype), e.number(1, x.dtype)
    turned = e.emit("mul", e.emit("select", zero, one, x), e.number(math.pi, x.dtype))
    return e.emit("select", zero, one, e.emit("div", e.emit("sin", turned), turned))


@rule("angle")
def angle(e: Emitter, x: Value) -> Value:
    """Of a real number: pi where it is negative, NaN where it is none."""
    x = e.operand(x)
    found = e.emit("select", e.binary("lt", x, 0), e.number(math.pi, x.dtype), e.number(0, x.dtype))
    return e.emit("select", e.emit("is_nan", x), x, found)


@rule("frexp")
def frexp(e: Emitter, x: Value) -> tuple[Value, Value]:
    """``x = mantissa * 2 ** exponent`` with a mantissa of [0.5, 1). The logarithm may be off by one beside a power."""
    wide = e.cast(x, DType.F32)
    one = e.number(1, DType.F32)
    odd = e.emit("logical_not", e.emit("is_finite", wide))
    odd = e.emit("logical_or", odd, e.emit("eq", wide, e.number(0, DType.F32)))
    safe = e.emit("select", odd, one, wide)
    power = e.emit("add", e.emit("floor", e.emit("log2", e.emit("abs", safe))), one)
    part = e.emit("mul", safe, e.emit("exp2", e.emit("neg", power)))
    for test, limit, factor, step in (("ge", 1.0, 0.5, 1), ("lt", 0.5, 2.0, -1)):
        off = e.emit(test, e.emit("abs", part), e.number(limit, DType.F32))
        part = e.emit("select", off, e.emit("mul", part, e.number(factor, DType.F32)), part)
        power = e.emit("select", off, e.emit("add", power, e.number(step, DType.F32)), power)
    mantissa = e.cast(e.emit("select", odd, wide, part), x.dtype)
    exponent = e.emit("select", odd, e.number(0, DType.F32), power)
    return mantissa, e.cast(exponent, DType.I32)

"""Special functions of one number, composed of primitives, in float for half operands, rounded once.

Formulas carry their numbers in the Digital Library of Mathematical Functions (dlmf.nist.gov). The three polynomials
are least-squares fits at Chebyshev nodes to values computed with 40 digits; each is good to about 3e-7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from abele.ir.builder import Builder
from abele.ir.graph import Value
from abele.ops.elementwise.composites import register_function, slope
from abele.ops.elementwise.op import pointwise_gradient
from abele.ops.rules import Attributes, like

_SHIFT = 8
"""Steps by which arguments of the gamma functions and of zeta are raised, so that their expansions are exact."""

_ERFCX = (1.27697838, -0.0927637628, -0.166030384, 0.164049454, -0.0542202668, -0.00801896286, 0.00872460849,
          0.00121741008, -0.00146407265, -0.000357919954, 0.000221573138, 6.3369289e-05, -2.02565241e-05)  # fmt: skip
"""(1 + 2x) erfcx(x) for x >= 0, by powers of (x - 2) / (x + 2)."""
_ERFINV_NEAR = (1.50140936, 0.616600723, -0.026108686, -0.019574194, 0.00852917635, -0.000484349953,
                -0.000845545938, 0.000284075153, 3.55313788e-05, -3.33398093e-05)  # fmt: skip
"""erfinv(x) / x by powers of w / 2.5 - 1, where w = -log(1 - x²) is below 5."""
_ERFINV_FAR = (3.06988131, 1.005104, 0.00553402662, -0.0038522045, 0.00258400929, -0.00191653097, 0.00106971387,
               -0.000165730015, -8.63544133e-05)  # fmt: skip
"""The same for w from 5 on, by powers of sqrt(w) - sqrt(5) - 1."""


def _n(b: Builder, x: Value, number: float) -> Value:
    return like(b, float(number), x)


def _plus(b: Builder, x: Value, number: float) -> Value:
    return b.add(x, _n(b, x, number))


def _times(b: Builder, x: Value, number: float) -> Value:
    return b.mul(x, _n(b, x, number))


def _polynomial(b: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    """``c0 + c1 x + c2 x² …``, by Horner's rule."""
    total = _n(b, x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = _plus(b, b.mul(total, x), c)
    return total


def _negative(b: Builder, x: Value) -> Value:
    return b.lt(x, _n(b, x, 0.0))


# Gamma


def _reflected(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """Whether x is below a half, the argument to compute with (1 - x there), and x's distance to a whole number."""
    low = b.lt(x, _n(b, x, 0.5))
    return low, b.select(low, b.sub(_n(b, x, 1.0), x), x), b.sub(x, b.round(x))


def _lgamma(b: Builder, x: Value, a: Attributes) -> Value:
    """log|Γ(x)|: Stirling's series (5.11.1) at z + 8, recurrence (5.5.1) down from there, reflection (5.5.3)."""
    low, z, rest = _reflected(b, x)
    small = b.lt(z, _n(b, z, float(_SHIFT)))
    product = _n(b, z, 1.0)
    for k in range(_SHIFT):
        product = b.mul(product, _plus(b, z, k))
    high = b.select(small, _plus(b, z, _SHIFT), z)
    inverse = b.reciprocal(high)
    series = b.mul(inverse, _polynomial(b, b.mul(inverse, inverse), (1 / 12, -1 / 360, 1 / 1260)))
    stirling = b.sub(b.mul(_plus(b, high, -0.5), b.log(high)), high)
    found = _plus(b, b.add(stirling, series), 0.5 * math.log(2 * math.pi))
    found = b.sub(found, b.select(small, b.log(b.select(small, product, _n(b, z, 1.0))), _n(b, z, 0.0)))
    sine = b.abs(b.sin(_times(b, rest, math.pi)))
    found = b.select(low, b.sub(b.sub(_n(b, x, math.log(math.pi)), b.log(sine)), found), found)
    return b.select(b.is_inf(x), _n(b, x, math.inf), found)


def _digamma(b: Builder, x: Value, a: Attributes) -> Value:
    """ψ(x): series (5.11.2) at z + 8, recurrence (5.5.2), reflection (5.5.4)."""
    low, z, rest = _reflected(b, x)
    raised = _n(b, z, 0.0)
    for k in range(_SHIFT):
        raised = b.add(raised, b.reciprocal(_plus(b, z, k)))
    high = _plus(b, z, _SHIFT)
    inverse = b.reciprocal(high)
    square = b.mul(inverse, inverse)
    series = b.mul(square, _polynomial(b, square, (1 / 12, -1 / 120, 1 / 252)))
    found = b.sub(b.sub(b.sub(b.log(high), _times(b, inverse, 0.5)), series), raised)
    cotangent = b.div(_n(b, x, math.pi), b.tan(_times(b, rest, math.pi)))
    return b.select(low, b.sub(found, cotangent), found)


def _zeta(b: Builder, s: Value, q: Value, a: Attributes) -> Value:
    """Hurwitz's zeta function of s > 1 and q > 0, by the Euler-Maclaurin formula (25.11.5) from the ninth term on."""
    minus = b.neg(s)
    total = b.pow(q, minus)
    for k in range(1, _SHIFT):
        total = b.add(total, b.pow(_plus(b, q, k), minus))
    high = _plus(b, q, _SHIFT)
    power = b.pow(high, minus)
    tail = b.add(b.div(b.mul(high, power), _plus(b, s, -1.0)), _times(b, power, 0.5))
    # B2 / 2!, B4 / 4!, B6 / 6!, each with its rising factorial of s over a power of q + 8.
    factor, square = b.div(b.mul(s, power), high), b.mul(high, high)
    for j, number in enumerate((1 / 12, -1 / 720, 1 / 30240)):
        tail = b.add(tail, _times(b, factor, number))
        factor = b.div(b.mul(factor, b.mul(_plus(b, s, 2 * j + 1), _plus(b, s, 2 * j + 2))), square)
    return b.add(total, tail)


def _polygamma(b: Builder, x: Value, a: Attributes) -> Value:
    """The n-th derivative of ψ at x > 0: (-1)ⁿ⁺¹ n! ζ(n + 1, x) (25.11.12)."""
    n = int(a["order"])
    if n == 0:
        return b.digamma(x)
    return _times(b, b.zeta(b.constant(n + 1.0, x.dtype, x.shape), x), (-1.0) ** (n + 1) * math.factorial(n))


def _polygamma_gradient(b: Builder, op: Any, given: Any) -> Any:
    order = int(op.attributes["order"]) + 1
    return slope(lambda b, x: b.polygamma(x, order=order))(b, op, given)


register_function("lgamma", _lgamma, domain=(0.4, 9.0), gradient=slope(lambda b, x: b.digamma(x)))
register_function("digamma", _digamma, domain=(0.4, 9.0), gradient=slope(lambda b, x: b.polygamma(x, order=1)))
register_function("zeta", _zeta, arity=2, domain=(1.5, 4.0), gradient=pointwise_gradient(
    lambda b, dy, v, y: (None, b.mul(dy, b.neg(b.mul(v[0], b.zeta(_plus(b, v[0], 1.0), v[1])))))))  # fmt: skip
register_function("polygamma", _polygamma, {"order": 1}, settings=({}, {"order": 2}, {"order": 0}), domain=(0.6, 6.0),
                  gradient=_polygamma_gradient)  # fmt: skip


# Error function


def _erfcx(b: Builder, x: Value, a: Attributes) -> Value:
    """exp(x²) erfc(x), which stays in range where both its factors do not; 7.4.1 for negative x."""
    size = b.abs(x)
    t = b.div(_plus(b, size, -2.0), _plus(b, size, 2.0))
    found = b.div(_polynomial(b, t, _ERFCX), _plus(b, _times(b, size, 2.0), 1.0))
    low = b.select(_negative(b, x), x, _n(b, x, 0.0))
    return b.select(_negative(b, x), b.sub(_times(b, b.exp(b.mul(low, low)), 2.0), found), found)


def _erfinv(b: Builder, x: Value, a: Attributes) -> Value:
    """The inverse of erf on (-1, 1); infinite at its ends."""
    w = b.neg(b.add(b.log1p(x), b.log1p(b.neg(x))))
    near = _polynomial(b, _plus(b, _times(b, w, 1 / 2.5), -1.0), _ERFINV_NEAR)
    far = _polynomial(b, _plus(b, b.sqrt(b.max(w, _n(b, w, 5.0))), -1.0 - math.sqrt(5.0)), _ERFINV_FAR)
    found = b.mul(x, b.select(b.lt(w, _n(b, w, 5.0)), near, far))
    return b.select(b.eq(b.abs(x), _n(b, x, 1.0)), b.mul(x, _n(b, x, math.inf)), found)


def _erfinv_slope(b: Builder, x: Value) -> Value:
    y = b.erfinv(x)
    return _times(b, b.exp(b.mul(y, y)), math.sqrt(math.pi) / 2)


def _log_ndtr(b: Builder, x: Value, a: Attributes) -> Value:
    """log of the normal distribution: by erfcx below -1, where the probability itself would vanish."""
    low = b.min(x, _n(b, x, -1.0))
    below = b.log(_times(b, b.erfcx(_times(b, low, -math.sqrt(0.5))), 0.5))
    below = b.sub(below, _times(b, b.mul(low, low), 0.5))
    high = b.max(x, _n(b, x, -1.0))
    above = b.log1p(_times(b, _plus(b, b.erf(_times(b, high, math.sqrt(0.5))), -1.0), 0.5))
    return b.select(b.lt(x, _n(b, x, -1.0)), below, above)


register_function("erfcx", _erfcx, domain=(-1.5, 6.0), gradient=slope(
    lambda b, x: _plus(b, _times(b, b.mul(x, b.erfcx(x)), 2.0), -2.0 / math.sqrt(math.pi))))  # fmt: skip
register_function("erfinv", _erfinv, domain=(-0.95, 0.95), gradient=slope(_erfinv_slope))
register_function("log_ndtr", _log_ndtr, domain=(-9.0, 4.0))


# Modified Bessel functions of the first kind


def _bessel(order: int) -> Any:
    """exp(-|x|) I(x): the power series (10.25.2) below 8, whose terms are all positive, and (10.40.1) from there."""
    near = [1.0 / (math.factorial(k) * math.factorial(k + order)) for k in range(25)]
    far, term = [1.0], 1.0
    for k in range(1, 11):
        term *= -(4 * order**2 - (2 * k - 1) ** 2) / (8 * k)
        far.append(term)

    def body(b: Builder, x: Value, a: Attributes) -> Value:
        size = b.abs(x)
        low, high = b.min(size, _n(b, x, 8.0)), b.max(size, _n(b, x, 8.0))
        half = _times(b, low, 0.5)
        small = b.mul(_polynomial(b, b.mul(half, half), near), b.exp(b.neg(low)))
        if order:
            small = b.mul(small, half)
        large = b.mul(_polynomial(b, b.reciprocal(high), far), b.rsqrt(_times(b, high, 2 * math.pi)))
        found = b.select(b.lt(size, _n(b, x, 8.0)), small, large)
        return b.mul(b.sign(x), found) if order else found

    return body


def _unscaled(name: str) -> Any:
    return lambda b, x, a: b.mul(b.emit(name, (x,))[0], b.exp(b.abs(x)))


def _bessel_1_slope(b: Builder, x: Value, scaled: bool) -> Value:
    """I0 - I1 / x (10.29.2), a half at zero; of the scaled function also less its own sign times itself."""
    i0, i1 = (b.emit(name + "e" * scaled, (x,))[0] for name in ("bessel_i0", "bessel_i1"))
    zero = b.eq(x, _n(b, x, 0.0))
    found = b.sub(i0, b.select(zero, _n(b, x, 0.5), b.div(i1, b.select(zero, _n(b, x, 1.0), x))))
    return b.sub(found, b.mul(b.sign(x), i1)) if scaled else found


register_function("bessel_i0e", _bessel(0), domain=(-12.0, 12.0), gradient=slope(
    lambda b, x: b.sub(b.bessel_i1e(x), b.mul(b.sign(x), b.bessel_i0e(x)))))  # fmt: skip
register_function("bessel_i1e", _bessel(1), domain=(-12.0, 12.0), gradient=slope(
    lambda b, x: _bessel_1_slope(b, x, True)))  # fmt: skip
register_function("bessel_i0", _unscaled("bessel_i0e"), gradient=slope(lambda b, x: b.bessel_i1(x)))
register_function("bessel_i1", _unscaled("bessel_i1e"), gradient=slope(lambda b, x: _bessel_1_slope(b, x, False)))

"""Elementary functions on vectors of float32, without a library.

The frequent ones (exp, log, tanh, erf, sigmoid) stay in float32 and are within 2 units in the last place of
the correctly rounded value, denormal results included. The others go through float64 with short polynomials
(about 1e-12) and round once, so they are within 1 unit or so. Infinities, nan and signed zeros are NumPy's.

The coefficients are least-squares fits at Chebyshev nodes, reweighted until the relative error is level
(a near-minimax fit); the comment beside each says of what and on which interval. Sine, cosine and tangent
reduce their argument by pi/2 in float64 with two constants: good for ``|x| < 1e9``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from abele.codegen.emit import Value, lanes_of, vector

LOG2E = math.log2(math.e)
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4  # ln 2 = high + low, the high part with 9 bits

# (e^r - 1 - r) / r^2 on |r| < ln(2) / 2
_EXP = (0.5, 0.166666672, 0.0416662544, 0.00833326671, 0.00139472843, 0.000199171074)
# (log(1 + f) - f + f^2 / 2) / f^3 on sqrt(1/2) - 1 < f < sqrt(2) - 1
_LOG = (
    0.333333105, -0.250000089, 0.200021669, -0.166680902, 0.142185479,
    -0.124030925, 0.118935622, -0.116943009, 0.0675742179,
)  # fmt: skip
# (tanh(x) - x) / x^3 in x^2, |x| < 0.625
_TANH = (-0.333333313, 0.133332059, -0.0539467633, 0.021700697, -0.0081773838, 0.0021429495)
# erf(x) / x - 1 in x^2, |x| < 1
_ERF = (0.128379167, -0.37612626, 0.112835854, -0.026853811, 0.00518832728, -0.000801018905, 7.85384691e-05)
# log(erfc(t)) on 0.95 < t < 4.1
_LOG_ERFC = (
    0.000178129252, -1.12952733, -0.633332789, -0.108278565, 0.0251018275,
    -0.00415380904, 0.000426515326, -1.92644202e-05, -1.69623561e-07,
)  # fmt: skip
# log(erfc(t)) + t^2 on 0 < t < 6.6, to 1e-7 of erfc(t) and to 1e-4 in the tail under 1e-3
_LOG_ERFCX = (
    9.26679888e-08, -1.12838697, 0.363484502, -0.103278987, 0.0203038808, -0.00125591457,
    -0.000684789906, 0.000249709352, -3.98823213e-05, 3.23631502e-06, -1.07713582e-07,
)  # fmt: skip
# In float64. sin(x) / x and cos(x) in x^2, |x| < pi / 4
_SIN = (0.9999999999952165, -0.16666666628966478, 0.008333328548900202, -0.00019839136240785735,
        2.7167674721865744e-06)  # fmt: skip
_COS = (0.9999999999999304, -0.4999999999924337, 0.0416666665297943, -0.001388887973816421,
        2.479880383244548e-05, -2.716508509154288e-07)  # fmt: skip
# e^r on |r| < ln(2) / 2
_EXP_DOUBLE = (
    0.9999999999997368, 0.9999999999790488, 0.5000000000669307, 0.16666666898745333, 0.041666664071619376,
    0.008333264363545749, 0.001388919005024076, 0.0001991690285052486, 2.4725888630785995e-05,
)  # fmt: skip
# 2 atanh(s) / s in s^2, |s| < 0.1717
_ATANH = (1.9999999999999463, 0.6666666667970194, 0.39999994855367876, 0.28572169893257604,
          0.22174093013400487, 0.1961038715411254)  # fmt: skip
# atan(x) / x in x^2, |x| < tan(pi / 8)
_ATAN = (0.9999999999792395, -0.3333333213213569, 0.19999886159241886, -0.14281645032901374,
         0.11041111206893332, -0.08459364357253643, 0.04713415106804841)  # fmt: skip


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's rule, lowest coefficient first."""
    total = x.like(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = total.fma(x, c)
    return total


def absolute(x: Value) -> Value:
    return x.fn.intrinsic("fabs", x)


def copy_sign(x: Value, sign: Value) -> Value:
    return x.fn.intrinsic("copysign", x, sign)


def square_root(x: Value) -> Value:
    return x.fn.intrinsic("sqrt", x)


def rounded(x: Value, how: str = "roundeven") -> Value:
    """``floor``, ``ceil``, ``trunc`` or ``roundeven`` (half to even)."""
    return x.fn.intrinsic(how, x)


def minimum(a: Value, b: Value | float) -> Value:
    """The smaller, nan where either is nan."""
    b = a.like(b)
    return a.compare("uno", b).select(a + b, (a < b).select(a, b))


def maximum(a: Value, b: Value | float) -> Value:
    """The larger, nan where either is nan."""
    b = a.like(b)
    return a.compare("uno", b).select(a + b, (a > b).select(a, b))


def _power_of_two(n: Value, scalar: str) -> Value:
    """2^n for an integral float ``n`` in the range of normal numbers."""
    if scalar == "float":
        return ((n.convert("fptosi", "i32") + 127) << 23).bits("float")
    return ((n.convert("fptosi", "i64") + 1023) << 52).bits("double")


def exp(x: Value, *, normal: bool = False) -> Value:
    """e^x. With ``normal``, results that are not normal numbers may be off: cheaper where they do not matter."""
    low, high = (-87.0, 88.0) if normal else (-104.0, 89.0)
    bounded = (x < low).select(low, (x > high).select(high, x))
    n = rounded(bounded * LOG2E)
    r = n.fma(-LN2_LOW, n.fma(-LN2_HIGH, bounded))
    mantissa = (r * r).fma(polynomial(r, _EXP), r) + 1.0
    if normal:
        return mantissa * _power_of_two(n, "float")
    # Two factors: the first product is exact, so a denormal result is rounded once.
    half = rounded(n * 0.5)
    return mantissa * _power_of_two(half, "float") * _power_of_two(n - half, "float")


def log(x: Value) -> Value:
    """Natural logarithm."""
    tiny = x < 1.17549435e-38
    scaled = tiny.select(x * 8388608.0, x)
    bits = scaled.bits("i32")
    # Exponent counted from sqrt(1/2), so that the mantissa is in [sqrt(1/2), sqrt(2)).
    shifted = bits - 0x3F3504F3
    exponent = (shifted >> 23).convert("sitofp", "float") - tiny.select(23.0, x.like(0.0))
    f = ((shifted & 0x007FFFFF) + 0x3F3504F3).bits("float") - 1.0
    square = f * f
    y = f * square * polynomial(f, _LOG)
    y = exponent.fma(LN2_LOW, y)
    y = square.fma(-0.5, y)
    result = exponent.fma(LN2_HIGH, f + y)
    result = (x.compare("eq", float("inf"))).select(x, result)
    result = (x.compare("eq", 0.0)).select(float("-inf"), result)
    bad = x.fn.emit(vector("i1", lanes_of(x.type)), f"fcmp ult {x.type} {x.text}, {x.like(0.0).text}")
    return bad.select(float("nan"), result)


def tanh(x: Value) -> Value:
    a = absolute(x)
    square = x * x
    small = (x * square).fma(polynomial(square, _TANH), x)
    large = 1.0 - 2.0 / (exp(a + a, normal=True) + 1.0)
    return copy_sign((a < 0.625).select(small, large), x)


def sigmoid(x: Value) -> Value:
    """1 / (1 + e^-x), from the exponential that cannot overflow."""
    e = exp(-absolute(x))
    return (x < 0.0).select(e, x.like(1.0)) / (e + 1.0)


def erf(x: Value) -> Value:
    a = absolute(x)
    square = x * x
    small = x.fma(polynomial(square, _ERF), x)
    bounded = (a > 4.1).select(4.1, a)
    large = copy_sign(1.0 - exp(polynomial(bounded, _LOG_ERFC), normal=True), x)
    return (a < 1.0).select(small, large)


def relu(x: Value) -> Value:
    """max(x, 0), nan kept."""
    return (x < 0.0).select(0.0, x)


def _wide(x: Value) -> Value:
    return x.convert("fpext", "double")


def _narrow(x: Value) -> Value:
    return x.convert("fptrunc", "float")


def _exp_double(x: Value, base_log2: float = LOG2E) -> Value:
    """e^x (or 2^x with ``base_log2`` 1) in float64, for arguments whose result a float32 can tell from 0, inf."""
    limit = 160.0 / base_log2
    bounded = (x < -limit).select(-limit, (x > limit).select(limit, x))
    n = rounded(bounded * base_log2)
    if base_log2 == 1.0:
        r = (bounded - n) * math.log(2.0)
    else:
        r = n.fma(-1.90821492927058770002e-10, n.fma(-0.693147180369123816490, bounded))
    return polynomial(r, _EXP_DOUBLE) * _power_of_two(n, "double")


def log_double(x: Value) -> Value:
    """Natural logarithm in float64 of a positive normal float64."""
    bits = x.bits("i64")
    shifted = bits - 0x3FE6A09E667F3BCD
    exponent = (shifted >> 52).convert("trunc", "i32").convert("sitofp", "double")
    m = ((shifted & 0x000FFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD).bits("double")
    s = (m - 1.0) / (m + 1.0)
    return exponent.fma(math.log(2.0), s * polynomial(s * s, _ATANH))


def exp2(x: Value) -> Value:
    return _keep_nan(x, _narrow(_exp_double(_wide(x), 1.0)))


def _keep_nan(x: Value, result: Value) -> Value:
    return x.compare("uno", x).select(x, result)


def expm1(x: Value) -> Value:
    """e^x - 1, also for small x."""
    w = _wide(x)
    large = _exp_double(w) - 1.0
    small = (w * w).fma(0.5, w)
    result = _narrow((absolute(w) < 1e-4).select(_cubic(w, small), large))
    return x.compare("eq", 0.0).select(x, _keep_nan(x, result))


def _cubic(w: Value, start: Value) -> Value:
    return (w * w * w).fma(1.0 / 6.0, start)


def log1p(x: Value) -> Value:
    """log(1 + x), also for small x."""
    w = _wide(x)
    small = (w * w).fma((w * (1.0 / 3.0)) - 0.5, w)
    u = w + 1.0
    result = _narrow((absolute(w) < 1e-4).select(small, log_double(u)))
    result = x.compare("eq", 0.0).select(x, result)
    return _log_edges(x, x + 1.0, result)


def _log_edges(x: Value, argument: Value, result: Value) -> Value:
    """A logarithm's infinities and nan, by the sign of its argument."""
    result = x.compare("eq", float("inf")).select(x, result)
    result = argument.compare("eq", 0.0).select(float("-inf"), result)
    return ((argument < 0.0) | argument.compare("uno", argument)).select(float("nan"), result)


def log2(x: Value) -> Value:
    return _log_edges(x, x, _narrow(log_double(_wide(x)) * LOG2E))


def log10(x: Value) -> Value:
    return _log_edges(x, x, _narrow(log_double(_wide(x)) * (1.0 / math.log(10.0))))


def sinh(x: Value) -> Value:
    w = _wide(x)
    e = _exp_double(absolute(w))
    large = copy_sign((e - 1.0 / e) * 0.5, w)
    return _keep_nan(x, _narrow((absolute(w) < 1e-4).select(_cubic(w, w), large)))


def cosh(x: Value) -> Value:
    e = _exp_double(absolute(_wide(x)))
    return _keep_nan(x, _narrow((e + 1.0 / e) * 0.5))


def _quadrant(w: Value) -> tuple[Value, Value, Value]:
    """sin(r), cos(r) of a float64 reduced to |r| <= pi/4, and the quadrant's number."""
    n = rounded(w * (2.0 / math.pi))
    n = (absolute(n) < 2.0**50).select(n, 0.0)
    r = n.fma(-6.123233995736766e-17, n.fma(-1.5707963267948966, w))
    square = r * r
    return r * polynomial(square, _SIN), polynomial(square, _COS), n.convert("fptosi", "i64")


def sine_cosine_double(w: Value) -> tuple[Value, Value]:
    """Sine and cosine of a float64 of moderate size, to about 1e-11."""
    s, c, n = _quadrant(w)
    even = (n & 1).compare("eq", 0)
    sine, cosine = even.select(s, c), even.select(c, s)
    return (
        (n & 2).compare("eq", 0).select(sine, -sine),
        ((n + 1) & 2).compare("eq", 0).select(cosine, -cosine),
    )


def _out_of_range(x: Value, result: Value) -> Value:
    """nan for infinities, nan and arguments too large to reduce."""
    reducible = absolute(x) < 1e15
    return reducible.select(_narrow(result), float("nan"))


def sin(x: Value) -> Value:
    return x.compare("eq", 0.0).select(x, _out_of_range(x, sine_cosine_double(_wide(x))[0]))


def cos(x: Value) -> Value:
    return _out_of_range(x, sine_cosine_double(_wide(x))[1])


def tan(x: Value) -> Value:
    s, c, n = _quadrant(_wide(x))
    even = (n & 1).compare("eq", 0)
    value = even.select(s, -c) / even.select(c, s)
    return x.compare("eq", 0.0).select(x, _out_of_range(x, value))


def _atan_double(x: Value) -> Value:
    """Arc tangent in float64: to [0, 1] by 1/x, then to |t| < tan(pi/8) by the difference with pi/4."""
    a = absolute(x)
    inverted = a > 1.0
    t = inverted.select(1.0 / a, a)
    shifted = t > math.tan(math.pi / 8)
    t = shifted.select((t - 1.0) / (t + 1.0), t)
    y = t * polynomial(t * t, _ATAN)
    y = shifted.select(y + math.pi / 4, y)
    return copy_sign(inverted.select(math.pi / 2 - y, y), x)


def atan(x: Value) -> Value:
    return _narrow(_atan_double(_wide(x)))


def asin(x: Value) -> Value:
    w = _wide(x)
    return _narrow(_atan_double(w / square_root((1.0 - w) * (w + 1.0))))


def acos(x: Value) -> Value:
    w = _wide(x)
    # acos(x) = 2 atan(sqrt((1 - x) / (1 + x))), accurate near both ends.
    return _narrow(_atan_double(square_root((1.0 - w) / (w + 1.0))) * 2.0)


def atan2(y: Value, x: Value) -> Value:
    """The angle of (x, y) with NumPy's signs of zero and infinities."""
    a, b = absolute(_wide(y)), absolute(_wide(x))
    both_infinite = a.compare("eq", float("inf")) & b.compare("eq", float("inf"))
    both_zero = a.compare("eq", 0.0) & b.compare("eq", 0.0)
    ratio = both_infinite.select(1.0, both_zero.select(0.0, a / both_zero.select(1.0, b)))
    angle = _atan_double(ratio)
    negative = x.bits("i32") < 0
    return copy_sign(_narrow(negative.select(math.pi - angle, angle)), y)


def power(x: Value, y: Value) -> Value:
    """x^y with the edge cases of IEEE 754's pow."""
    base = absolute(x)
    safe = _wide((base < 1e-45).select(1.0, base))
    product = _wide(y) * log_double(safe)
    magnitude = _narrow(_exp_double(product))
    infinity = x.like(float("inf"))
    zero_or_inf = (y > 0.0).select(base, base.compare("eq", 0.0).select(infinity, 0.0))
    edge = base.compare("eq", 0.0) | base.compare("eq", float("inf"))
    magnitude = edge.select(zero_or_inf, magnitude)
    infinite_y = absolute(y).compare("eq", float("inf"))
    grows = (base > 1.0).compare("eq", y > 0.0)
    magnitude = infinite_y.select(base.compare("eq", 1.0).select(1.0, grows.select(infinity, 0.0)), magnitude)
    whole = rounded(y, "trunc").compare("eq", y)
    halves = y * 0.5
    odd = whole & rounded(halves, "trunc").compare("ne", halves)
    negative = x.bits("i32") < 0
    signed = (negative & odd).select(-magnitude, magnitude)
    finite_base = absolute(x).compare("ne", float("inf")) & x.compare("ne", 0.0)
    signed = (negative & ~whole & finite_base).select(float("nan"), signed)
    result = x.compare("uno", y).select(x + y, signed)
    return (x.compare("eq", 1.0) | y.compare("eq", 0.0)).select(1.0, result)

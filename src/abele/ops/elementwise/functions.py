"""The elementwise functions as rows of tables: NumPy function, gradient, flops and where samples are drawn.

A gradient is written for float; the half ones are made by computing in float and rounding once (see ``op``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.ir.builder import Builder
from abele.ir.graph import Value
from abele.ir.operation import NotDifferentiable
from abele.ir.types import DType
from abele.ops.rules import (
    like,
)

Derive = Callable[[Builder, Value, Sequence[Value], Value], Sequence[Value | None]]
"""``derive(builder, dy, operands, y)``: gradients of the operands, broadcast as the result is."""

STEP = NotDifferentiable("it is constant between its steps")
TRUTH = NotDifferentiable("its results are true or false")
BITS = NotDifferentiable("it works on integers")


@dataclass(frozen=True)
class Function:
    """One elementwise function.

    Attributes:
        name: of the primitive.
        arity: number of operands.
        compute: in NumPy, on float64 or on integers and bool as they are.
        gradient: see ``Derive``, or why there is none.
        flops: for one element; transcendental functions count as one.
        kinds: dtypes it takes: ``float``, ``number`` (float and integers), ``integer``, ``bits`` (integers and bool),
            ``bool``, ``any``.
        truth: True when the result is bool.
        domain: low and high of the samples' values, for each operand.
        once: the gradient rounds once as it is written, so that half needs no detour through float.
    """

    name: str
    arity: int
    compute: Callable[..., Any]
    gradient: Derive | NotDifferentiable
    flops: int = 1
    kinds: str = "float"
    truth: bool = False
    domain: tuple[tuple[float, float], ...] = ()
    once: bool = False


def allowed(kinds: str) -> Callable[[DType], bool]:
    """The test of a dtype that ``kinds`` names."""
    return {
        "float": lambda d: d.is_float,
        "number": lambda d: d.is_number,
        "any": lambda d: True,
        "bits": lambda d: not d.is_float and not d.is_float8,
        "integer": lambda d: d.is_integer,
        "bool": lambda d: d is DType.BOOL,
    }[kinds]


WORDS = {
    "float": "f32 or f16",
    "number": "a number",
    "any": "of any dtype",
    "bits": "an integer or bool",
    "integer": "an integer",
    "bool": "bool",
}


# NumPy forms that need care


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[np.float64])(x) if np.size(x) else np.asarray(x, np.float64)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def floor_div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Quotient rounded down; an integer divided by zero gives 0."""
    if np.asarray(a).dtype.kind == "f":
        return np.floor(a / b)
    return np.where(b == 0, 0, np.floor_divide(a, np.where(b == 0, 1, b))).astype(np.asarray(a).dtype)


def rem(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Remainder with the sign of the divisor; an integer divided by zero gives 0."""
    if np.asarray(a).dtype.kind == "f":
        return np.remainder(a, b)
    return np.where(b == 0, 0, np.remainder(a, np.where(b == 0, 1, b))).astype(np.asarray(a).dtype)


def fmod(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Remainder with the sign of the dividend; an integer divided by zero gives 0."""
    if np.asarray(a).dtype.kind == "f":
        return np.fmod(a, b)
    return np.where(b == 0, 0, np.fmod(a, np.where(b == 0, 1, b))).astype(np.asarray(a).dtype)


def _power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if np.asarray(a).dtype.kind == "f":
        return np.power(a, b)
    # An integer to a negative power: 1 and -1 keep their sign, all else rounds to 0, and 0 gives 0.
    positive = np.power(a, np.maximum(b, 0))
    negative = np.where(np.abs(a) == 1, np.where(b % 2 == 0, 1, a), 0)
    return np.where(b < 0, negative, positive).astype(np.asarray(a).dtype)


def _shift(by: Callable[..., Any]) -> Callable[..., Any]:
    def shift(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        width = np.asarray(a).dtype.itemsize * 8
        outside = (b < 0) | (b >= width)
        done = by(a, np.where(outside, 0, b).astype(np.asarray(a).dtype))
        past = np.where(a < 0, -1, 0) if by is np.right_shift else 0
        return np.where(outside, past, done).astype(np.asarray(a).dtype)

    return shift


def _reciprocal(x: np.ndarray) -> np.ndarray:
    return 1.0 / np.asarray(x)


# Gradients of one operand, as functions of (b, dy, x, y)


def _one(rule: Callable[[Builder, Value, Value, Value], Value]) -> Derive:
    return lambda b, dy, operands, y: (rule(b, dy, operands[0], y),)


def _scaled(factor: float) -> Callable[[Builder, Value], Value]:
    return lambda b, v: b.mul(v, like(b, factor, v))


def _one_minus(b: Builder, v: Value) -> Value:
    return b.sub(like(b, 1.0, v), v)


def _one_plus(b: Builder, v: Value) -> Value:
    return b.add(like(b, 1.0, v), v)


def _square(b: Builder, v: Value) -> Value:
    return b.mul(v, v)


def _gaussian(b: Builder, x: Value) -> Value:
    """2 / sqrt(pi) · exp(-x²)."""
    return b.mul(b.exp(b.neg(_square(b, x))), like(b, 2.0 / math.sqrt(math.pi), x))


def _where_positive(b: Builder, dy: Value, x: Value) -> Value:
    return b.select(b.gt(x, like(b, 0.0, x)), dy, like(b, 0.0, dy))


_ONE = ((-3.0, 3.0),)
_POSITIVE = ((0.1, 4.0),)

UNARY: tuple[Function, ...] = (
    Function("exp", 1, np.exp, _one(lambda b, dy, x, y: b.mul(dy, y)), domain=_ONE, once=True),
    Function("exp2", 1, np.exp2, _one(lambda b, dy, x, y: _scaled(math.log(2))(b, b.mul(dy, y))), domain=_ONE),
    Function("expm1", 1, np.expm1, _one(lambda b, dy, x, y: b.mul(dy, _one_plus(b, y))), domain=_ONE),
    Function("log", 1, np.log, _one(lambda b, dy, x, y: b.div(dy, x)), domain=_POSITIVE, once=True),
    Function("log2", 1, np.log2, _one(lambda b, dy, x, y: b.div(_scaled(1 / math.log(2))(b, dy), x)), domain=_POSITIVE),
    Function(
        "log10", 1, np.log10, _one(lambda b, dy, x, y: b.div(_scaled(1 / math.log(10))(b, dy), x)), domain=_POSITIVE
    ),
    Function("log1p", 1, np.log1p, _one(lambda b, dy, x, y: b.div(dy, _one_plus(b, x))), domain=((-0.7, 3.0),)),
    Function(
        "tanh", 1, np.tanh, _one(lambda b, dy, x, y: b.mul(dy, _one_minus(b, _square(b, y)))), domain=((-2.0, 2.0),)
    ),
    Function("sigmoid", 1, _sigmoid, _one(lambda b, dy, x, y: b.mul(dy, b.mul(y, _one_minus(b, y)))), domain=_ONE),
    Function("erf", 1, _erf, _one(lambda b, dy, x, y: b.mul(dy, _gaussian(b, x))), domain=_ONE),
    Function("sqrt", 1, np.sqrt, _one(lambda b, dy, x, y: b.div(_scaled(0.5)(b, dy), y)), domain=_POSITIVE),
    Function(
        "rsqrt",
        1,
        lambda x: 1.0 / np.sqrt(x),
        _one(lambda b, dy, x, y: b.mul(_scaled(-0.5)(b, dy), b.mul(y, _square(b, y)))),
        domain=_POSITIVE,
    ),
    Function(
        "reciprocal",
        1,
        _reciprocal,
        _one(lambda b, dy, x, y: b.neg(b.mul(dy, _square(b, y)))),
        domain=_POSITIVE,
    ),
    Function("neg", 1, np.negative, _one(lambda b, dy, x, y: b.neg(dy)), kinds="number", once=True),
    Function("abs", 1, np.abs, _one(lambda b, dy, x, y: b.mul(dy, b.sign(x))), kinds="number", once=True),
    Function("sign", 1, np.sign, STEP, kinds="number"),
    Function("floor", 1, np.floor, STEP, domain=_ONE),
    Function("ceil", 1, np.ceil, STEP, domain=_ONE),
    Function("round", 1, np.rint, STEP, domain=_ONE),
    Function("trunc", 1, np.trunc, STEP, domain=_ONE),
    Function("sin", 1, np.sin, _one(lambda b, dy, x, y: b.mul(dy, b.cos(x)))),
    Function("cos", 1, np.cos, _one(lambda b, dy, x, y: b.neg(b.mul(dy, b.sin(x))))),
    Function("tan", 1, np.tan, _one(lambda b, dy, x, y: b.mul(dy, _one_plus(b, _square(b, y)))), domain=((-1.2, 1.2),)),
    Function(
        "asin",
        1,
        np.arcsin,
        _one(lambda b, dy, x, y: b.mul(dy, b.rsqrt(_one_minus(b, _square(b, x))))),
        domain=((-0.9, 0.9),),
    ),
    Function(
        "acos",
        1,
        np.arccos,
        _one(lambda b, dy, x, y: b.neg(b.mul(dy, b.rsqrt(_one_minus(b, _square(b, x)))))),
        domain=((-0.9, 0.9),),
    ),
    Function("atan", 1, np.arctan, _one(lambda b, dy, x, y: b.div(dy, _one_plus(b, _square(b, x))))),
    Function("sinh", 1, np.sinh, _one(lambda b, dy, x, y: b.mul(dy, b.cosh(x)))),
    Function("cosh", 1, np.cosh, _one(lambda b, dy, x, y: b.mul(dy, b.sinh(x)))),
    Function(
        "relu",
        1,
        lambda x: np.maximum(x, x.dtype.type(0)),
        _one(lambda b, dy, x, y: _where_positive(b, dy, y)),
        kinds="number",
        once=True,
    ),
    Function("is_nan", 1, np.isnan, TRUTH, truth=True),
    Function("is_inf", 1, np.isinf, TRUTH, truth=True),
    Function("is_finite", 1, np.isfinite, TRUTH, truth=True),
    Function("logical_not", 1, np.logical_not, TRUTH, 0, "bool", truth=True),
    Function("bit_not", 1, np.invert, BITS, 0, "bits"),
)


def _add(b: Builder, dy: Value, operands: Sequence[Value], y: Value):
    return dy, dy


def _sub(b: Builder, dy: Value, operands: Sequence[Value], y: Value):
    return dy, b.neg(dy)


def _mul(b: Builder, dy: Value, operands: Sequence[Value], y: Value):
    return b.mul(dy, operands[1]), b.mul(dy, operands[0])


def _div(b: Builder, dy: Value, operands: Sequence[Value], y: Value):
    first = b.div(dy, operands[1])
    return first, b.neg(b.mul(first, b.div(operands[0], operands[1])))


def _rem(quotient: str) -> Derive:
    """a - b · q where the quotient q is constant between its steps."""

    def derive(b: Builder, dy: Value, operands: Sequence[Value], y: Value):
        a, divisor = operands
        whole = b.emit(quotient, (b.div(a, divisor),))[0]
        return dy, b.neg(b.mul(dy, whole))

    return derive


def _larger(compare: str) -> Derive:
    """All of the gradient to the operand that was taken; half to each where they are equal."""

    def derive(b: Builder, dy: Value, operands: Sequence[Value], y: Value):
        a, other = operands
        none, half = like(b, 0.0, dy), b.mul(dy, like(b, 0.5, dy))
        equal = b.eq(a, other)
        taken = b.emit(compare, (a, other))[0]
        first = b.select(equal, half, b.select(taken, dy, none))
        return first, b.select(equal, half, b.select(taken, none, dy))

    return derive


def _pow(b: Builder, dy: Value, operands: Sequence[Value], y: Value):
    a, power = operands
    zero, one = like(b, 0.0, a), like(b, 1.0, a)
    # x⁰ has slope 0 everywhere, also where x^(-1) is infinite; 0^p has logarithm -inf and slope 0 in p.
    slope = b.select(b.eq(power, zero), zero, b.mul(power, b.pow(a, b.sub(power, one))))
    logarithm = b.select(b.eq(a, zero), zero, b.log(a))
    return b.mul(dy, slope), b.mul(dy, b.mul(y, logarithm))


def _atan2(b: Builder, dy: Value, operands: Sequence[Value], y: Value):
    a, other = operands
    scaled = b.div(dy, b.add(_square(b, a), _square(b, other)))
    return b.mul(scaled, other), b.neg(b.mul(scaled, a))


_DIVISOR = ((-3.0, 3.0), (0.5, 3.0))

BINARY: tuple[Function, ...] = (
    Function("add", 2, np.add, _add, kinds="number", once=True),
    Function("sub", 2, np.subtract, _sub, kinds="number", once=True),
    Function("mul", 2, np.multiply, _mul, kinds="number", once=True),
    Function("div", 2, np.divide, _div, domain=_DIVISOR),
    Function("floor_div", 2, floor_div, STEP, kinds="number", domain=((-20.0, 20.0), (1.0, 7.0))),
    Function("rem", 2, rem, _rem("floor"), kinds="number", domain=((-20.0, 20.0), (1.0, 7.0))),
    Function("fmod", 2, fmod, _rem("trunc"), kinds="number", domain=((-20.0, 20.0), (1.0, 7.0))),
    Function("max", 2, np.maximum, _larger("gt"), kinds="number", once=True),
    Function("min", 2, np.minimum, _larger("lt"), kinds="number", once=True),
    Function("pow", 2, _power, _pow, kinds="number", domain=((0.2, 3.0), (-2.0, 3.0))),
    Function("atan2", 2, np.arctan2, _atan2, domain=((0.3, 3.0), (-3.0, 3.0))),
    Function("eq", 2, np.equal, TRUTH, 1, "any", truth=True),
    Function("ne", 2, np.not_equal, TRUTH, 1, "any", truth=True),
    Function("lt", 2, np.less, TRUTH, 1, "number", truth=True),
    Function("le", 2, np.less_equal, TRUTH, 1, "number", truth=True),
    Function("gt", 2, np.greater, TRUTH, 1, "number", truth=True),
    Function("ge", 2, np.greater_equal, TRUTH, 1, "number", truth=True),
    Function("logical_and", 2, np.logical_and, TRUTH, 0, "bool", truth=True),
    Function("logical_or", 2, np.logical_or, TRUTH, 0, "bool", truth=True),
    Function("logical_xor", 2, np.logical_xor, TRUTH, 0, "bool", truth=True),
    Function("bit_and", 2, np.bitwise_and, BITS, 0, "bits"),
    Function("bit_or", 2, np.bitwise_or, BITS, 0, "bits"),
    Function("bit_xor", 2, np.bitwise_xor, BITS, 0, "bits"),
    Function("shl", 2, _shift(np.left_shift), BITS, 0, "integer", domain=((-9.0, 9.0), (0.0, 7.0))),
    Function("shr", 2, _shift(np.right_shift), BITS, 0, "integer", domain=((-9.0, 9.0), (0.0, 7.0))),
)

FUNCTIONS: dict[str, Function] = {f.name: f for f in (*UNARY, *BINARY)}

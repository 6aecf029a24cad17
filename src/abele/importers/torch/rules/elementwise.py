"""Arithmetic, comparisons, logic and casts, element by element. torch's type of the result is the type computed in."""

from __future__ import annotations

import math
from typing import Any

import torch

from abele.importers.torch.emitter import Emitter, Operand
from abele.importers.torch.table import rule
from abele.ir import DType, Value

_PLAIN = (
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "tanh",
    "sigmoid",
    "erf",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "neg",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
    "relu",
    "square",
)
_UNARY = {
    "special_exp2": "exp2",
    "special_expm1": "expm1",
    "special_log1p": "log1p",
    "special_erf": "erf",
    "special_expit": "sigmoid",
} | {name: name for name in _PLAIN}
_ROUNDING = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "fix": "trunc"}
_TESTS = {"isnan": "is_nan", "isinf": "is_inf", "isfinite": "is_finite"}
_BINARY = {
    "mul": "mul",
    "multiply": "mul",
    "maximum": "max",
    "minimum": "min",
    "atan2": "atan2",
    "arctan2": "atan2",
    "remainder": "rem",
    "floor_divide": "floor_div",
    "fmod": "fmod",
    "bitwise_left_shift": "shl",
    "bitwise_right_shift": "shr",
    "__lshift__": "shl",
    "__rshift__": "shr",
}
_COMPARE = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
_LOGICAL = {"logical_and": "logical_and", "logical_or": "logical_or", "logical_xor": "logical_xor"}
_BITWISE = {
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "__and__": "and",
    "__or__": "or",
    "__xor__": "xor",
}


@rule(*_UNARY)
def unary(e: Emitter, x: Value) -> Value:
    return e.unary(_UNARY[e.name], x)


@rule(*_ROUNDING)
def rounding(e: Emitter, x: Value) -> Value:
    return e.unary(_ROUNDING[e.name], x) if x.dtype.is_float else x


@rule("round")
def round_(e: Emitter, x: Value, decimals: int = 0) -> Value:
    if not x.dtype.is_float:
        return x
    if not decimals:
        return e.unary("round", x)
    scale = 10.0**decimals
    return e.binary("div", e.unary("round", e.binary("mul", x, scale)), scale)


@rule("abs")
def absolute(e: Emitter, x: Value) -> Value:
    return x if x.dtype in (DType.BOOL, DType.U8, DType.U32) else e.unary("abs", x)


@rule("sign", "sgn")
def sign(e: Emitter, x: Value) -> Value:
    """NaN stays NaN; torch gives 0."""
    return x if x.dtype is DType.BOOL else e.unary("sign", x)


@rule(*_TESTS)
def test(e: Emitter, x: Value) -> Value:
    if not x.dtype.is_float:
        return e.number(e.name == "isfinite", DType.BOOL, x.shape)
    return e.emit(_TESTS[e.name], x)


@rule("isposinf", "isneginf")
def signed_infinity(e: Emitter, x: Value) -> Value:
    limit = math.inf if e.name == "isposinf" else -math.inf
    return e.binary("eq", x, limit, x.dtype) if x.dtype.is_float else e.number(False, DType.BOOL, x.shape)


@rule("signbit")
def signbit(e: Emitter, x: Value) -> Value:
    return negative(e, x)


def negative(e: Emitter, x: Value) -> Value:
    """Whether the sign is minus, also that of a zero: its reciprocal shows it."""
    below = e.binary("lt", x, 0, x.dtype)
    if not x.dtype.is_float:
        return below
    return e.emit("logical_or", below, e.binary("lt", e.emit("reciprocal", x), 0, x.dtype))


@rule("frac")
def frac(e: Emitter, x: Value) -> Value:
    return e.binary("sub", x, e.unary("trunc", x))


@rule("erfc", "special_erfc")
def erfc(e: Emitter, x: Value) -> Value:
    return e.binary("sub", 1.0, e.unary("erf", x))


@rule("add", "sub", "subtract", "rsub")
def add(e: Emitter, a: Operand, b: Operand, alpha: float = 1) -> Value:
    if e.name == "rsub":
        a, b = b, a
    if alpha != 1:
        b = e.binary("mul", b, alpha)
    if e.out.dtype is DType.BOOL:
        return e.binary("logical_or", a, b)
    return e.binary("add" if e.name == "add" else "sub", a, b)


@rule(*_BINARY)
def binary(e: Emitter, a: Operand, b: Operand) -> Value:
    name = _BINARY[e.name]
    if e.out.dtype is DType.BOOL:
        name = {"mul": "logical_and", "max": "logical_or", "min": "logical_and"}.get(name, name)
    return e.binary(name, a, b)


@rule("div", "divide", "true_divide")
def div(e: Emitter, a: Operand, b: Operand, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None:
        return e.binary("div", a, b)
    if rounding_mode == "floor":
        return e.binary("floor_div", a, b)
    if e.out.dtype.is_float:
        return e.unary("trunc", e.binary("div", a, b))
    # Integers towards zero: without the remainder that has the sign of the dividend, the division is exact.
    return e.binary("floor_div", e.binary("sub", a, e.binary("fmod", a, b)), b)


@rule("fmax", "fmin")
def ignoring_nan(e: Emitter, a: Operand, b: Operand) -> Value:
    a, b = e.operand(a), e.operand(b)
    found = e.binary("max" if e.name == "fmax" else "min", a, b)
    if not e.out.dtype.is_float:
        return found
    return e.emit("select", e.emit("is_nan", a), b, e.emit("select", e.emit("is_nan", b), a, found))


@rule("pow", "float_power")
def power(e: Emitter, a: Operand, b: Operand) -> Value:
    if isinstance(b, int | float) and isinstance(a, Value):
        if b == 2:
            return e.unary("square", a)
        if b == 1:
            return e.operand(a)
        if b == 0:
            return e.number(1, e.out.dtype, e.out.shape)
        if b == 3:
            x = e.operand(a)
            return e.binary("mul", e.emit("square", x), x)
        if e.out.dtype.is_float and b in (0.5, -0.5, -1):
            return e.unary({0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}[b], a)
    if isinstance(a, int | float) and isinstance(b, Value) and a == 2 and e.out.dtype.is_float:
        return e.unary("exp2", b)
    return e.binary("pow", a, b)


@rule(*_COMPARE)
def compare(e: Emitter, a: Operand, b: Operand) -> Value:
    kind = e.promoted(e.meta[0], e.meta[1])
    return e.binary(_COMPARE[e.name], a, b, kind)


def truth(e: Emitter, x: Operand) -> Value:
    """A tensor as bools: whether each element is not zero."""
    if not isinstance(x, Value):
        return e.number(bool(x), DType.BOOL)
    return x if x.dtype is DType.BOOL else e.binary("ne", x, 0, x.dtype)


@rule(*_LOGICAL)
def logical(e: Emitter, a: Operand, b: Operand) -> Value:
    name, first, second = _LOGICAL[e.name], truth(e, a), truth(e, b)
    return e.both(first, second) if name == "logical_and" else e.emit(name, first, second)


@rule("logical_not")
def logical_not(e: Emitter, x: Value) -> Value:
    return e.emit("logical_not", truth(e, x))


@rule("bitwise_not")
def bitwise_not(e: Emitter, x: Value) -> Value:
    return e.emit("logical_not" if x.dtype is DType.BOOL else "bit_not", x)


@rule(*_BITWISE)
def bitwise(e: Emitter, a: Operand, b: Operand) -> Value:
    form = _BITWISE[e.name]
    if e.out.dtype is DType.BOOL and form == "and":
        return e.both(e.operand(a), e.operand(b))
    return e.binary(("logical_" if e.out.dtype is DType.BOOL else "bit_") + form, a, b)


@rule("where")
def where(e: Emitter, condition: Value, a: Operand, b: Operand) -> Value:
    return e.emit("select", truth(e, condition), e.operand(a), e.operand(b))


@rule("masked_fill")
def masked_fill(e: Emitter, x: Value, mask: Value, value: Operand) -> Value:
    found = e.emit("select", truth(e, mask), e.operand(value), e.operand(x))
    return e.expand(found, e.out.shape)


@rule("clamp", "clamp_min", "clamp_max", "clip")
def clamp(e: Emitter, x: Value, min: Any = None, max: Any = None) -> Value:
    low, high = (None, min) if e.name == "clamp_max" else (min, max)
    x = e.operand(x)
    if not isinstance(low, Value) and not isinstance(high, Value):
        integer = not e.out.dtype.is_float
        low, high = (int(v) if integer and v is not None else v for v in (low, high))
        return e.emit("clamp", x, low=low, high=high)
    x = x if low is None else e.binary("max", x, low)
    return x if high is None else e.binary("min", x, high)


@rule("nan_to_num")
def nan_to_num(
    e: Emitter, x: Value, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Value:
    if not x.dtype.is_float:
        return x
    limits = torch.finfo(torch.float16 if x.dtype is DType.F16 else torch.float32)
    return e.emit(
        "nan_to_num",
        x,
        nan=float(nan or 0.0),
        posinf=float(limits.max if posinf is None else posinf),
        neginf=float(limits.min if neginf is None else neginf),
    )


@rule("lerp")
def lerp(e: Emitter, a: Value, b: Value, weight: Operand) -> Value:
    return e.emit("lerp", e.operand(a), e.operand(b), e.operand(weight))


@rule("addcmul", "addcdiv")
def add_product(e: Emitter, x: Value, a: Value, b: Value, value: float = 1) -> Value:
    term = e.binary("mul" if e.name == "addcmul" else "div", a, b)
    return e.binary("add", x, term if value == 1 else e.binary("mul", term, value))


@rule("copysign")
def copysign(e: Emitter, a: Operand, b: Operand) -> Value:
    size = e.unary("abs", a)
    return e.emit("select", negative(e, e.operand(b)), e.unary("neg", size), size)


@rule("heaviside")
def heaviside(e: Emitter, x: Value, middle: Operand) -> Value:
    x = e.operand(x)
    step = e.cast(e.binary("gt", x, 0), e.out.dtype)
    return e.emit("select", e.binary("eq", x, 0), e.operand(middle), step)


@rule("hypot")
def hypot(e: Emitter, a: Value, b: Value) -> Value:
    return e.unary("sqrt", e.binary("add", e.unary("square", a), e.unary("square", b)))


@rule("xlogy", "special_xlogy")
def xlogy(e: Emitter, a: Operand, b: Operand) -> Value:
    a = e.operand(a)
    return e.emit("select", e.binary("eq", a, 0), e.number(0, e.out.dtype), e.binary("mul", a, e.unary("log", b)))


@rule("logaddexp")
def logaddexp(e: Emitter, a: Value, b: Value) -> Value:
    return log_add(e, e.operand(a), e.operand(b))


def log_add(e: Emitter, a: Value, b: Value) -> Value:
    """log(exp(a) + exp(b)), also where both are infinite, when their difference is not a number."""
    high, low = e.emit("max", a, b), e.emit("min", a, b)
    none = e.number(0, a.dtype)
    gap = e.emit("select", e.emit("eq", high, low), none, e.emit("sub", low, high))
    return e.emit("add", high, e.emit("log1p", e.emit("exp", gap)))


@rule(
    "_to_copy",
    "prims::convert_element_type",
    "clone",
    "contiguous",
    "_fw_primal",
    "alias_copy",
    "detach_copy",
    "lift",
    "lift_fresh_copy",
)
def copy(e: Emitter, x: Value, dtype: Any = None) -> Value:
    if e.out.dtype is DType.BOOL:
        return truth(e, x)
    return e.cast(x, e.out.dtype)


@rule("copy", "copy_")
def copy_into(e: Emitter, target: Value, source: Value, non_blocking: bool = False) -> Value:
    source = truth(e, source) if target.dtype is DType.BOOL else e.cast(source, target.dtype)
    return e.expand(source, target.shape)


@rule("fill", "fill_")
def fill(e: Emitter, target: Value, value: Operand) -> Value:
    return e.expand(e.operand(value, target.dtype), target.shape)


@rule("zero", "zero_")
def zero(e: Emitter, target: Value) -> Value:
    return e.number(0, target.dtype, target.shape)

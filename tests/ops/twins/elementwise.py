"""Elementwise operations in torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F

UNARY = {
    "exp": torch.exp, "exp2": torch.exp2, "expm1": torch.expm1, "log": torch.log, "log2": torch.log2,
    "log10": torch.log10, "log1p": torch.log1p, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "erf": torch.erf,
    "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal, "neg": torch.neg, "abs": torch.abs,
    "sign": torch.sign, "floor": torch.floor, "ceil": torch.ceil, "round": torch.round, "trunc": torch.trunc,
    "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "asin": torch.asin, "acos": torch.acos, "atan": torch.atan,
    "sinh": torch.sinh, "cosh": torch.cosh, "relu": torch.relu, "is_nan": torch.isnan, "is_inf": torch.isinf,
    "is_finite": torch.isfinite, "logical_not": torch.logical_not, "bit_not": torch.bitwise_not,
    "asinh": torch.asinh, "acosh": torch.acosh, "atanh": torch.atanh, "square": torch.square,
    "silu": F.silu, "log_sigmoid": F.logsigmoid, "mish": F.mish, "selu": F.selu, "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish, "softsign": F.softsign, "tanhshrink": F.tanhshrink,
}  # fmt: skip
BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "rem": torch.remainder, "fmod": torch.fmod,
    "floor_div": torch.floor_divide, "max": torch.maximum, "min": torch.minimum, "pow": torch.pow,
    "atan2": torch.atan2, "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt,
    "ge": torch.ge, "logical_and": torch.logical_and, "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor, "bit_and": torch.bitwise_and, "bit_or": torch.bitwise_or,
    "bit_xor": torch.bitwise_xor, "shl": torch.bitwise_left_shift, "shr": torch.bitwise_right_shift,
}  # fmt: skip

DTYPES = {
    "f32": torch.float64, "f16": torch.float64, "i32": torch.int32, "i8": torch.int8, "u8": torch.uint8,
    "bool": torch.bool, "u32": torch.int64, "i16": torch.int16,
}  # fmt: skip


def _iota(shape, axis, dtype, start, step):
    numbers = start + step * torch.arange(shape[axis])
    return numbers.reshape((-1,) + (1,) * (len(shape) - axis - 1)).expand(shape).to(DTYPES[dtype])


TWINS = {name: lambda *x, _f=f: _f(*x) for name, f in (UNARY | BINARY).items()} | {
    "select": torch.where,
    "cast": lambda x, dtype: x.to(DTYPES[dtype]),
    "fill": lambda value, dtype, shape: torch.full(shape, value, dtype=DTYPES[dtype]),
    "iota": _iota,
    "clamp": lambda x, low, high: torch.clamp(x, low, high),
    "hardtanh": lambda x, low, high: F.hardtanh(x, low, high),
    "gelu_grad": lambda dy, x, approximate: torch.ops.aten.gelu_backward(dy, x, approximate=approximate),
    "gelu": lambda x, approximate: F.gelu(x, approximate=approximate),
    "softplus": lambda x, beta, threshold: F.softplus(x, beta, threshold),
    "elu": lambda x, alpha: F.elu(x, alpha),
    "celu": lambda x, alpha: F.celu(x, alpha),
    "leaky_relu": lambda x, slope: F.leaky_relu(x, slope),
    "hardshrink": lambda x, lambd: F.hardshrink(x, lambd),
    "softshrink": lambda x, lambd: F.softshrink(x, lambd),
    "threshold": lambda x, threshold, value: F.threshold(x, threshold, value),
    "prelu": lambda x, w: torch.where(x > 0, x, w * x),
    "logit": lambda x, eps: torch.logit(x, eps),
    "lerp": torch.lerp,
    "nan_to_num": lambda x, nan, posinf, neginf: torch.nan_to_num(x, nan, posinf, neginf),
    "masked_fill": lambda x, mask, value: x.masked_fill(mask, value),
}

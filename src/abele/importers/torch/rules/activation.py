"""Activation functions and the softmax family."""

from __future__ import annotations

from typing import Any

from abele.importers.torch.emitter import Emitter, axis_of
from abele.importers.torch.rules.random import uniform
from abele.importers.torch.table import rule
from abele.ir import Value


@rule("gelu")
def gelu(e: Emitter, x: Value, approximate: str = "none") -> Value:
    return e.emit("gelu", x, approximate=approximate)


@rule("silu", "mish", "hardsigmoid", "hardswish")
def plain(e: Emitter, x: Value) -> Value:
    return e.emit(e.name, x)


@rule("softplus")
def softplus(e: Emitter, x: Value, beta: float = 1, threshold: float = 20) -> Value:
    return e.emit("softplus", x, beta=float(beta), threshold=float(threshold))


@rule("elu")
def elu(e: Emitter, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    if input_scale == 1:
        y = e.emit("elu", x, alpha=float(alpha))
        return y if scale == 1 else e.binary("mul", y, scale)
    negative = e.binary("mul", e.unary("expm1", e.binary("mul", x, input_scale)), alpha)
    return e.binary("mul", e.emit("select", e.binary("gt", x, 0), x, negative), scale)


@rule("celu")
def celu(e: Emitter, x: Value, alpha: float = 1) -> Value:
    if alpha == 1:
        return e.emit("elu", x, alpha=1.0)
    negative = e.binary("mul", e.unary("expm1", e.binary("div", x, alpha)), alpha)
    return e.emit("select", e.binary("gt", x, 0), x, negative)


@rule("selu")
def selu(e: Emitter, x: Value) -> Value:
    return e.emit("selu", x)


@rule("leaky_relu")
def leaky_relu(e: Emitter, x: Value, negative_slope: float = 0.01) -> Value:
    return e.emit("leaky_relu", x, slope=float(negative_slope))


@rule("rrelu_with_noise")
def rrelu(
    e: Emitter, x: Value, noise: Value, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, *_: Any
) -> Value:
    """A leaky relu whose slope is drawn for each element in training, and is the mean of the bounds otherwise."""
    if not training:
        return leaky_relu(e, x, (lower + upper) / 2)
    slope = uniform(e, x.shape, x.dtype, lower, upper)
    return e.emit("select", e.binary("lt", x, 0), e.binary("mul", x, slope), x)


@rule("hardtanh", "relu6")
def hardtanh(e: Emitter, x: Value, min_val: float = -1, max_val: float = 1) -> Value:
    if e.name == "relu6":
        min_val, max_val = 0.0, 6.0
    return e.emit("clamp", x, low=float(min_val), high=float(max_val))


@rule("log_sigmoid_forward")
def log_sigmoid(e: Emitter, x: Value) -> tuple[Value, Value]:
    # The second result is a buffer for the backward, which has no elements here.
    return e.emit("log_sigmoid", x), e.number(0, e.outs[1].dtype, e.outs[1].shape)


@rule("hardshrink", "softshrink")
def shrink(e: Emitter, x: Value, lambd: float = 0.5) -> Value:
    return e.emit(e.name, x, lambd=float(lambd))


@rule("threshold")
def threshold(e: Emitter, x: Value, threshold: float, value: float) -> Value:
    return e.emit("threshold", x, threshold=float(threshold), value=float(value))


@rule("_prelu_kernel")
def prelu(e: Emitter, x: Value, weight: Value) -> Value:
    return e.emit("prelu", x, e.cast(weight, x.dtype))


@rule("glu")
def glu(e: Emitter, x: Value, dim: int = -1) -> Value:
    axis = axis_of(dim, len(x.shape))
    half = x.shape[axis] // 2
    gate = e.emit("sigmoid", e.slice(x, axis, half, 2 * half))
    return e.binary("mul", e.slice(x, axis, 0, half), gate)


@rule("_softmax", "_log_softmax", "softmax", "log_softmax")
def softmax(e: Emitter, x: Value, dim: int, half_to_float: object = False) -> Value:
    if not x.shape:
        one = e.emit("softmax" if "log" not in e.name else "log_softmax", e.reshape(e.operand(x), (1,)), axis=0)
        return e.reshape(one, ())
    return e.unary(e.name.lstrip("_"), x, axis=axis_of(dim, len(x.shape)))


@rule("_safe_softmax")
def safe_softmax(e: Emitter, x: Value, dim: int, dtype: object = None) -> Value:
    """Softmax in which a row that is minus infinity throughout gives zeros."""
    axis = axis_of(dim, len(x.shape))
    x = e.operand(x)
    highest = e.emit("reduce_max", x, axes=(axis,), keep=True)
    masked = e.binary("eq", highest, float("-inf"))
    return e.emit("select", masked, e.number(0, x.dtype), e.emit("softmax", x, axis=axis))

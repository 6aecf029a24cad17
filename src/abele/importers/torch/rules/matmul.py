"""Matrix products."""

from __future__ import annotations

from typing import Any

import torch

from abele.importers.torch.emitter import Emitter
from abele.importers.torch.table import function, rule
from abele.importers.torch.tracer import Tracer
from abele.ir import Value

_TENSOR: Any = torch.Tensor


@rule("mm", "bmm")
def mm(e: Emitter, a: Value, b: Value, out_dtype: Any = None) -> Value:
    return e.matmul(e.operand(a), e.operand(b))


def _scaled_sum(e: Emitter, x: Value, product: Value, beta: float, alpha: float) -> Value:
    """``beta * x + alpha * product``; a beta of zero ignores ``x``, whatever it holds."""
    if alpha != 1:
        product = e.binary("mul", product, alpha)
    if beta == 0:
        return product
    return e.binary("add", product, x if beta == 1 else e.binary("mul", x, beta))


@rule("addmm", "baddbmm")
def addmm(e: Emitter, x: Value, a: Value, b: Value, beta: float = 1, alpha: float = 1, **_: Any) -> Value:
    return _scaled_sum(e, x, e.matmul(e.operand(a), e.operand(b)), beta, alpha)


@rule("addbmm")
def addbmm(e: Emitter, x: Value, a: Value, b: Value, beta: float = 1, alpha: float = 1) -> Value:
    total = e.emit("reduce_sum", e.matmul(e.operand(a), e.operand(b)), axes=(0,), keep=False)
    return _scaled_sum(e, x, total, beta, alpha)


def _column(e: Emitter, v: Value) -> Value:
    return e.reshape(e.operand(v), (*v.shape, 1))


@rule("mv")
def mv(e: Emitter, a: Value, v: Value) -> Value:
    return e.reshape(e.matmul(e.operand(a), _column(e, v)), e.out.shape)


@rule("addmv")
def addmv(e: Emitter, x: Value, a: Value, v: Value, beta: float = 1, alpha: float = 1) -> Value:
    # As BLAS has it: an alpha of zero ignores the product, whatever it holds.
    product = mv(e, a, v) if alpha != 0 else e.number(0, e.out.dtype, e.out.shape)
    return _scaled_sum(e, x, product, beta, 1 if alpha == 0 else alpha)


@rule("dot", "vdot")
def dot(e: Emitter, a: Value, b: Value) -> Value:
    row = e.reshape(e.operand(a), (1, *a.shape))
    return e.reshape(e.matmul(row, _column(e, b)), ())


@rule("addr")
def addr(e: Emitter, x: Value, a: Value, b: Value, beta: float = 1, alpha: float = 1) -> Value:
    return _scaled_sum(e, x, e.binary("mul", _column(e, a), b), beta, alpha)


@function(torch.nn.functional.linear)
def linear(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    """One operation, in the type of the input: the weights are cast to it."""
    given = dict(zip(("input", "weight", "bias"), args)) | kwargs
    x, weight, bias = given["input"], given["weight"], given.get("bias")
    if weight.dim() != 2 or not x.is_floating_point() or not weight.is_floating_point() or x.dim() < 1:
        return func(*args, **kwargs)
    if x.shape[-1] != weight.shape[1] or (bias is not None and bias.shape != weight.shape[:1]):
        return func(*args, **kwargs)  # torch says what is wrong
    e = tracer.e
    with tracer.located():
        value = tracer.read(x)
        operands = [value] + [e.cast(tracer.read(t), value.dtype) for t in (weight, bias) if t is not None]
        return tracer.new(e.emit("linear", *operands), x.dtype)


@function(torch.matmul, _TENSOR.matmul, _TENSOR.__matmul__, torch.bmm, _TENSOR.bmm)
def matmul(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    """A product of matrices stays one operation; with vectors it goes the ordinary way."""
    if set(kwargs) == {"out"}:
        # torch computes a product with a vector in a tensor of more dimensions and would reshape the caller's.
        result, target = matmul(tracer, func, args, {}), kwargs["out"]
        return result if target is None else tracer.write_out(target, tracer.read(result))
    real = all(isinstance(a, torch.Tensor) and a.dim() >= 2 and not a.is_complex() for a in args)
    if kwargs or len(args) != 2 or not real:
        return func(*args, **kwargs)
    out = tracer.described(func, args)
    e = tracer.e
    with tracer.located():
        a, b = (tracer.read(t) for t in args)
        return tracer.new(e.matmul(a, b), out.dtype)


@function(torch.bilinear)
def bilinear(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    """``y[o] = a W[o] b + bias[o]``, by a product with W and a sum."""
    given = dict(zip(("input1", "input2", "weight", "bias"), args)) | kwargs
    a, b, weight, bias = given["input1"], given["input2"], given["weight"], given.get("bias")
    outputs, inputs, _ = weight.shape
    left = a @ weight.permute(1, 0, 2).reshape(inputs, -1)
    y = (left.reshape(*a.shape[:-1], outputs, -1) * b.unsqueeze(-2)).sum(-1)
    return y if bias is None else y + bias


@function(_TENSOR.__rmatmul__)
def rmatmul(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    return matmul(tracer, torch.matmul, (args[1], args[0]), kwargs)

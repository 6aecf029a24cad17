"""Normalisation. Batch norm in training also updates the running statistics, with plain operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional as F

from abele.importers.torch.emitter import Emitter
from abele.importers.torch.table import function, raw, rule
from abele.importers.torch.tracer import Tracer
from abele.ir import DType, Value


def affine(e: Emitter, x: Value, weight: Value | None, bias: Value | None, shape: Sequence[int]) -> list[Value]:
    """Scale and shift as optional operands; a shift alone comes with a scale of one."""
    if weight is None and bias is None:
        return []
    scale = e.number(1, x.dtype, shape) if weight is None else e.reshape(e.cast(weight, x.dtype), shape)
    return [scale] if bias is None else [scale, e.reshape(e.cast(bias, x.dtype), shape)]


@rule("native_layer_norm")
def layer_norm(
    e: Emitter, x: Value, normalized_shape: Sequence[int], weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, ...]:
    operands = affine(e, x, weight, bias, tuple(normalized_shape))
    y, mean, rstd = e.emit("layer_norm", x, *operands, axes=len(normalized_shape), eps=float(eps))
    return y, e.reshape(mean, e.outs[1].shape), e.reshape(rstd, e.outs[2].shape)


@rule("native_group_norm")
def group_norm(
    e: Emitter, x: Value, weight: Value | None, bias: Value | None, n: int, c: int, size: int, group: int, eps: float
) -> tuple[Value, ...]:
    return e.emit("group_norm", x, *affine(e, x, weight, bias, (c,)), groups=group, eps=float(eps))


@function(torch.rms_norm, F.rms_norm)
def rms_norm(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    given = dict(zip(("input", "normalized_shape", "weight", "eps"), args)) | kwargs
    x, weight, eps = given["input"], given.get("weight"), given.get("eps")
    out = tracer.described(func, args, kwargs)
    e = tracer.e
    with tracer.located():
        value = e.cast(tracer.read(x), DType.F16 if out.dtype is torch.float16 else DType.F32)
        scale = [] if weight is None else [e.cast(tracer.read(weight), value.dtype)]
        tiny = torch.finfo(x.dtype).eps if eps is None else eps
        axes = len(given["normalized_shape"])
        return tracer.new(e.emit("rms_norm", value, *scale, axes=axes, eps=float(tiny)), out.dtype)


@function(torch.instance_norm, F.instance_norm)
def instance_norm(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    """Without running statistics it is a group norm with one channel to a group."""
    names = ("input", "running_mean", "running_var", "weight", "bias", "use_input_stats", "momentum", "eps")
    given = dict(zip(names, args)) | kwargs
    x = given["input"]
    if given.get("running_mean") is not None or not given.get("use_input_stats", True):
        return func(*args, **kwargs)
    e = tracer.e
    with tracer.located():
        value = tracer.read(x)
        weight, bias = (None if given.get(k) is None else tracer.read(given[k]) for k in ("weight", "bias"))
        channels = x.shape[1]
        operands = affine(e, value, weight, bias, (channels,))
        y, *_ = e.emit("group_norm", value, *operands, groups=channels, eps=float(given.get("eps", 1e-5)))
        return tracer.new(y, x.dtype)


@raw(
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_no_training",
    "_batch_norm_with_update",
    "_batch_norm_no_update",
    "cudnn_batch_norm",
    "miopen_batch_norm",
)
def batch_norm(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    given = {a.name: v for a, v in zip(func._schema.arguments, args)} | kwargs
    x, mean, var = given["input"], given.get("running_mean"), given.get("running_var")
    training = given.get("training", "no_training" not in tracer.e.name and "no_update" not in tracer.e.name)
    e, eps = tracer.e, float(given.get("eps", given.get("epsilon", 1e-5)))
    value = tracer.read(x)
    channels = (x.shape[1],)
    weight, bias = (None if given.get(k) is None else tracer.read(given[k]) for k in ("weight", "bias"))
    operands = affine(e, value, weight, bias, channels)
    if training or mean is None or var is None:
        y, batch_mean, batch_var = e.emit("batch_norm", value, *operands, eps=eps)
        if mean is not None and var is not None:
            count = x.numel() // x.shape[1]
            unbiased = _scaled(e, batch_var, count / max(1, count - 1))
            momentum = float(given["momentum"])
            for running, batch in ((mean, batch_mean), (var, unbiased)):
                tracer.write(running, _mixed(e, tracer.read(running), batch, momentum))
    else:
        batch_mean, batch_var = tracer.read(mean), tracer.read(var)
        scale = operands[0] if operands else e.number(1, value.dtype, channels)
        shift = operands[1] if len(operands) > 1 else e.number(0, value.dtype, channels)
        y = e.emit("batch_norm_inference", value, scale, shift, batch_mean, batch_var, eps=eps)
    out = tracer.new(y, x.dtype)
    invstd = e.emit("rsqrt", e.emit("add", e.cast(batch_var, DType.F32), e.number(eps, DType.F32)))
    statistics = (tracer.new(v, torch.float32) for v in (e.cast(batch_mean, DType.F32), invstd))
    if len(func._schema.returns) > 3:  # a buffer for the backward of some devices
        return (out, *statistics, tracer.new(e.number(0, DType.U8, (0,)), torch.uint8))
    return (out, *statistics)


def _scaled(e: Emitter, x: Value, factor: float) -> Value:
    return e.emit("mul", x, e.number(factor, x.dtype))


def _mixed(e: Emitter, running: Value, batch: Value, momentum: float) -> Value:
    """``(1 - momentum) * running + momentum * batch``, in f32."""
    old = _scaled(e, e.cast(running, DType.F32), 1.0 - momentum)
    return e.cast(e.emit("add", old, _scaled(e, batch, momentum)), running.dtype)

"""Pooling over windows and to fixed sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from abele.errors import Unsupported
from abele.importers.torch.calls import metas
from abele.importers.torch.emitter import Emitter
from abele.importers.torch.table import raw, rule
from abele.importers.torch.tracer import Tracer
from abele.ir import Value


def _spread(values: Sequence[int] | int, rank: int) -> tuple[int, ...]:
    values = (values,) if isinstance(values, int) else tuple(values)
    return values * rank if len(values) == 1 else values


def _batched(e: Emitter, x: Value, rank: int, pool: Callable[[Value], Value]) -> Value:
    """Pool a tensor that may lack the batch dimension."""
    if len(x.shape) == rank + 2:
        return pool(x)
    y = pool(e.reshape(x, (1, *x.shape)))
    return e.reshape(y, y.shape[1:])


def _beyond(size: int, out: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """High padding with which a window fits ``out`` times: more than ``padding`` in ceil mode, less never."""
    return max(padding, (out - 1) * stride + dilation * (kernel - 1) + 1 - size - padding)


@raw("max_pool2d_with_indices", "max_pool3d_with_indices", "max_pool1d_with_indices")
def max_pool(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    outs = func(*metas(args), **kwargs)
    values = tracer.bind(outs[0], _max_pool(tracer, outs[0], *args, **kwargs))

    def indices() -> Value:
        raise Unsupported(
            "The indices of max_pool (return_indices=True) are used",
            where=where,
            remedy="Upsample with interpolate or a transposed convolution where max_unpool was used.",
        )

    where = tracer.where()
    tracer.places.add_root(outs[1], indices)
    return values, outs[1]


def _max_pool(
    tracer: Tracer,
    out: torch.Tensor,
    x: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    dilation: Sequence[int] | int = 1,
    ceil_mode: bool = False,
) -> Value:
    e = tracer.e
    rank = int(tracer.e.name[8])
    kernel, pads, steps = _spread(kernel_size, rank), _spread(padding, rank), _spread(dilation, rank)
    strides = _spread(stride, rank) if stride else kernel
    sizes, outs = x.shape[-rank:], out.shape[-rank:]
    both = tuple(
        (p, _beyond(n, o, k, s, p, d))
        for n, o, k, s, p, d in zip(sizes, outs, kernel, strides, pads, steps, strict=True)
    )

    def pool(v: Value) -> Value:
        y = e.emit("max_pool", v, kernel=kernel, strides=strides, padding=both, dilation=steps)
        return e.crop(y, (*y.shape[:2], *outs))

    return _batched(e, tracer.read(x), rank, pool)


@rule("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    e: Emitter,
    x: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    rank = int(e.name[8])
    kernel, pads = _spread(kernel_size, rank), _spread(padding, rank)
    strides = _spread(stride, rank) if stride else kernel
    sizes, outs = x.shape[-rank:], e.out.shape[-rank:]
    high = [_beyond(n, o, k, s, p, 1) for n, o, k, s, p in zip(sizes, outs, kernel, strides, pads, strict=True)]
    extra = [h - p for h, p in zip(high, pads, strict=True)]

    def pool(v: Value) -> Value:
        low, above, include = list(pads), list(high), count_include_pad
        if any(extra) and count_include_pad and divisor_override is None:
            # What ceil mode adds is not counted, the padding is: make the padding part of the input.
            if any(pads):
                around = (0, 0, *pads)
                v = e.emit("pad", v, low=around, high=around, value=0.0)
            low, above, include = [0] * rank, extra, False
        both = tuple(zip(low, above, strict=True))
        divisor = None if divisor_override is None else int(divisor_override)
        y = e.emit(
            "avg_pool", v, kernel=kernel, strides=strides, padding=both, count_include_pad=include, divisor=divisor
        )
        return e.crop(y, (*y.shape[:2], *outs))

    return _batched(e, x, rank, pool)


@rule("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d")
def adaptive_avg_pool(e: Emitter, x: Value, output_size: Sequence[int]) -> Value:
    rank = len(output_size)
    outs = e.out.shape[-rank:]
    return _batched(e, x, rank, lambda v: e.emit("adaptive_avg_pool", v, output=outs))


@raw("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    outs = func(*metas(args), **kwargs)
    e = tracer.e
    rank = int(e.name.rstrip("d")[-1])
    sizes = tuple(outs[0].shape[-rank:])
    value = _batched(e, tracer.read(args[0]), rank, lambda v: e.emit("adaptive_max_pool", v, output=sizes))
    where = tracer.where()

    def indices() -> Value:
        raise Unsupported("The indices of adaptive_max_pool are used", where=where, remedy="Only its values exist.")

    tracer.places.add_root(outs[1], indices)
    return tracer.bind(outs[0], value), outs[1]

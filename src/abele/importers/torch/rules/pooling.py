"""Pooling over windows and to fixed sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from abele.importers.torch.calls import metas
from abele.importers.torch.emitter import Emitter
from abele.importers.torch.table import raw, rule
from abele.importers.torch.tracer import Tracer
from abele.ir import DType, Value


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
    """The indices are worked out only where something reads them."""
    outs, read = func(*metas(args), **kwargs), tracer.read(args[0])
    windows = _windows(int(tracer.e.name[8]), *args[1:], **kwargs)
    values = tracer.bind(outs[0], _max_pool(tracer.e, read, outs[0].shape, windows))
    shown = zip(outs[0].shape[-len(windows) :], windows, strict=True)
    places = [np.arange(o)[:, None] * s - p + np.arange(k)[None, :] * d for o, (k, s, p, d) in shown]
    return values, _indexed(tracer, outs[1], read, places)


def _windows(
    rank: int,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    dilation: Sequence[int] | int = 1,
    ceil_mode: bool = False,
) -> list[tuple[int, int, int, int]]:
    """Size, stride, padding and dilation of the windows in each spatial dimension; torch has seen to ``ceil_mode``."""
    kernel, pads, steps = _spread(kernel_size, rank), _spread(padding, rank), _spread(dilation, rank)
    strides = _spread(stride, rank) if stride else kernel
    return list(zip(kernel, strides, pads, steps, strict=True))


def _indexed(tracer: Tracer, result: torch.Tensor, x: Value, windows: list[np.ndarray]) -> torch.Tensor:
    """``result`` stands for the places, in the spatial dimensions taken as one, of the largest element of each window.

    Made when it is first read: all windows are gathered, which is as many elements as the pool compares.
    """
    rank, where = len(windows), tracer.e.b.origin
    sizes = x.shape[-rank:]

    def make() -> Value:
        e, size = tracer.e, math.prod(sizes)
        place = np.zeros((1, 1), np.int64)
        for axis, at in enumerate(windows):
            inside = (at >= 0) & (at < sizes[axis])
            at = np.where(inside, at, size * size)  # so large that all that is made of it stays outside
            place = place[:, None, :, None] * sizes[axis] + at[None, :, None, :]
            place = place.reshape(place.shape[0] * place.shape[1], -1)
        place = np.minimum(place, size).astype(np.int32)
        lead = x.shape[: len(x.shape) - rank]
        lowest = -math.inf if x.dtype.is_float else int(np.iinfo(x.dtype.numpy).min)
        with e.b.at(where):
            flat = e.concat([e.reshape(x, (*lead, size)), e.number(lowest, x.dtype, (*lead, 1))], len(lead))
            seen = e.emit("gather", flat, e.constant(place), axis=len(lead))
            which = e.emit("arg_max", seen, axis=len(seen.shape) - 1, keep=False)
            first = e.emit("iota", shape=place.shape[:1], axis=0, dtype="i32", start=0, step=place.shape[1])
            found = e.emit("gather", e.reshape(e.constant(place), (place.size,)), e.emit("add", which, first), axis=0)
            return e.reshape(found, tuple(result.shape))

    tracer.places.add_root(result, make)
    return result


def _max_pool(e: Emitter, x: Value, shape: Sequence[int], windows: list[tuple[int, int, int, int]]) -> Value:
    rank = len(windows)
    sizes, outs = x.shape[-rank:], tuple(shape[-rank:])
    kernel, strides, _, steps = zip(*windows, strict=True)
    both = tuple((p, _beyond(n, o, k, s, p, d)) for n, o, (k, s, p, d) in zip(sizes, outs, windows, strict=True))

    def pool(v: Value) -> Value:
        y = e.emit("max_pool", v, kernel=kernel, strides=strides, padding=both, dilation=steps)
        return e.crop(y, (*y.shape[:2], *outs))

    return _batched(e, x, rank, pool)


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
    kernel, strides, pads, _ = zip(*_windows(rank, kernel_size, stride, padding), strict=True)
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
    rank = int(e.name[-2])
    sizes = tuple(outs[0].shape[-rank:])
    read = tracer.read(args[0])
    value = tracer.bind(outs[0], _batched(e, read, rank, lambda v: e.emit("adaptive_max_pool", v, output=sizes)))
    windows = []
    for size, out in zip(args[0].shape[-rank:], sizes, strict=True):
        starts, ends = np.arange(out) * size // out, -(-(np.arange(1, out + 1) * size) // out)
        at = starts[:, None] + np.arange((ends - starts).max())[None, :]
        windows.append(np.where(at < ends[:, None], at, -1))
    return value, _indexed(tracer, outs[1], read, windows)


@rule("max_unpool2d", "max_unpool3d")
def max_unpool(e: Emitter, x: Value, indices: Value, output_size: Sequence[int], *_: Any) -> Value:
    """Zeros, with the elements where the pool took them from."""
    rank = int(e.name[-2])
    lead, shape = x.shape[:-rank], e.out.shape
    count, size = math.prod(lead), math.prod(shape[-rank:])
    flat, places = (e.reshape(v, (count, math.prod(x.shape[-rank:]))) for v in (x, e.cast(indices, DType.I32)))
    zeros = e.number(0, x.dtype, (count, size))
    return e.reshape(e.emit("scatter_elements", zeros, places, flat, axis=1, reduction="none"), shape)

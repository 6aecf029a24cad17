"""Shape operations that make new tensors: joining, repeating, moving, padding, triangles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from abele.importers.torch.emitter import Emitter, Operand, axis_of
from abele.importers.torch.storage import selection_view
from abele.importers.torch.table import rule
from abele.ir import DType, Value


@rule("cat", "concat", "concatenate")
def cat(e: Emitter, tensors: Sequence[Value], dim: int = 0) -> Value:
    rank = len(e.out.shape)
    parts = [e.operand(t) for t in tensors if len(t.shape) == rank]  # an empty vector joins anything
    return e.concat(parts, axis_of(dim, rank))


@rule("stack")
def stack(e: Emitter, tensors: Sequence[Value], dim: int = 0) -> Value:
    axis = axis_of(dim, len(e.out.shape))
    parts = []
    for t in tensors:
        part = e.operand(t)
        parts.append(e.reshape(part, (*part.shape[:axis], 1, *part.shape[axis:])))
    return e.concat(parts, axis)


@rule("repeat")
def repeat(e: Emitter, x: Value, repeats: Sequence[int]) -> Value:
    added = len(repeats) - len(x.shape)
    shape = (1,) * added + x.shape
    apart = [m for n in shape for m in (1, n)]
    wide = [m for r, n in zip(repeats, shape, strict=True) for m in (r, n)]
    if all(n == 1 or r == 1 for r, n in zip(repeats, shape, strict=True)):
        return e.expand(e.reshape(x, shape), e.out.shape)
    return e.reshape(e.expand(e.reshape(x, apart), wide), e.out.shape)


@rule("repeat_interleave.self_int")
def repeat_interleave(e: Emitter, x: Value, repeats: int, dim: int | None = None, output_size: Any = None) -> Value:
    axis = 0 if dim is None else axis_of(dim, len(x.shape))
    flat = e.reshape(x, (x.type.size,)) if dim is None else x
    shape = (*flat.shape[: axis + 1], repeats, *flat.shape[axis + 1 :])
    apart = e.reshape(flat, (*flat.shape[: axis + 1], 1, *flat.shape[axis + 1 :]))
    return e.reshape(e.expand(apart, shape), e.out.shape)


@rule("flip", "fliplr", "flipud")
def flip(e: Emitter, x: Value, dims: Sequence[int]) -> Value:
    axes = tuple(sorted(axis_of(d, len(x.shape)) for d in dims))
    return e.emit("flip", x, axes=axes) if axes and x.shape else x


@rule("rot90")
def rot90(e: Emitter, x: Value, k: int = 1, dims: Sequence[int] = (0, 1)) -> Value:
    a, b = (axis_of(d, len(x.shape)) for d in dims)
    order = list(range(len(x.shape)))
    order[a], order[b] = order[b], order[a]
    turns = k % 4
    if turns in (1, 2):
        x = e.emit("flip", x, axes=(b,))
    if turns == 2:
        return e.emit("flip", x, axes=(a,))
    if turns == 3:
        return e.emit("flip", e.transpose(x, order), axes=(b,))
    return e.transpose(x, order) if turns else x


@rule("roll")
def roll(e: Emitter, x: Value, shifts: Sequence[int] | int, dims: Sequence[int] | int = ()) -> Value:
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = [dims] if isinstance(dims, int) else list(dims)
    if not x.type.size:
        return x
    if not dims:
        flat = e.emit("roll", e.reshape(x, (x.type.size,)), shifts=(shifts[0] % x.type.size,), axes=(0,))
        return e.reshape(flat, x.shape)
    axes = tuple(axis_of(d, len(x.shape)) for d in dims)
    return e.emit("roll", x, shifts=tuple(s % x.shape[a] for s, a in zip(shifts, axes, strict=True)), axes=axes)


@rule("tril", "triu")
def triangle(e: Emitter, x: Value, diagonal: int = 0) -> Value:
    return e.emit(e.name, x, diagonal=diagonal)


@rule("constant_pad_nd")
def constant_pad(e: Emitter, x: Value, pad: Sequence[int], value: float = 0) -> Value:
    """``pad`` counts pairs from the last dimension; negative sizes cut."""
    rank = len(x.shape)
    low, high = [0] * rank, [0] * rank
    for i in range(len(pad) // 2):
        low[rank - 1 - i], high[rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    for axis in range(rank):
        cut = (max(0, -low[axis]), x.shape[axis] - max(0, -high[axis]))
        x = e.slice(x, axis, *cut)
    low, high = tuple(max(0, n) for n in low), tuple(max(0, n) for n in high)
    if not any(low) and not any(high):
        return x
    if x.dtype is DType.BOOL or not x.dtype.is_float:
        value = bool(value) if x.dtype is DType.BOOL else int(value)
    return e.emit("pad", x, low=low, high=high, value=value)


@rule(
    "reflection_pad1d",
    "reflection_pad2d",
    "reflection_pad3d",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
)
def border_pad(e: Emitter, x: Value, padding: Sequence[int]) -> Value:
    """Each dimension is read at positions that are known: mirrored, or held at the border."""
    for i in range(len(padding) // 2):
        axis = len(x.shape) - 1 - i
        size = x.shape[axis]
        at = np.arange(-padding[2 * i], size + padding[2 * i + 1])
        if e.name.startswith("reflection"):
            at = np.abs(at)
            at = np.where(at >= size, 2 * (size - 1) - at, at)
        x = e.emit("gather", x, e.constant(np.clip(at, 0, size - 1).astype(np.int32)), axis=axis)
    return x


@rule("pixel_shuffle")
def pixel_shuffle(e: Emitter, x: Value, upscale_factor: int) -> Value:
    *lead, c, h, w = x.shape
    r, n = upscale_factor, len(lead)
    x = e.reshape(x, (*lead, c // r**2, r, r, h, w))
    return e.reshape(e.transpose(x, (*range(n), n, n + 3, n + 1, n + 4, n + 2)), e.out.shape)


@rule("pixel_unshuffle")
def pixel_unshuffle(e: Emitter, x: Value, downscale_factor: int) -> Value:
    *lead, c, h, w = x.shape
    r, n = downscale_factor, len(lead)
    x = e.reshape(x, (*lead, c, h // r, r, w // r, r))
    return e.reshape(e.transpose(x, (*range(n), n, n + 2, n + 4, n + 1, n + 3)), e.out.shape)


@rule("channel_shuffle")
def channel_shuffle(e: Emitter, x: Value, groups: int) -> Value:
    n, c, *rest = x.shape
    apart = e.reshape(x, (n, groups, c // groups, *rest))
    return e.reshape(e.transpose(apart, (0, 2, 1, *range(3, 3 + len(rest)))), x.shape)


@rule("slice_scatter")
def slice_scatter(
    e: Emitter, x: Value, src: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    axis = axis_of(dim, len(x.shape))
    at = range(*slice(start, end, step).indices(x.shape[axis]))
    if step == 1:
        return e.replace(x, axis, at.start, at.stop, e.operand(src))
    source = np.arange(x.shape[axis], dtype=np.int32)
    source[list(at)] = x.shape[axis] + np.arange(len(at), dtype=np.int32)
    return e.emit("gather", e.concat([x, e.operand(src)], axis), e.constant(source), axis=axis)


@rule("select_scatter")
def select_scatter(e: Emitter, x: Value, src: Value, dim: int, index: int) -> Value:
    axis = axis_of(dim, len(x.shape))
    at = index % x.shape[axis]
    return e.replace(x, axis, at, at + 1, e.reshape(e.operand(src), (*x.shape[:axis], 1, *x.shape[axis + 1 :])))


@rule("diagonal_scatter", "as_strided_scatter")
def diagonal_scatter(e: Emitter, x: Value, src: Value, *args: Any, **kwargs: Any) -> Value:
    numbers = torch.arange(x.type.size).reshape(x.shape)
    picked = numbers.diagonal(*args, **kwargs) if e.name == "diagonal_scatter" else numbers.as_strided(*args, **kwargs)
    wanted = picked.reshape(-1).numpy().astype(np.int32)
    _, write = selection_view(wanted, x.shape, tuple(picked.shape))
    return write(e, x, e.operand(src))


@rule("diag_embed")
def diag_embed(e: Emitter, x: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    """The last dimension on a diagonal of two new ones."""
    rank = len(x.shape) + 1
    n = x.shape[-1] + abs(offset)
    low = max(0, -offset)
    padded = e.emit(
        "pad", x, low=(0,) * (rank - 2) + (low,), high=(0,) * (rank - 2) + (n - x.shape[-1] - low,), value=0
    )
    mask = e.constant(np.eye(n, k=offset, dtype=np.bool_))
    spread: Operand = e.reshape(padded, (*padded.shape, 1))
    square = e.emit("select", mask, spread, e.number(0, x.dtype))
    a, b = axis_of(dim1, rank), axis_of(dim2, rank)
    order = [i for i in range(rank) if i not in (a, b)]
    places = {axis: i for i, axis in enumerate(order)} | {a: rank - 2, b: rank - 1}
    return e.transpose(square, [places[i] for i in range(rank)])

"""Resampling of images. Each spatial dimension is resampled alone: by a gather, or by a matrix of known weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from abele.importers.torch.emitter import Emitter
from abele.importers.torch.table import rule
from abele.ir import Value


@rule(
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
)
def nearest(e: Emitter, x: Value, output_size: Sequence[int], *scales: float | None, **named: float | None) -> Value:
    exact = "exact" in e.name
    factors = [*scales, *named.values()] or [None] * len(output_size)
    rank = len(x.shape)
    for i, (size, factor) in enumerate(zip(output_size, factors, strict=True)):
        axis = rank - len(output_size) + i
        length = x.shape[axis]
        if length == size and factor in (None, 1.0):
            continue
        step = np.float32(1 / factor if factor else length / size)
        at = np.floor((np.arange(size) + (0.5 if exact else 0)).astype(np.float32) * step)
        at = np.minimum(at.astype(np.int32), length - 1)
        if size % length == 0 and np.array_equal(at, np.arange(size) // (size // length)):
            x = _repeated(e, x, axis, size // length)
        else:
            x = e.emit("gather", x, e.constant(at), axis=axis)
    return x


def _repeated(e: Emitter, x: Value, axis: int, times: int) -> Value:
    """Every element ``times`` times."""
    before, size, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    wide = e.expand(e.reshape(x, (*before, size, 1, *after)), (*before, size, times, *after))
    return e.reshape(wide, (*before, size * times, *after))


_WEIGHTED = {
    "upsample_linear1d": 1,
    "upsample_bilinear2d": 2,
    "upsample_trilinear3d": 3,
    "upsample_bicubic2d": 2,
    "_upsample_bilinear2d_aa": 2,
    "_upsample_bicubic2d_aa": 2,
}


@rule(*_WEIGHTED)
def weighted(
    e: Emitter, x: Value, output_size: Sequence[int], align_corners: bool, *scales: Any, **named: Any
) -> Value:
    rank = len(x.shape)
    factors = [*scales, *named.values()] or [None] * len(output_size)
    for i, (size, factor) in enumerate(zip(output_size, factors, strict=True)):
        axis = rank - len(output_size) + i
        if x.shape[axis] == size and (align_corners or factor in (None, 1.0)):
            continue
        matrix = _weights(e.name, x.shape[axis], size, align_corners, factor)
        moved = [*[a for a in range(rank) if a != axis], axis]
        x = e.transpose(x, moved)
        rows = e.reshape(x, (x.type.size // x.shape[-1], x.shape[-1]))
        product = e.matmul(rows, e.cast(e.constant(matrix), x.dtype))
        x = e.reshape(product, (*x.shape[:-1], size))
        x = e.transpose(x, sorted(range(rank), key=moved.__getitem__))
    return x


def _weights(name: str, before: int, after: int, align_corners: bool, factor: float | None) -> np.ndarray:
    """How much of each old position each new one takes, ``f32[before, after]``: what torch makes of unit vectors."""
    unit = torch.eye(before, dtype=torch.float32)
    if _WEIGHTED[name] != 2:
        out = torch.ops.aten.upsample_linear1d(unit[:, None, :], [after], align_corners, factor)
        return out.reshape(before, after).numpy()
    call = getattr(torch.ops.aten, name)
    out = call(unit[:, None, None, :], [1, after], align_corners, None, factor)
    return out.reshape(before, after).numpy()

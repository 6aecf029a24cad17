"""Discrete Fourier transforms of real tensors in pairs, as matrix products.

A length of up to ``DIRECT`` is one product with its cosines and sines, which is what the matrix unit is good at. A
longer one is split in two factors (Cooley and Tukey, 1965): transforms along the one, a turn of each element,
transforms along the other. A long prime stays one product.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
import torch

DIRECT = 64
"""The longest transform that is one product."""

Pair = tuple[torch.Tensor, torch.Tensor]


@functools.lru_cache(maxsize=64)
def _matrix(n: int, sign: int, outputs: int, real: bool) -> np.ndarray:
    """Cosines and sines by which a row of ``[real, imag]`` parts, or of real ones, gives ``[real, imag]`` results."""
    angle = sign * 2 * np.pi / n * (np.outer(np.arange(n), np.arange(outputs)) % n)
    top = np.concatenate([np.cos(angle), np.sin(angle)], 1)
    if real:
        return top
    return np.concatenate([top, np.concatenate([-np.sin(angle), np.cos(angle)], 1)], 0)


def _product(rows: torch.Tensor, matrix: np.ndarray) -> torch.Tensor:
    return rows @ torch.tensor(matrix, dtype=rows.dtype)


def _factor(n: int) -> int:
    """The divisor of ``n`` next to its square root, from below."""
    return next(d for d in range(math.isqrt(n), 0, -1) if n % d == 0)


def transform(real: torch.Tensor, imag: torch.Tensor | None, sign: int, outputs: int | None = None) -> Pair:
    """The transform along the last dimension with ``exp(sign 2 pi i j k / n)``, or the first ``outputs`` of it."""
    n = real.shape[-1]
    count = n if outputs is None else outputs
    first = _factor(n) if n > DIRECT else 1
    if first == 1:
        rows = real if imag is None else torch.cat([real, imag], -1)
        both = _product(rows, _matrix(n, sign, count, imag is None))
        return both[..., :count], both[..., count:]
    second = n // first
    parts = [None if p is None else p.reshape(*p.shape[:-1], first, second).mT for p in (real, imag)]
    assert parts[0] is not None
    a, b = (p.mT for p in transform(parts[0], parts[1], sign))  # [first of k, second of j]
    angle = sign * 2 * np.pi / n * np.outer(np.arange(first), np.arange(second))
    c, s = (torch.tensor(t, dtype=real.dtype) for t in (np.cos(angle), np.sin(angle)))
    a, b = transform(a * c - b * s, a * s + b * c, sign)
    a, b = (p.mT.reshape(*p.shape[:-2], n) for p in (a, b))
    return (a, b) if outputs is None else (a[..., :count], b[..., :count])


def _along(real: torch.Tensor, imag: torch.Tensor | None, dim: int, sign: int, outputs: int | None = None) -> Pair:
    moved = [None if p is None else p.movedim(dim, -1) for p in (real, imag)]
    assert moved[0] is not None
    a, b = transform(moved[0], moved[1], sign, outputs)
    return a.movedim(-1, dim), b.movedim(-1, dim)


def _scaled(pair: Pair, normalization: int, count: int) -> Pair:
    """torch's numbers: 0 leaves the sums as they are, 1 divides by the root of their length, 2 by their length."""
    factor = {0: 1.0, 1: 1 / math.sqrt(count), 2: 1 / count}[normalization]
    return pair if factor == 1 else (pair[0] * factor, pair[1] * factor)


def from_real(x: torch.Tensor, dims: Sequence[int], normalization: int, onesided: bool) -> Pair:
    """``_fft_r2c``: of real numbers, along the last of ``dims`` first, of which one side may be enough."""
    size = x.shape[dims[-1]]
    pair = _along(x, None, dims[-1], -1, size // 2 + 1 if onesided else None)
    for dim in dims[:-1]:
        pair = _along(*pair, dim, -1)
    return _scaled(pair, normalization, math.prod(x.shape[d] for d in dims))


def between(real: torch.Tensor, imag: torch.Tensor, dims: Sequence[int], normalization: int, forward: bool) -> Pair:
    """``_fft_c2c``."""
    pair = (real, imag)
    for dim in dims:
        pair = _along(*pair, dim, -1 if forward else 1)
    return _scaled(pair, normalization, math.prod(real.shape[d] for d in dims))


def to_real(real: torch.Tensor, imag: torch.Tensor, dims: Sequence[int], normalization: int, size: int) -> torch.Tensor:
    """``_fft_c2r``: the inverse of one side of a spectrum; the other mirrors it."""
    pair: Pair = (real, imag)
    for dim in dims[:-1]:
        pair = _along(*pair, dim, 1)
    a, b = (p.movedim(dims[-1], -1) for p in pair)
    bins = size // 2 + 1
    a, b = a[..., :bins], b[..., :bins]
    if size <= DIRECT:
        matrix = _matrix(size, 1, bins, True).T  # rows: cosines by frequency, then sines
        twice = np.array([1.0 if k == 0 or 2 * k == size else 2.0 for k in range(bins)])
        matrix = matrix * np.concatenate([twice, -twice])[:, None]
        value = _product(torch.cat([a, b], -1), matrix)
    else:
        others = size - bins
        a = torch.cat([a, a[..., 1 : others + 1].flip(-1)], -1)
        b = torch.cat([b, -b[..., 1 : others + 1].flip(-1)], -1)
        value = transform(a, b, 1)[0]
    count = size * math.prod(real.shape[d] for d in dims[:-1])
    return _scaled((value, value), normalization, count)[0].movedim(-1, dims[-1])

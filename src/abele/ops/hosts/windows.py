"""Sliding windows over row-major arrays in host memory: padded copies, and what one tap of all windows meets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from abele.codegen import Expr, Kernel, Operand, Output, map_kernel
from abele.codegen.indexing import copy_kernel
from abele.ops.hosts.kernels import Launch, Ref, row_major

Sizes = tuple[int, ...]
WORD = 4
"""Bytes of a float element in host memory."""


def at(ref: Ref, elements: int) -> Ref:
    """``elements`` of 4 bytes further on."""
    return Ref(ref.kind, ref.index, ref.offset + WORD * elements)


def zeros(shape: Sequence[int], target: Ref, value: float = 0.0) -> Launch:
    """Fill float memory of this shape."""
    kernel = map_kernel((math.prod(shape),), [], [Expr("const", (), "f32", value=value)], [Output(0, "f32", (1,))])
    return Launch(kernel, (target,))


def copied(shape: Sequence[int], source: Sizes, target: Sizes) -> Kernel:
    """A copy of floats between strides."""
    return copy_kernel(shape, "f32", source, target)


@dataclass(frozen=True)
class Windows:
    """Windows of ``kernel`` taps over ``sizes`` positions in each dimension.

    Attributes:
        lead: shape in front of the spatial dimensions.
        sizes, outs: positions of the input, and windows.
        low: padding in front of the input.
    """

    lead: Sizes
    sizes: Sizes
    outs: Sizes
    kernel: Sizes
    strides: Sizes
    dilation: Sizes
    low: Sizes

    @classmethod
    def of(cls, shape: Sizes, outs: Sizes, kernel: Sizes, a: Any) -> Windows:
        """For an input of ``shape`` ``[N, C, *S]`` and attributes ``strides``, ``padding`` and perhaps ``dilation``."""
        dilation = a.get("dilation") or (1,) * len(kernel)
        low = tuple(p[0] for p in a["padding"])
        return cls(shape[:2], shape[2:], outs, tuple(kernel), a["strides"], tuple(dilation), low)

    @property
    def padded(self) -> Sizes:
        """Positions that the windows reach, from the first of the padding on."""
        spans = ((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))
        return tuple((o - 1) * s + e for o, s, e in zip(self.outs, self.strides, spans, strict=True))

    @property
    def is_padded(self) -> bool:
        """Whether the windows reach outside of the input."""
        return any(self.low) or any(p > n for p, n in zip(self.padded, self.sizes, strict=True))

    @property
    def whole(self) -> Sizes:
        """The shape on which the windows lie: the padded one, or the input's where nothing is padded."""
        return (*self.lead, *(self.padded if self.is_padded else self.sizes))

    def inside(self, shape: Sizes) -> tuple[Sizes, int, int]:
        """The part of the input that the windows reach: its shape, and its first element there and in ``whole``."""
        keep = tuple(min(n, p - low) for n, p, low in zip(self.sizes, self.padded, self.low, strict=True))
        strides = row_major(self.whole)[len(self.lead) :]
        return (*self.lead, *keep), 0, sum(low * s for low, s in zip(self.low, strides, strict=True))

    def pad(self, source: Ref, target: Ref, value: float = 0.0) -> list[Launch]:
        """Lay a row-major input out with its padding."""
        shape, _, first = self.inside(self.whole)
        copy = copied(shape, row_major((*self.lead, *self.sizes)), row_major(self.whole))
        return [zeros(self.whole, target, value), Launch(copy, (source, at(target, first)))]

    def crop(self, source: Ref, target: Ref) -> list[Launch]:
        """The input's part of a padded array, zero where no window reaches."""
        shape, _, first = self.inside(self.whole)
        copy = copied(shape, row_major(self.whole), row_major((*self.lead, *self.sizes)))
        launches = [Launch(copy, (at(source, first), target))]
        reached = shape[len(self.lead) :] == self.sizes
        return launches if reached else [zeros((*self.lead, *self.sizes), target), *launches]

    def taps(self) -> Iterator[tuple[int, int]]:
        """Number of each tap, in row-major order, and the element of ``whole`` that it meets in the first window."""
        strides = row_major(self.whole)[len(self.lead) :]
        for number, tap in enumerate(itertools.product(*map(range, self.kernel))):
            yield number, sum(t * d * s for t, d, s in zip(tap, self.dilation, strides, strict=True))

    @property
    def view(self) -> Sizes:
        """Strides over ``(*lead, *outs)`` of what one tap of all windows meets in ``whole``."""
        own = row_major(self.whole)
        step = tuple(s * t for s, t in zip(own[len(self.lead) :], self.strides, strict=True))
        return (*own[: len(self.lead)], *step)

    @property
    def over_taps(self) -> Sizes:
        """Strides over the taps of one window in ``whole``."""
        own = row_major(self.whole)[len(self.lead) :]
        return tuple(s * d for s, d in zip(own, self.dilation, strict=True))


def spread(w: Windows, tap: int, source: Operand, of: Ref, target: Ref) -> Launch:
    """Add ``of`` to the elements that one tap of all windows meets, which starts at element ``tap``."""
    shape = (*w.lead, *w.outs)
    exprs = [Expr("add", (0, 1), "f32")]
    kernel = map_kernel(shape, [source, Operand("f32", w.view)], exprs, [Output(2, "f32", w.view)])
    return Launch(kernel, (of, at(target, tap), at(target, tap)))

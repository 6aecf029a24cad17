"""Operands of windowed operations: how a split of the axes cuts a tensor, halo included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.ops.plans.search import Parts
from abele.schedule.layout import Grid, Layout, Span


@dataclass(frozen=True, slots=True)
class Halo:
    """A tensor of the map: sizes of its view, and for every dimension the axis (or none) and its span."""

    sizes: tuple[int, ...]
    axes: tuple[str | None, ...]
    spans: tuple[Span, ...]

    def layout(self, grid: Grid) -> Layout:
        """Through ``grid``; an axis in one part touches the whole dimension, windows and all.

        A span of stride 0 is one index that every block reads, and no other.
        """
        spans = []
        for name, span in zip(self.axes, self.spans, strict=True):
            if name is None or (span.stride and not span.exact and grid.axes[grid.axis(name)].parts == 1):
                spans.append(Span())
            else:
                spans.append(Span(grid.axis(name), span.stride, span.offset, span.extent, span.divide))
        return Layout(grid, self.sizes, tuple(spans))

    def elements(self, parts: Parts, lengths: Mapping[str, Any]) -> Any:
        """Elements that a block of these lengths touches, at most."""
        count: Any = 1
        for size, name, span in zip(self.sizes, self.axes, self.spans, strict=True):
            if name is None:
                count = count * size
                continue
            if not span.stride:
                continue
            touched = (span.stride * (lengths[name] - 1) + span.extent - 1) // span.divide + 1
            whole = (parts[name] == 1) & (not span.exact)
            count = count * np.where(whole, size, np.minimum(size, touched))
        return count

    def lies_once(self, parts: Parts, every: Sequence[str]) -> Any:
        """True where each element belongs to exactly one block."""
        if not all(span.stride for span in self.spans):
            return np.zeros_like(parts[every[0]], dtype=bool)
        once: Any = True
        for name in every:
            at = self.axes.index(name) if name in self.axes else None
            if at is None or not self.spans[at].exact:
                once = once & (parts[name] == 1)
        return once

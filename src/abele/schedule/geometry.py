"""Closed-form questions about layouts: their windows, whether they partition them, whether one lies in another.

A *window* is a box of a view: for every dimension ``[start, stop)``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np

from abele.schedule.layout import Layout

Window = tuple[tuple[int, int], ...]


def window(layout: Layout) -> Window:
    """A box of the view that holds every region of the layout; the smallest one when its spans are exact."""
    bounds = []
    for span, size in zip(layout.spans, layout.shape, strict=True):
        if span.axis is None:
            bounds.append((0, size))
            continue
        last = layout.grid.axes[span.axis].size - 1
        start = min(max(0, -((-span.offset) // span.divide)), size)
        stop = min(max(0, (span.stride * last + span.offset + span.extent - 1) // span.divide + 1), size)
        bounds.append((start, max(start, stop) if last >= 0 else start))
    return tuple(bounds)


def volume(box: Window) -> int:
    """Elements in a window."""
    return math.prod(stop - start for start, stop in box)


def overlap(a: Window, b: Window) -> bool:
    """True when two windows of the same view share an element."""
    return all(max(x[0], y[0]) < min(x[1], y[1]) for x, y in zip(a, b, strict=True))


def partitions_window(layout: Layout) -> bool:
    """True when every element of the layout's window belongs to exactly one block."""
    used = [span.axis for span in layout.spans if span.axis is not None]
    split = {i for i, axis in enumerate(layout.grid.axes) if axis.parts > 1}
    return len(used) == len(set(used)) and split <= set(used) and all(span.exact for span in layout.spans)


def tiles_view(windows: Sequence[Window], shape: Sequence[int]) -> str:
    """Why these windows do not cover the view exactly once; an empty string when they do."""
    for a, b in itertools.combinations(windows, 2):
        if overlap(a, b):
            return f"{_text(a)} and {_text(b)} overlap"
    covered = sum(map(volume, windows))
    if covered != math.prod(shape):
        return f"{covered} of {math.prod(shape)} elements are written"
    return ""


def columns(layout: Layout) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The tile of every block, and ``[dimension, block]`` start and stop of its region."""
    blocks = np.arange(layout.grid.blocks)
    parts = layout.grid.parts(blocks)
    shape = (len(layout.shape), len(blocks))
    starts, stops = np.empty(shape, np.int64), np.empty(shape, np.int64)
    for i, (span, size) in enumerate(zip(layout.spans, layout.shape, strict=True)):
        starts[i], stops[i] = span.bounds(layout.grid, parts, size)
    return np.asarray(layout.grid.tile(blocks)), starts, stops


def lies_in(part: Layout, whole: Layout) -> bool:
    """True when the region of every block of ``part`` is among what ``whole`` puts on the same tile.

    Two layouts through different views are compared only for equality, and so count as apart.
    """
    if part == whole:
        return True
    if part.shape != whole.shape or part.grid.tiles != whole.grid.tiles:
        return False
    tile, start, stop = columns(part)
    held_by, have_start, have_stop = columns(whole)
    block_on = np.full(whole.grid.tiles, -1)
    block_on[held_by] = np.arange(len(held_by))
    block = block_on[tile]
    empty = (stop <= start).any(axis=0)
    inside = ((have_start[:, block] <= start) & (stop <= have_stop[:, block])).all(axis=0)
    return bool((empty | ((block >= 0) & inside)).all())


def lies_in_any(part: Layout, wholes: Iterable[Layout]) -> bool:
    """True when ``part`` lies in one of these layouts."""
    return any(lies_in(part, whole) for whole in wholes)


def _text(box: Window) -> str:
    return f"[{', '.join(f'{a}:{b}' for a, b in box)}]"

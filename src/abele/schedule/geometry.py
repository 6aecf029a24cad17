"""Closed-form questions about layouts: their windows, whether they partition them, whether one lies in another.

A *window* is a box of a view: for every dimension ``[start, stop)``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from abele.schedule.layout import Axis, Grid, Layout, Span

Window = tuple[tuple[int, int], ...]

REMEMBERED = 2
"""Answers with a number for each block that are asked for again at once: so many are remembered."""


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


class Windows:
    """Windows of one view, in the order in which they were added, asked which of them share an element with another.

    A plan that goes through time has as many as steps, and asks for each step.
    """

    def __init__(self, dimensions: int) -> None:
        self._ends = np.zeros((8, 2, dimensions), np.int64)
        self._count = 0

    def add(self, box: Window) -> None:
        if self._count == len(self._ends):
            self._ends = np.concatenate([self._ends, np.zeros_like(self._ends)])
        self._ends[self._count] = np.reshape(np.array(box, np.int64), (-1, 2)).T
        self._count += 1

    def overlapping(self, box: Window) -> np.ndarray:
        """Numbers of the windows that share an element with this one, ascending."""
        start, stop = np.reshape(np.array(box, np.int64), (-1, 2)).T
        starts, stops = self._ends[: self._count, 0], self._ends[: self._count, 1]
        return np.flatnonzero((np.maximum(starts, start) < np.minimum(stops, stop)).all(axis=1))


def partitions_window(layout: Layout) -> bool:
    """True when every element of the layout's window belongs to exactly one block."""
    used = [span.axis for span in layout.spans if span.axis is not None]
    split = {i for i, axis in enumerate(layout.grid.axes) if axis.parts > 1}
    return len(used) == len(set(used)) and split <= set(used) and all(span.exact for span in layout.spans)


def tiles_view(windows: Sequence[Window], shape: Sequence[int]) -> str:
    """Why these windows do not cover the view exactly once; an empty string when they do."""
    before = Windows(len(shape))
    for box in windows:
        if (met := before.overlapping(box)).size:
            return f"{_text(windows[met[0]])} and {_text(box)} overlap"
        before.add(box)
    covered = sum(map(volume, windows))
    if covered != math.prod(shape):
        return f"{covered} of {math.prod(shape)} elements are written"
    return ""


@lru_cache(maxsize=4 * REMEMBERED)
def bounds(layout: Layout) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Start and stop of the regions in every dimension of the view; not to be written to.

    Each has an axis for every axis of the grid, as long as its parts where the dimension follows it, else 1:
    ``everywhere`` lays it over all blocks.
    """
    axes = layout.grid.axes
    parts = [np.arange(axis.parts) for axis in axes]
    found = []
    for span, size in zip(layout.spans, layout.shape, strict=True):
        along = [-1 if j == span.axis else 1 for j in range(len(axes))]
        ends = (0, size) if span.axis is None else span.bounds(layout.grid, parts, size)
        start, stop = (np.reshape(np.asarray(end, np.int64), along) for end in ends)
        found.append((start, stop))
    return tuple(found)


def everywhere(grid: Grid, values: np.ndarray) -> np.ndarray:
    """Values with an axis for every axis of the grid, of its parts or 1, one for each block: ``[blocks]``."""
    return np.broadcast_to(values, [axis.parts for axis in grid.axes]).reshape(grid.blocks)


@lru_cache(maxsize=8192)
def lies_in(part: Layout, whole: Layout) -> bool:
    """True when the region of every block of ``part`` is among what ``whole`` puts on the same tile.

    Two views of a tensor are compared in the dimensions that they have in common; dimensions that only together
    have the same size are taken as one, where a region must be one run of elements. What this cannot see, such as
    a column of one view in a row of the other, counts as apart.
    """
    if part == whole:
        return True
    if part.size != whole.size or part.grid.tiles != whole.grid.tiles:
        return False
    empty, inside = np.zeros(part.grid.blocks, bool), np.zeros(part.grid.blocks, bool)
    pieces = _beside(part.grid, whole.grid)
    for mine, _ in pieces:
        inside[mine] = True
    for ours, theirs in common_dimensions(part.shape, whole.shape):
        start, stop, _ = _run(part, ours)
        first, last, one_run = _run(whole, theirs)
        empty |= stop <= start
        for mine, its in pieces:
            inside[mine] &= one_run[its] & (first[its] <= start[mine]) & (stop[mine] <= last[its])
    return bool((empty | inside).all())


def _beside(grid: Grid, other: Grid) -> list[tuple[slice, slice]]:
    """The blocks of a grid and those of another that lie on the same tiles, as runs of both; at most two."""
    # block b of the one lies where block b + apart, counted around the tiles, of the other lies
    apart = (grid.first - other.first) % grid.tiles
    found = []
    for shift in (apart, apart - grid.tiles):
        low, high = max(0, -shift), min(grid.blocks, other.blocks - shift)
        if low < high:
            found.append((slice(low, high), slice(low + shift, high + shift)))
    return found


def common_dimensions(a: Sequence[int], b: Sequence[int]) -> list[tuple[range, range]]:
    """Split two shapes of the same size into the shortest runs of dimensions that hold as many elements.

    >>> common_dimensions((4, 6, 5), (24, 5))
    [(range(0, 2), range(0, 1)), (range(2, 3), range(1, 2))]
    """
    if math.prod(a) == 0:
        same = tuple(a) == tuple(b)
        return [(range(i, i + 1), range(i, i + 1)) for i in range(len(a))] if same else [(range(len(a)), range(len(b)))]
    groups, i, j = [], 0, 0
    while i < len(a) or j < len(b):
        first, second = i, j
        x, y = 1, 1
        if i < len(a):
            x, i = a[i], i + 1
        if j < len(b):
            y, j = b[j], j + 1
        while x != y:
            if x < y:
                x, i = x * a[i], i + 1
            else:
                y, j = y * b[j], j + 1
        groups.append((range(first, i), range(second, j)))
    return groups


def _run(layout: Layout, dimensions: range) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of every region in these dimensions taken as one, ``[blocks]``: first element, element after the last, and
    whether it is the whole run between them."""
    ends = [[everywhere(layout.grid, end) for end in bounds(layout)[i]] for i in dimensions]
    if len(ends) == 1:
        low, high = ends[0]
        return low, high, np.ones(layout.grid.blocks, bool)
    low, last, count = (np.full(layout.grid.blocks, n, np.int64) for n in (0, 0, 1))
    stride = math.prod(layout.shape[i] for i in dimensions)
    for i, (start, stop) in zip(dimensions, ends, strict=True):
        stride //= max(1, layout.shape[i])
        low += start * stride
        last += (stop - 1) * stride
        count *= stop - start
    high = np.where(count > 0, last + 1, low)
    return low, high, high - low == count


def lies_in_any(part: Layout, wholes: Iterable[Layout]) -> bool:
    """True when ``part`` lies in one of these layouts, or in several together that are parts of its view, apart."""
    wholes = list(wholes)
    return any(lies_in(part, whole) for whole in wholes) or _lies_together(part, wholes)


def _lies_together(part: Layout, wholes: Sequence[Layout]) -> bool:
    """True when the regions that these layouts put on a tile add up to all that ``part`` touches there."""
    own = [whole for whole in wholes if whole.shape == part.shape and whole.grid.tiles == part.grid.tiles]
    windows = [window(whole) for whole in own]
    if len(own) < 2 or any(overlap(a, b) for a, b in itertools.combinations(windows, 2)):
        return False
    return bool((kept(part, own) == part.elements()).all())


def kept(read: Layout, homes: Iterable[Layout]) -> np.ndarray:
    """Elements of each block of ``read`` that lie on the block's own tile, ``int64[blocks]``.

    The homes are apart from one another; what ``sees`` does not see counts as lying elsewhere.
    """
    found = np.zeros(read.grid.blocks, np.int64)
    for home in homes:
        found += _kept_in(read, home)
    return found


def sees(read: Layout, home: Layout) -> bool:
    """True when it can be told in closed form which elements of a read lie on the tile that reads them.

    In the dimensions that both views have in common it can. Where dimensions have the same size only together, the
    regions of one of the two must be single runs of elements there.
    """
    if read.size != home.size or read.grid.tiles != home.grid.tiles:
        return False
    if read.shape == home.shape:
        return True
    groups = common_dimensions(read.shape, home.shape)
    return all(
        len(ours) == len(theirs) == 1 or _single_runs(read, ours) or _single_runs(home, theirs)
        for ours, theirs in groups
    )


@lru_cache(maxsize=8192)
def _single_runs(layout: Layout, dimensions: range) -> bool:
    """True when every region is one run of elements in these dimensions taken as one."""
    return bool(_run(layout, dimensions)[2].all())


@lru_cache(maxsize=REMEMBERED)
def _kept_in(read: Layout, home: Layout) -> np.ndarray:
    """Elements that each block of ``read`` has on its own tile in one home; not to be written to."""
    found = np.zeros(read.grid.blocks, np.int64)
    if not sees(read, home):
        return found
    dimensions = common_dimensions(read.shape, home.shape)
    for mine, its in _beside(read.grid, home.grid):
        found[mine] = 1
        for ours, theirs in dimensions:
            if len(ours) == len(theirs) == 1:
                found[mine] *= _shared(read, ours[0], mine, home, theirs[0], its)
                continue
            box, run = (read, ours, mine), (home, theirs, its)
            if not _single_runs(home, theirs):
                box, run = run, box
            low, high = _ends(_box(*run))
            region = _box(*box)
            found[mine] *= _before(region, high) - _before(region, low)
    return found


def _shared(read: Layout, ours: int, mine: slice, home: Layout, theirs: int, its: slice) -> np.ndarray:
    """Length of what the regions of a read and of a home share in one dimension that both views have."""
    (start, stop), (first, last) = bounds(read)[ours], bounds(home)[theirs]
    if first.size == 1:  # all that one of them has is there for every part of the other: laid over the blocks last
        return _laid(read.grid, np.minimum(stop, last.item()) - np.maximum(start, first.item()), mine)
    if start.size == 1:
        return _laid(home.grid, np.minimum(stop.item(), last) - np.maximum(start.item(), first), its)
    start, stop = (everywhere(read.grid, end)[mine] for end in (start, stop))
    first, last = (everywhere(home.grid, end)[its] for end in (first, last))
    return np.maximum(0, np.minimum(stop, last) - np.maximum(start, first))


def _laid(grid: Grid, lengths: np.ndarray, blocks: slice) -> np.ndarray:
    """Lengths along one axis of a grid for some of its blocks, none below 0; one number where all have the same."""
    lengths = np.maximum(0, lengths)
    return lengths.ravel() if lengths.size == 1 else everywhere(grid, lengths)[blocks]


Box = Sequence[tuple[int, np.ndarray, np.ndarray]]
"""Size of each dimension, and first and after-last position of a region in it: one entry for each block, or one for
all."""


def _box(layout: Layout, dimensions: range, blocks: slice) -> Box:
    """The regions of some blocks in some dimensions."""
    found = []
    for i in dimensions:
        start, stop = bounds(layout)[i]
        one = start.size == 1
        ends = (end.ravel() if one else everywhere(layout.grid, end)[blocks] for end in (start, stop))
        found.append((layout.shape[i], *ends))
    return found


def _ends(run: Box) -> tuple[np.ndarray, np.ndarray]:
    """First flat position of regions that are single runs, and the one after their last."""
    low, last, empty = np.zeros((), np.int64), np.zeros((), np.int64), np.zeros((), bool)
    for size, start, stop in run:
        low, last, empty = np.asarray(low * size + start), np.asarray(last * size + stop - 1), empty | (stop <= start)
    return low, np.where(empty, low, last + 1)


def _before(box: Box, flat: np.ndarray) -> np.ndarray:
    """Elements of each box that come before a flat position."""
    stride = math.prod(max(1, size) for size, _, _ in box)
    inner = math.prod((np.maximum(0, stop - start) for _, start, stop in box), start=np.int64(1))
    count, inside = np.zeros_like(flat), np.ones(np.shape(flat), bool)
    for size, start, stop in box:
        stride //= max(1, size)
        length = np.maximum(0, stop - start)
        inner = inner // np.maximum(1, length)
        at, flat = flat // stride, flat % stride
        count = count + np.where(inside, np.clip(at - start, 0, length) * inner, 0)
        inside = inside & (start <= at) & (at < stop)
    return count + np.where(inside, flat, 0)  # a box of no dimensions is one element


def near(read: Layout) -> Layout | None:
    """Where an operand should lie of which a plan reads this much, so that little is exchanged.

    Windows lie about the parts of their axes: the operand lies in these parts, as far as that gives every element to
    one tile. ``None`` where it does not: several blocks read the same.
    """
    spans = tuple(
        Span(span.axis if span.axis is not None and read.grid.axes[span.axis].size == size else None)
        for span, size in zip(read.spans, read.shape, strict=True)
    )
    home = Layout(read.grid, read.shape, spans)
    return home if home.is_partition else None


def shared_out(read: Layout) -> Layout | None:
    """A layout in which every element lies on one of the tiles that read it, in pieces of about the same size.

    Every dimension of ``read`` follows an axis one to one, or is whole. Blocks that differ in an axis that no dimension
    follows read the same. Such an axis cuts the parts of the axis before it once more, when a dimension follows that:
    parts of an even split into ``a · b`` lie within those of a split into ``a``. Else it cuts a dimension that comes
    apart into parts of equal size. ``None`` where neither can be done, or ``read`` is no such layout.
    """
    if not all(
        span in (Span(), Span(span.axis)) and (span.axis is None or read.grid.axes[span.axis].size == size)
        for span, size in zip(read.spans, read.shape, strict=True)
    ):
        return None
    shape, follows = list(read.shape), [span.axis for span in read.spans]
    if len(set(follows) - {None}) < len(follows) - follows.count(None):
        return None
    axes = list(read.grid.axes)
    left: list[int] = []
    host = -1
    for i, axis in enumerate(axes):
        if i in follows or axis.parts == 1:
            host = i if i in follows else host
            continue
        finer = _cut(axes[host], axis.parts) if host >= 0 else None
        if finer is None:
            left.append(i)
            host = -1
            continue
        axes[host], axes[i] = finer, Axis(axis.name, 1)
    for i in left:
        count = axes[i].parts
        for d, follow in enumerate(follows):
            if follow is None or shape[d] % (axes[follow].parts * axes[follow].grain):
                continue
            each = shape[d] // axes[follow].parts
            if each < count:
                continue
            axes[i] = Axis(axes[i].name, each, count)
            axes[follow] = Axis(axes[follow].name, axes[follow].parts, axes[follow].parts)
            shape[d : d + 1], follows[d : d + 1] = [axes[follow].parts, each], [follow, i]
            break
        else:
            return None
    home = Layout(Grid(tuple(axes), read.grid.tiles, read.grid.first), tuple(shape), tuple(map(Span, follows)))
    return home if home.is_partition else None


def _cut(axis: Axis, times: int) -> Axis | None:
    """The axis with every part in ``times`` parts; in finer grains where that needs them and keeps the old parts."""
    parts = axis.parts * times
    for grain in range(axis.grain, 0, -1):
        if axis.grain % grain or parts > -(-axis.size // grain):
            continue
        if grain == axis.grain or axis.size % (axis.parts * axis.grain) == 0:
            return Axis(axis.name, axis.size, parts, grain)
    return None


def _text(box: Window) -> str:
    return f"[{', '.join(f'{a}:{b}' for a, b in box)}]"

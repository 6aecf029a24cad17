"""Elements of layouts as columns over tiles and classes, each distinct question answered once.

Everything in ``charge`` is either one number for a class of equal vertices or a column over tiles, kept as its runs;
nothing loops over tiles or blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from abele.charge.runs import Runs
from abele.machine.exchange import pairs_share
from abele.schedule.geometry import (
    bounds,
    common_dimensions,
    everywhere,
    kept,
    overlap,
    partitions_window,
    volume,
    window,
)
from abele.schedule.layout import Grid, Layout


class Columns:
    """Answers about layouts. Kept while schedules of one program are charged: it remembers by identity."""

    def __init__(self) -> None:
        self._by_id: dict[tuple[str, int], tuple[object, Runs]] = {}
        self._by_value: dict[tuple[str, object], Runs] = {}
        self._distances: dict[tuple[int, int], float] = {}
        self._numbers: dict[Layout, int] = {}
        self._number_of: dict[int, tuple[Layout, int]] = {}

    def number(self, layout: Layout) -> int:
        """A number that equal layouts share."""
        known = self._number_of.get(id(layout))
        if known is None:
            known = self._number_of[id(layout)] = layout, self._numbers.setdefault(layout, len(self._numbers))
        return known[1]

    def elements(self, layout: Layout) -> Runs:
        """Elements of the layout on each tile."""
        return self._remember("elements", layout, lambda layout: Runs.of(layout.elements_on_tiles()))

    def missing(self, read: Layout, homes: Sequence[Layout]) -> Runs:
        """Elements of a read that do not lie on the tile that reads them."""
        key = ("missing", (read, *homes))
        if key not in self._by_value:
            self._by_value[key] = Runs.of(read.grid.on_tiles(read.elements() - kept(read, homes)))
        return self._by_value[key]

    def covered(self, grid: Grid) -> Runs:
        """1 for each tile that has a block of the grid, else 0."""
        return self._remember("covered", grid, lambda grid: Runs.of(grid.on_tiles(1)))

    def distance(self, home: Layout, read: Layout) -> float:
        """Mean difference of the numbers of the tiles that read and those that hold what they read, by elements."""
        key = self.number(home), self.number(read)
        if key not in self._distances:
            self._distances[key] = mean_distance(home, read)
        return self._distances[key]

    def _remember(self, what: str, record, make) -> Runs:
        known = self._by_id.get((what, id(record)))
        if known is not None:
            return known[1]
        key = (what, record)
        if key not in self._by_value:
            self._by_value[key] = make(record)
        self._by_id[what, id(record)] = record, self._by_value[key]
        return self._by_value[key]


def region_sizes(layout: Layout, lengths: list[np.ndarray]) -> np.ndarray:
    """Most elements that a vertex of each class touches, given the part length of every axis, ``int64[classes]``."""
    count = np.ones(len(lengths[0]) if lengths else 1, np.int64)
    for span, size in zip(layout.spans, layout.shape, strict=True):
        if span.axis is None:
            count = count * size
            continue
        part = lengths[span.axis]
        touched = (span.stride * (part - 1) + span.extent - 1) // span.divide + 1
        count = count * np.where(part > 0, np.minimum(np.maximum(touched, 0), size), 0)
    return count


def most_held(home: Layout, read: Layout) -> int:
    """Most elements that one tile holds of the window that is read; through two different views, the smaller of what it
    holds and the window."""
    box = window(read)
    if home.shape != read.shape:
        return min(home.most_elements(), volume(box))
    if not overlap(box, window(home)):
        return 0
    whole, factors = home.factors(box)
    return whole * math.prod(int(factor.max()) for factor in factors)


def most_sent(home: Layout, read: Layout) -> int:
    """Most elements that one tile sends when a tensor that lies in ``home`` is read: what it holds of the window that
    is read, each element at most once, without what no other tile reads.

    Along a dimension a part keeps to itself what lies between the windows of its neighbours; a tile keeps to itself
    what its part keeps in all dimensions. Where every element is read by one block, a tile keeps what its own block
    reads. Else, through a grid of other blocks than the home's, nothing is said to be kept.
    """
    sent = most_held(home, read)
    if partitions_window(read):
        box = window(read) if home.shape == read.shape else None
        left = home.grid.on_tiles(home.elements(box)) - read.grid.on_tiles(kept(read, [home]))
        return min(sent, int(left.max()))
    if _blocks(home.grid) != _blocks(read.grid) or home.shape != read.shape:
        return sent
    parts = [np.arange(axis.parts) for axis in home.grid.axes]
    lengths, own = ([np.ones(axis.parts, np.int64) for axis in home.grid.axes] for _ in range(2))
    inner = 1
    for have, want, size in zip(home.spans, read.spans, home.shape, strict=True):
        if have.axis is None:
            if want.axis is not None:
                return sent
            inner *= size
            continue
        if want.axis not in (None, have.axis):
            return sent
        start, stop = have.bounds(home.grid, parts, size)
        ends = (0, size) if want.axis is None else want.bounds(read.grid, parts, size)
        first, last = (np.broadcast_to(at, start.shape) for at in ends)
        none = last <= first
        before = np.maximum.accumulate(np.where(none, 0, last))[:-1]
        behind = np.minimum.accumulate(np.where(none, size, first)[::-1])[::-1][1:]
        low, high = np.maximum(start, np.append(0, before)), np.minimum(stop, np.append(behind, size))
        lengths[have.axis] *= np.maximum(0, stop - start)
        own[have.axis] *= np.maximum(0, high - low)
    count, alone = np.full(1, inner, np.int64), np.full(1, inner, np.int64)
    for length, kept_ in zip(lengths, own, strict=True):
        count, alone = np.multiply.outer(count, length).ravel(), np.multiply.outer(alone, kept_).ravel()
    return min(sent, int((count - alone).max()))


_SAMPLES = 8
"""Elements of each block's region that are looked up for the distance: evenly along every dimension at once."""


def mean_distance(home: Layout, read: Layout) -> float:
    """Mean difference of the numbers of the tile that reads and of the tile that holds, over what lies on another tile.

    ``home`` gives every element to one tile (where it is a part of the tensor, the nearest part stands for the rest).
    Of each block a few elements stand for all; where none of them lies elsewhere, the neighbour is meant.
    """
    grid = read.grid
    tile = grid.tile(np.arange(grid.blocks))
    start, stop = regions(read)
    weight = np.prod(stop - start, axis=0)
    if not read.size or not weight.any():
        return 0.0
    at = (2 * np.arange(_SAMPLES)[:, None, None] + 1) / (2 * _SAMPLES)
    away = np.abs(holder(home, elements_at(read, at)) - tile)
    weights = np.where(away > 0, weight, 0)
    return float(np.average(away, weights=weights)) if weights.any() else 1.0


def regions(read: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Start and stop of every block's region in every dimension of the view, ``int64[dimensions, blocks]``."""
    grid = read.grid
    start, stop = (
        np.array([everywhere(grid, ends[i]) for ends in bounds(read)], np.int64).reshape(-1, grid.blocks)
        for i in (0, 1)
    )
    return start, stop


def elements_at(read: Layout, at: np.ndarray) -> np.ndarray:
    """Elements of every block's region, so far along it in every dimension (0 to 1, ``[samples, dimensions or 1, 1]``):
    their flat positions, ``int64[samples, blocks]``."""
    start, stop = regions(read)
    index = np.minimum((start + at * (stop - start)).astype(np.int64), np.array(read.shape).reshape(-1, 1) - 1)
    flat = np.zeros(index.shape[::2], np.int64)
    for i, size in enumerate(read.shape):
        flat = flat * size + index[:, i]
    return flat


def holder(home: Layout, flat: np.ndarray) -> np.ndarray:
    """The tile on which elements lie, by their flat positions; where the home has only a part of the tensor, the tile
    of the nearest part."""
    block = np.zeros_like(flat)
    dimensions = zip(home.spans, home.shape, _coordinates(home.shape, flat), strict=True)
    held = {span.axis: (span, size, where) for span, size, where in dimensions}
    for i, axis in enumerate(home.grid.axes):
        part = np.zeros_like(flat)
        if i in held and axis.parts > 1:
            span, size, where = held[i]
            parts = [np.arange(axis.parts) if j == i else 0 for j in range(len(home.grid.axes))]
            stops = span.bounds(home.grid, parts, size)[1]
            part = np.minimum(np.searchsorted(stops, where, side="right"), axis.parts - 1)
        block = block * axis.parts + part
    return np.asarray(home.grid.tile(block))


def holds(home: Layout, flat: np.ndarray) -> np.ndarray:
    """Whether elements lie in the part of the tensor that a home has, by their flat positions."""
    there = np.ones(flat.shape, bool)
    for (start, stop), where in zip(window(home), _coordinates(home.shape, flat), strict=True):
        there &= (start <= where) & (where < stop)
    return there


def _coordinates(shape: Sequence[int], flat: np.ndarray) -> list[np.ndarray]:
    """Row-major coordinates of flat positions in a view."""
    found = []
    for size in reversed(shape):
        found.append(flat % size)
        flat = flat // size
    return found[::-1]


def _blocks(grid: Grid) -> tuple:
    """What numbers the blocks of a grid and lays them on tiles."""
    return tuple(axis.parts for axis in grid.axes), grid.tiles, grid.first


def messages(home: Layout, read: Layout) -> int:
    """Tiles of ``home`` from which the fullest block of ``read`` gets its elements, at most: one message from each.

    Along each dimension a block meets so many parts of the home; dimensions that two views have only together count as
    one. Assumed, and the least that there can be: a tile keeps what it holds in such an order that what a block takes
    of it is one run, and of a tensor that lies flat every tile holds such a share as its readers take.
    """
    count = 1
    have, want = _extents(home), _extents(read)
    for ours, theirs in common_dimensions(read.shape, home.shape):
        taken, held = math.prod(want[i] for i in ours), math.prod(have[i] for i in theirs)
        size = math.prod(read.shape[i] for i in ours)
        if not taken or not held or held == size:
            continue
        run = _run([want[i] for i in ours], [read.shape[i] for i in ours])
        if len(theirs) == 1 or run == taken:
            parts = -(-taken // held) + (taken % held > 0 and held % taken > 0)
        else:
            # many short runs: each from another tile, or from all that hold something of the whole
            parts = min(taken // run * -(-run // held), -(-size // held))
        count *= min(parts, taken)
    return count


def _extents(layout: Layout) -> list[int]:
    """Elements that the longest part touches in each dimension of the view."""
    found = []
    for span, size in zip(layout.spans, layout.shape, strict=True):
        if span.axis is None:
            found.append(size)
            continue
        longest = layout.grid.axes[span.axis].classes()[0][0]
        found.append(min(size, max(0, (span.stride * (longest - 1) + span.extent - 1) // span.divide + 1)))
    return found


def _run(extents: Sequence[int], shape: Sequence[int]) -> int:
    """Elements of a region that follow one another in a row-major view: whole inner dimensions run on."""
    run = 1
    for extent, size in zip(reversed(extents), reversed(shape), strict=True):
        run *= extent
        if extent < size:
            break
    return run


def shared_by_pairs(read: Layout, bus: int) -> bool:
    """True when the tiles of every exchange bus receive the same pieces through this layout.

    Blocks that differ only in trailing axes which the spans do not follow read the same.
    """
    followed = {span.axis for span in read.spans}
    run = 1
    for i in reversed(range(len(read.grid.axes))):
        if i in followed and read.grid.axes[i].parts > 1:
            break
        run *= read.grid.axes[i].parts
    blocks = math.prod(axis.parts for axis in read.grid.axes)
    return bool(pairs_share(run, blocks, bus, read.grid.first))

"""Where things lie: an iteration space split over tiles in closed form, and how tensors follow it.

A ``Grid`` splits the axes of an operation's iteration space into parts; every combination of parts is a *block*, and
each block belongs to one tile. A ``Layout`` says which elements of a tensor belong to which block. Both
describe all tiles at once: parts of equal length form a class with a count, and nothing here loops over tiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of an iteration space: ``size`` steps in ``parts`` balanced parts, each a multiple of ``grain``.

    Part ``i`` covers ``[grain * (i * units // parts), min(size, grain * ((i + 1) * units // parts)))`` with
    ``units = ceil(size / grain)``. At most ``units`` parts, so that none is empty; an axis of size 0 has one part.
    """

    name: str
    size: int
    parts: int = 1
    grain: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.parts <= max(1, self.units):
            raise ValueError(f"axis {self.name}: {self.parts} parts of {self.units} units")

    @property
    def units(self) -> int:
        return -(-self.size // self.grain)

    def start(self, part: np.ndarray | int):
        """First step of each part."""
        return self.grain * (part * self.units // self.parts)

    def stop(self, part: np.ndarray | int):
        """Step after the last of each part."""
        return np.minimum(self.size, self.start(part + 1))

    def classes(self) -> tuple[tuple[int, int], ...]:
        """The distinct part lengths with their counts, longest first."""
        quotient, remainder = divmod(self.units, self.parts)
        found: dict[int, int] = {}
        if remainder:
            found[(quotient + 1) * self.grain] = remainder
        if self.parts - remainder:
            found[quotient * self.grain] = self.parts - remainder
        ragged = self.units * self.grain - self.size
        if ragged:
            whole = int(-(-self.units // self.parts)) * self.grain
            found[whole] -= 1
            found[whole - ragged] = found.get(whole - ragged, 0) + 1
        return tuple(sorted(((length, n) for length, n in found.items() if n), reverse=True))


@dataclass(frozen=True, slots=True)
class Grid:
    """A split iteration space on the tiles of one IPU. Block ``b`` lies on tile ``(first + b) % tiles``.

    Blocks are numbered row-major over the parts of the axes, the last axis fastest.
    """

    axes: tuple[Axis, ...]
    tiles: int
    first: int = 0

    def __post_init__(self) -> None:
        if self.blocks > self.tiles:
            raise ValueError(f"{self.blocks} blocks on {self.tiles} tiles")

    @property
    def blocks(self) -> int:
        return math.prod(axis.parts for axis in self.axes)

    def axis(self, name: str) -> int:
        """Position of the axis called ``name``."""
        return next(i for i, axis in enumerate(self.axes) if axis.name == name)

    def parts(self, block: np.ndarray | int) -> list:
        """The part of every axis in each block."""
        found = []
        for axis in reversed(self.axes):
            found.append(block % axis.parts)
            block = block // axis.parts
        return found[::-1]

    def tile(self, block: np.ndarray | int):
        """The tile of each block."""
        return (self.first + block) % self.tiles

    def on_tiles(self, values: np.ndarray | int) -> np.ndarray:
        """A value for each block, or one for all, laid on their tiles: ``int64[tiles]``, 0 where no block lies."""
        column = np.zeros(self.tiles, np.int64)
        first = self.first % self.tiles
        before = min(self.blocks, self.tiles - first)
        values = np.broadcast_to(values, self.blocks)
        column[first : first + before] = values[:before]
        column[: self.blocks - before] = values[before:]
        return column

    def classes(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """Blocks with equal part lengths: ``counts[c]``, and for every axis ``lengths[axis][c]``."""
        counts, lengths = np.ones(1, np.int64), [np.zeros(1, np.int64) for _ in self.axes]
        for i, axis in enumerate(self.axes):
            per = axis.classes()
            sizes = np.array([length for length, _ in per], np.int64)
            times = np.array([n for _, n in per], np.int64)
            counts = (counts[:, None] * times).ravel()
            lengths = [np.repeat(column, len(per)) for column in lengths]
            lengths[i] = np.tile(sizes, len(counts) // len(per))
        return counts, lengths

    def classes_of_blocks(self) -> np.ndarray:
        """The class of every block, an index into what ``classes`` counts, ``int64[blocks]``."""
        index = np.zeros(1, np.int64)
        for axis in self.axes:
            parts = np.arange(axis.parts)
            per = [length for length, _ in axis.classes()]
            place = np.searchsorted(-np.array(per), -(axis.stop(parts) - axis.start(parts)))
            index = np.add.outer(index * len(per), place).ravel()
        return index


@dataclass(frozen=True, slots=True)
class Span:
    """The part of one tensor dimension that a block touches.

    With ``axis`` ``None`` the whole dimension. Otherwise, for a part ``[a, b)`` of the axis, the elements from
    ``ceil((stride*a + offset) / divide)`` to ``floor((stride*(b-1) + offset + extent - 1) / divide)``, both
    included, clipped to the dimension. ``stride``, ``offset`` and ``extent`` describe windows (a convolution's halo);
    ``divide`` describes their inverse (the same seen from the gradient).
    """

    axis: int | None = None
    stride: int = 1
    offset: int = 0
    extent: int = 1
    divide: int = 1

    @property
    def exact(self) -> bool:
        """True when parts of the axis map to disjoint, adjoining pieces of the dimension."""
        return self.axis is None or self.stride == self.extent

    @classmethod
    def part_of(cls, position: int, axis: Axis) -> Span:
        """Part ``i`` of the axis touches element ``i`` of a dimension with one element for every part.

        For partial results: with ``units`` steps of ``grain`` in ``parts`` parts, ``ceil(parts * start(i) /
        (grain * units))`` is ``i``, however unequal the parts are.
        """
        return cls(position, stride=axis.parts, extent=axis.parts, divide=max(1, axis.grain * axis.units))

    def steps(self, axis: Axis) -> int:
        """Elements of the dimension that all parts of the axis touch together, when they touch each once."""
        return -(-axis.size * self.stride // self.divide)

    def bounds(self, grid: Grid, parts: Sequence, size: int):
        """Start and stop in the dimension for each block, given the part of every axis in it."""
        if self.axis is None:
            whole = np.zeros_like(np.asarray(parts[0] if parts else 0))
            return whole, whole + size
        axis = grid.axes[self.axis]
        a, b = axis.start(parts[self.axis]), axis.stop(parts[self.axis])
        start = -((-(self.stride * a + self.offset)) // self.divide)
        stop = (self.stride * (b - 1) + self.offset + self.extent - 1) // self.divide + 1
        # quicker than np.clip, which looks up the limits of the dtype; this is called very often
        start, stop = (np.minimum(np.maximum(at, 0), size) for at in (start, stop))
        return start, np.where(b > a, np.maximum(start, stop), start)


@dataclass(frozen=True, slots=True)
class Layout:
    """Which elements of a tensor belong to which block of a grid.

    ``shape`` is a row-major view of the tensor (its own shape, or any other of the same size, such as the flat one),
    with one span for every dimension of the view. A layout in which a tensor *lies* (its home) gives every
    element to exactly one block; one through which it is *read* may overlap.
    """

    grid: Grid
    shape: tuple[int, ...]
    spans: tuple[Span, ...]

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.spans):
            raise ValueError(f"{len(self.spans)} spans for the view {self.shape}")

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_partition(self) -> bool:
        """True when every element belongs to exactly one block."""
        used = [span.axis for span in self.spans if span.axis is not None]
        split = [i for i, axis in enumerate(self.grid.axes) if axis.parts > 1]
        return (
            len(used) == len(set(used))
            and set(split) <= set(used)
            and all(
                span.exact
                and (span.axis is None or (span.offset == 0 and span.steps(self.grid.axes[span.axis]) == size))
                for span, size in zip(self.spans, self.shape, strict=True)
            )
        )

    def factors(self, box: Sequence[tuple[int, int]] | None = None) -> tuple[int, list[np.ndarray]]:
        """What the elements of a block are the product of, since each dimension follows one axis at most.

        Args:
            box: count only elements between these bounds, ``(start, stop)`` for each dimension of the view.

        Returns:
            Elements in the dimensions that no axis splits, and for every axis ``int64[parts]``: elements in the
            dimensions that follow it.
        """
        parts = [np.arange(axis.parts) for axis in self.grid.axes]
        whole, factors = 1, [np.ones(axis.parts, np.int64) for axis in self.grid.axes]
        for i, (span, size) in enumerate(zip(self.spans, self.shape, strict=True)):
            low, high = box[i] if box is not None else (0, size)
            if span.axis is None:
                whole *= max(0, min(size, high) - max(0, low))
                continue
            start, stop = span.bounds(self.grid, parts, size)
            if box is not None:
                start, stop = np.maximum(start, low), np.minimum(stop, high)
            factors[span.axis] *= np.maximum(0, stop - start)
        return whole, factors

    def elements(self, box: Sequence[tuple[int, int]] | None = None) -> np.ndarray:
        """Elements in each block, ``int64[blocks]``; ``box`` as for ``factors``."""
        whole, factors = self.factors(box)
        count = np.full(1, whole, np.int64)
        for factor in factors:
            count = np.multiply.outer(count, factor).ravel()
        return count

    def most_elements(self) -> int:
        """Elements in the fullest block."""
        whole, factors = self.factors()
        return whole * math.prod(int(factor.max()) for factor in factors)

    def elements_on_tiles(self) -> np.ndarray:
        """Elements on each tile, ``int64[tiles]``."""
        return self.grid.on_tiles(self.elements())

    def region(self, block: int) -> tuple[slice, ...]:
        """The piece of the view that belongs to one block."""
        parts = self.grid.parts(block)
        bounds = (span.bounds(self.grid, parts, size) for span, size in zip(self.spans, self.shape, strict=True))
        return tuple(slice(int(a), int(b)) for a, b in bounds)


def spread(size: int, tiles: int, grain: int = 1, first: int = 0) -> Layout:
    """A flat tensor of ``size`` elements laid over as many tiles as it has grains, evenly."""
    parts = max(1, min(tiles, -(-size // grain)))
    return Layout(Grid((Axis("n", size, parts, grain),), tiles, first), (size,), (Span(0),))

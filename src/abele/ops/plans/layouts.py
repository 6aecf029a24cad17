"""Choosing layouts: the pure helpers with which every family's plans split work over tiles.

All of it is closed form: a choice looks at shapes, part counts and word sizes, never at single tiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from abele.ir.types import DType, TensorType
from abele.machine.chip import Chip
from abele.ops.plans.planning import Question, read
from abele.ops.plans.search import part_counts
from abele.schedule.geometry import common_dimensions
from abele.schedule.layout import Axis, Grid, Layout, Span
from abele.schedule.records import Access

LEAST_BYTES = 32
"""A block of a tensor that is split for balance alone is at least this big: below it, fixed costs dominate."""

LEAST_GAIN = 4
"""Work moves away from where its operand lies only when the fullest tile then has so many times less to do."""


def grain_of(dtype: DType, chip: Chip) -> int:
    """Elements in one word of the data path, the unit that a store writes at once (float 2, half 4)."""
    return max(1, chip.data_path_bytes // dtype.bytes)


def least_of(dtype: DType) -> int:
    """The fewest elements that are worth a tile of their own."""
    return max(1, LEAST_BYTES // dtype.bytes)


def flat(type: TensorType, chip: Chip, first: int = 0) -> Layout:
    """The tensor as one row of elements, evenly over the tiles; a small one takes few tiles."""
    grain = grain_of(type.dtype, chip)
    units = -(-type.size // grain)
    parts = max(1, min(chip.tiles, units, -(-type.size // least_of(type.dtype))))
    return Layout(Grid((Axis("n", type.size, parts, grain),), chip.tiles, first), (type.size,), (Span(0),))


def split_dims(
    shape: Sequence[int],
    tiles: int,
    grains: Sequence[int] = (),
    *,
    first: int = 0,
    names: Sequence[str] = (),
    keep: Sequence[int] = (),
    least: int = 1,
) -> Grid:
    """A grid with one axis for every dimension, split so that the largest block is as small as can be.

    Among equal choices the one with fewest blocks, and then with the inner dimensions split least.

    Args:
        shape: sizes of the dimensions.
        tiles: tiles that there are.
        grains: a part is a multiple of it, one for each dimension (default 1).
        first: tile of block 0.
        names: names of the axes (default ``d0``, ``d1`` …).
        keep: dimensions that are not split.
        least: no more blocks than leave each about this many elements.
    """
    shape = tuple(shape)
    grains = tuple(grains) or (1,) * len(shape)
    names = tuple(names) or tuple(f"d{i}" for i in range(len(shape)))
    budget = max(1, min(tiles, -(-math.prod(shape) // max(1, least))))
    units = tuple(1 if i in keep else -(-size // g) for i, (size, g) in enumerate(zip(shape, grains, strict=True)))
    parts = _best_parts(units, budget)[2]
    axes = zip(names, shape, parts, grains, strict=True)
    return Grid(tuple(Axis(name, size, p, g) for name, size, p, g in axes), tiles, first)


@lru_cache(maxsize=4096)
def _best_parts(units: tuple[int, ...], budget: int) -> tuple[int, int, tuple[int, ...]]:
    """Units in the largest block, number of blocks, parts of each dimension: the best for ``budget`` blocks."""
    if len(units) < 2:
        return _fewest(units, budget)
    rest_of = _best_parts if len(units) > 2 else _fewest  # the last one's answers are not worth remembering
    best: tuple[tuple, tuple[int, int, tuple[int, ...]]] | None = None
    for parts in part_counts(units[0], budget):
        work, blocks, rest = rest_of(units[1:], budget // parts)
        work, blocks, chosen = work * -(-units[0] // parts), blocks * parts, (parts, *rest)
        key = (work, blocks, chosen[::-1])
        if best is None or key < best[0]:
            best = key, (work, blocks, chosen)
    assert best is not None
    return best[1]


def _fewest(units: tuple[int, ...], budget: int) -> tuple[int, int, tuple[int, ...]]:
    """``_best_parts`` of one dimension at most: the fewest parts that reach the least work."""
    if not units:
        return 1, 1, ()
    work = -(-units[0] // max(1, min(units[0], budget)))
    parts = -(-units[0] // max(1, work)) or 1
    return work, parts, (parts,)


def own(grid: Grid, shape: Sequence[int], axes: Sequence[int | None] | None = None) -> Layout:
    """A layout whose dimension ``i`` follows axis ``axes[i]`` of the grid one to one (default: axis ``i``)."""
    chosen = range(len(shape)) if axes is None else axes
    return Layout(grid, tuple(shape), tuple(Span(axis) for axis in chosen))


def whole(shape: Sequence[int], grid: Grid) -> Layout:
    """Every block of the grid touches the whole tensor."""
    return Layout(grid, tuple(shape), (Span(),) * len(shape))


def single(shape: Sequence[int], tiles: int, first: int = 0) -> Layout:
    """The whole tensor on tile ``first``."""
    return own(Grid(tuple(Axis(f"d{i}", n) for i, n in enumerate(shape)), tiles, first), shape)


def even(type: TensorType, chip: Chip, first: int = 0, *, keep: Sequence[int] = ()) -> Layout:
    """The tensor split over its own dimensions, words of the last dimension kept together where it is long."""
    grains = [1] * type.rank
    if type.rank and type.shape[-1] >= 4 * grain_of(type.dtype, chip):
        grains[-1] = grain_of(type.dtype, chip)
    grid = split_dims(type.shape, chip.tiles, grains, first=first, keep=keep, least=least_of(type.dtype))
    return own(grid, type.shape)


def refined(
    layout: Layout, chip: Chip, dtype: DType, *, tiles: int = 0, least: int = 0, whole_grains: bool = False
) -> Layout:
    """The same blocks, each cut further over the tiles that they leave, as evenly as can be.

    Parts of parts begin where the parts do, so that a piece lies within one block of the layout (within two where a
    coarser grain has left parts that are not equal). A dimension that no axis follows gets one.

    Args:
        tiles: of so many (default: the chip's).
        least: elements that a block has at least, where the layout's blocks are not smaller (default: those worth a
            tile of their own).
        whole_grains: keep the grains of the layout's axes; else words of the last dimension, single steps of others.
    """
    axes: list[Axis] = []
    rooms: list[int] = []
    word = grain_of(dtype, chip)
    for i, (size, span) in enumerate(zip(layout.shape, layout.spans, strict=True)):
        axis = None if span.axis is None else layout.grid.axes[span.axis]
        parts = axis.parts if axis else 1
        last = i == len(layout.shape) - 1
        grain = word if last and size >= 4 * word and parts <= -(-size // word) else 1
        if whole_grains and axis:
            grain = axis.grain
        axes.append(Axis(f"d{i}", size, parts, grain))
        rooms.append(max(1, axes[-1].units // parts))
    blocks = math.prod(axis.parts for axis in axes)
    budget = max(1, min(tiles or chip.tiles, -(-layout.size // (least or least_of(dtype)))) // blocks)
    more = _best_parts(tuple(rooms), budget)[2]
    cut = tuple(Axis(a.name, a.size, a.parts * times, a.grain) for a, times in zip(axes, more, strict=True))
    return own(Grid(cut, chip.tiles, layout.grid.first), layout.shape)


BLOCK_BYTES = 512
"""Weights that many tiles read lie in blocks of at least so many bytes: one load of the matrix unit, 16 × 16 half or
8 × 16 float values (graphcore/poplibs, poplin/Convolution.cpp). Smaller ones would take more exchange code."""


def among_readers(read: Layout, chip: Chip, dtype: DType) -> Layout | None:
    """Where a tensor lies that many tiles read through ``read`` alike: what several tiles read is cut up among them.

    ``None`` where the parts that are read are no partition: overlapping windows.
    """
    spans = [(span, size) for span, size in zip(read.spans, read.shape, strict=True) if span.axis is not None]
    plain = all(s.stride == s.extent == s.divide == 1 and read.grid.axes[s.axis or 0].size == n for s, n in spans)
    if not plain or len({span.axis for span, _ in spans}) < len(spans):
        return None
    return refined(read, chip, dtype, least=max(1, BLOCK_BYTES // dtype.bytes), whole_grains=True)


def fullest(layout: Layout) -> int:
    """Elements in the largest block."""
    return layout.most_elements()


def view(layout: Layout, shape: Sequence[int]) -> Layout | None:
    """The same elements in the same blocks, with another row-major view of the tensor; ``None`` when no span says it.

    Dimensions may merge when only the outermost of them is split, and a split dimension may come apart when every
    part holds whole inner dimensions.
    """
    shape = tuple(shape)
    if layout.shape == shape:
        return layout
    if layout.size != math.prod(shape) or layout.size == 0:
        return None
    old = []
    for size, span in zip(layout.shape, layout.spans, strict=True):
        if size > 1:
            old.append((size, span))
        elif not _covers(layout.grid, span, size):
            return None
    spans: list[Span] = []
    at = 0
    rest = list(shape)
    while rest:
        group = [rest.pop(0)]
        if group[0] == 1:
            spans.append(Span())
            continue
        merged, at = [old[at]], at + 1
        while (have := math.prod(size for size, _ in merged)) != (want := math.prod(group)):
            if have < want:
                merged.append(old[at])
                at += 1
            else:
                group.append(rest.pop(0))
        new = _regroup(layout.grid, merged, group)
        if new is None:
            return None
        spans.extend(new)
    return Layout(layout.grid, shape, tuple(spans))


def _covers(grid: Grid, span: Span, size: int) -> bool:
    """True when every block touches the whole dimension."""
    if span.axis is None:
        return True
    axis = grid.axes[span.axis]
    return axis.parts == 1 and span.exact and span.offset == 0 and span.steps(axis) == size


def covers(layout: Layout, dimension: int) -> bool:
    """True when every block touches the whole of one dimension of the layout's view."""
    return _covers(layout.grid, layout.spans[dimension], layout.shape[dimension])


def widened(layout: Layout, shape: Sequence[int]) -> Layout | None:
    """The layout of a tensor like this one but for the sizes of some dimensions; those must be whole on every tile."""
    spans = []
    for d, (have, want) in enumerate(zip(layout.shape, shape, strict=True)):
        if have == want:
            spans.append(layout.spans[d])
        elif covers(layout, d):
            spans.append(Span())
        else:
            return None
    return Layout(layout.grid, tuple(shape), tuple(spans))


def resized(layout: Layout, shape: Sequence[int], other: Sequence[int]) -> Layout | None:
    """Blocks of a tensor of shape ``other`` on the tiles where this layout puts those of one of shape ``shape``.

    Every dimension is cut into as many parts as before, at about the same places. ``None`` where the layout's view
    hides the dimensions, or one is too short for its parts.
    """
    seen = view(layout, shape) if layout.is_partition else None
    if seen is None or len(shape) != len(other):
        return None
    axes = list(layout.grid.axes)
    for span, have, want in zip(seen.spans, shape, other, strict=True):
        if span.axis is None:
            continue
        axis = axes[span.axis]
        if (span.stride, span.offset, span.extent, span.divide) != (1, 0, 1, 1) or axis.size != have:
            return None
        if axis.parts > max(1, -(-want // axis.grain)):
            return None
        axes[span.axis] = Axis(axis.name, want, axis.parts, axis.grain)
    return Layout(Grid(tuple(axes), layout.grid.tiles, layout.grid.first), tuple(other), seen.spans)


def _regroup(grid: Grid, old: list[tuple[int, Span]], new: list[int]) -> list[Span] | None:
    """Spans of the dimensions ``new``, which hold the same elements as the dimensions ``old``."""
    if len(old) == len(new) == 1:
        return [old[0][1]]
    if all(_covers(grid, span, size) for size, span in old):
        return [Span()] * len(new)
    (_, span), inner = old[0], math.prod(size for size, _ in old[1:])
    if span.divide != 1 or not all(_covers(grid, s, size) for size, s in old[1:]):
        return None
    stride, offset, extent = span.stride * inner, span.offset * inner, span.extent * inner
    within = math.prod(new) // new[0]
    behind = [Span()] * (len(new) - 1)
    if stride % within == 0 and offset % within == 0 and extent % within == 0:
        return [Span(span.axis, stride // within, offset // within, extent // within), *behind]
    assert span.axis is not None
    if stride == extent and offset == 0 and stride * grid.axes[span.axis].grain % within == 0:
        return [Span(span.axis, stride, 0, extent, within), *behind]  # every part starts with whole inner dimensions
    return None


def align(layout: Layout, shape: Sequence[int], operand: Sequence[int]) -> Layout | None:
    """How an operand of shape ``operand`` is read when the blocks make the pieces ``layout`` of a result ``shape``.

    The operand broadcasts to the result as NumPy does. ``None`` when the layout's view hides the dimensions.
    """
    shape, operand = tuple(shape), tuple(operand)
    if operand == shape:
        return layout
    if math.prod(operand) == 1 and math.prod(shape) != 1:
        return whole(operand, layout.grid)
    seen = view(layout, shape)
    if seen is None:
        return None
    extra = len(shape) - len(operand)
    spans = [
        Span() if have == 1 and want != 1 else span
        for have, want, span in zip(operand, shape[extra:], seen.spans[extra:], strict=True)
    ]
    return Layout(layout.grid, operand, tuple(spans))


def align_in_view(layout: Layout, shape: Sequence[int], operand: Sequence[int]) -> Layout | None:
    """As ``align``, with the operand in a view that broadcasts to the layout's own view of the result.

    ``None`` when the layout's view hides the dimensions along which the operand is repeated.
    """
    shape, operand = tuple(shape), tuple(operand)
    aligned = align(layout, shape, operand)
    if aligned is None or layout.shape == shape or math.prod(operand) in (1, math.prod(shape)):
        return aligned
    given = (1,) * (len(shape) - len(operand)) + operand
    sizes, spans = list(layout.shape), list(layout.spans)
    for ours, theirs in common_dimensions(layout.shape, shape):
        repeated = {given[d] != shape[d] for d in theirs if shape[d] != 1}
        if len(repeated) > 1:
            return None
        if repeated == {True}:
            for d in ours:
                sizes[d], spans[d] = 1, Span()
    return Layout(layout.grid, tuple(sizes), tuple(spans))


def same_elements(home: Layout, layout: Layout) -> bool:
    """True when every block of both has the same elements on the same tile."""
    if home == layout:
        return True
    if home.grid != layout.grid:
        return False
    seen = view(home, layout.shape)
    return seen is not None and all(
        a == b or (_covers(layout.grid, a, n) and _covers(layout.grid, b, n))
        for a, b, n in zip(seen.spans, layout.spans, layout.shape, strict=True)
    )


def read_like(question: Question, operand: int, layout: Layout) -> Access:
    """A read of an operand through ``layout``, or through its home where that is the same pieces in another view.

    The vertex must then take the piece in the order of its elements, whatever its shape (see ``elementwise``).
    """
    home = question.homes[operand]
    if home is not None and home != layout and same_elements(home, layout):
        return Access(f"in{operand}", home, True)
    return read(question, operand, layout)


def read_along(question: Question, operand: int, layout: Layout, shape: Sequence[int]) -> Access:
    """A read of an operand that ``align`` laid along a result of ``shape``.

    One that is repeated along some dimensions is read in its own view: the vertex must know which dimensions it has.
    """
    if question.operands[operand].size in (1, math.prod(shape)):
        return read_like(question, operand, layout)
    return read(question, operand, layout)


def pointwise(question: Question, result: TensorType, operands: Sequence[int] | None = None) -> Layout:
    """Where to compute ``result`` elementwise from operands that broadcast to it.

    Follows the home of the largest operand that can be followed, so that a chain of such operations exchanges
    nothing; without one the result is spread evenly, flat when nothing broadcasts.
    """
    chosen = range(len(question.operands)) if operands is None else operands
    types = [question.operands[i] for i in chosen]
    plain = all(t.shape == result.shape or t.size == 1 for t in types)
    fresh = flat(result, question.chip, question.first) if plain else even(result, question.chip, question.first)
    limit = LEAST_GAIN * max(fullest(fresh), least_of(result.dtype))
    for i in sorted(chosen, key=lambda i: -question.operands[i].bytes):
        home = question.homes[i]
        if home is None or question.operands[i].shape != result.shape or not home.is_partition:
            continue
        if fullest(home) > limit or any(align(home, result.shape, t.shape) is None for t in types):
            continue
        return home if plain else (view(home, result.shape) or home)
    return fresh

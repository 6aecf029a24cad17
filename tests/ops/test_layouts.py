"""The layout helpers: every element has one owner, views keep owners, and choices use the tiles."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from abele.ir import DType, TensorType, f16, f32
from abele.machine.presets import bow
from abele.ops.plans.layouts import (
    align,
    among_readers,
    covers,
    even,
    flat,
    fullest,
    own,
    refined,
    same_elements,
    single,
    split_dims,
    view,
    whole,
    widened,
)
from abele.schedule.layout import Axis, Grid, Layout, Span
from tests.ops.harness import machine, tiles_of

shapes = st.lists(st.integers(0, 9), max_size=4).map(tuple)
filled = st.lists(st.integers(1, 12), max_size=4).map(tuple)
tiles = st.sampled_from([1, 2, 3, 7, 16])


@given(shapes, tiles, st.sampled_from([DType.F32, DType.F16, DType.BOOL]), st.integers(0, 5))
def test_each_element_has_one_owner(shape, count, dtype, first):
    type_, chip = TensorType(shape, dtype), machine(count)
    for layout in (flat(type_, chip, first), even(type_, chip, first), single(shape, count, first % count)):
        assert layout.is_partition
        owners = tiles_of(layout)  # fails unless one each
        assert ((owners >= 0) & (owners < count)).all()
        assert layout.elements().sum() == type_.size
        assert fullest(layout) == layout.elements().max()


@given(filled, tiles, st.data())
def test_split_dims_is_the_best_split(shape, count, data):
    grains = tuple(data.draw(st.integers(1, 3)) for _ in shape)
    grid = split_dims(shape, count, grains)
    assert grid.blocks <= count and tiles_of(own(grid, shape)).size == math.prod(shape)

    def work(parts):
        units = (math.ceil(n / g) for n, g in zip(shape, grains, strict=True))
        return math.prod(math.ceil(n / p) for n, p in zip(units, parts, strict=True))

    choices = [()]
    for n, g in zip(shape, grains, strict=True):
        choices = [(*c, p) for c in choices for p in range(1, -(-n // g) + 1) if math.prod(c) * p <= count]
    assert work([a.parts for a in grid.axes]) == min(map(work, choices))


def test_split_dims_keeps_and_names():
    grid = split_dims((64, 64), 16, names=("m", "n"), keep=(1,))
    assert [(a.name, a.parts) for a in grid.axes] == [("m", 16), ("n", 1)]
    assert split_dims((64, 64), 16, least=1024).blocks == 4
    assert split_dims((), 16).blocks == 1


@settings(max_examples=200)
@given(filled, tiles, st.data())
def test_a_view_keeps_the_owners(shape, count, data):
    layout = even(f32(*shape), machine(count))
    size, other, rest = math.prod(shape), [], math.prod(shape)
    while rest > 1 and len(other) < 4:
        factor = data.draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0]))
        other.append(factor)
        rest //= factor
    other.append(rest)
    seen = view(layout, other)
    if seen is not None:
        assert seen.shape == tuple(other) and math.prod(other) == size
        assert seen.is_partition == layout.is_partition
        np.testing.assert_array_equal(tiles_of(seen), tiles_of(layout))
        assert same_elements(layout, seen)


def test_views_that_exist():
    grid = Grid((Axis("a", 4, 4), Axis("b", 6, 1)), 16)
    layout = own(grid, (4, 6))
    assert view(layout, (24,)) is not None
    assert view(layout, (4, 2, 3)) is not None
    assert view(layout, (2, 12)) is None  # two rows of a tile's are not a row
    assert view(layout, (1, 4, 1, 6)) is not None
    assert view(layout, (5, 5)) is None
    rows = Layout(Grid((Axis("n", 24, 2, 6),), 16), (24,), (Span(0),))
    seen = view(rows, (4, 6))
    assert seen is not None and seen.is_partition
    np.testing.assert_array_equal(tiles_of(seen), tiles_of(rows))


@settings(max_examples=200)
@given(filled, tiles, st.data())
def test_align_reads_what_broadcasts(shape, count, data):
    layout = even(f32(*shape), machine(count))
    operand = tuple(data.draw(st.sampled_from([1, n])) for n in shape)[data.draw(st.integers(0, len(shape))) :]
    aligned = align(layout, shape, operand)
    assert aligned is not None and aligned.shape == operand
    numbers = np.arange(math.prod(operand)).reshape(operand)
    for block in range(layout.grid.blocks):
        expected = np.broadcast_to(numbers, shape)[layout.region(block)]
        read = np.broadcast_to(numbers[aligned.region(block)], expected.shape)
        np.testing.assert_array_equal(read, expected)


def test_align_gives_up_when_the_view_hides_the_dimensions():
    layout = flat(f32(6, 7), machine(16))
    assert align(layout, (6, 7), (6, 7)) is layout
    assert align(layout, (6, 7), (7,)) is None
    assert align(layout, (6, 7), ()) == whole((), layout.grid)


def test_widened():
    layout = even(f32(16, 3), machine(4), keep=(1,))
    assert covers(layout, 1) and not covers(layout, 0)
    wide = widened(layout, (16, 9))
    assert wide is not None and wide.is_partition and fullest(wide) == 36
    assert widened(layout, (9, 3)) is None


def test_big_tensors_use_the_whole_chip_and_small_ones_do_not():
    assert fullest(flat(f32(1472 * 100), bow)) == 100
    assert fullest(even(f16(64, 56, 56, 64), bow)) <= 1.1 * 64 * 56 * 56 * 64 / 1472 + 64
    assert flat(f32(8), bow).grid.blocks == 1
    assert flat(f32(64), bow).grid.blocks == 8


def test_choosing_is_quick_on_a_whole_chip():
    from abele.ops.plans import layouts

    layouts._best_parts.cache_clear()
    grid = split_dims((1472 * 7, 3071, 129, 17), bow.tiles)
    assert grid.blocks > 1400
    assert layouts._best_parts.cache_info().currsize < 2000


def test_what_many_tiles_read_lies_in_whole_blocks_among_them():
    """Weights of 64 × 64 half values, read in two halves by many tiles: blocks of 16 × 16, each within one half."""
    grid = Grid((Axis("m", 100, 20), Axis("o", 64, 2, 16), Axis("c", 64, 1, 16)), 64)
    home = among_readers(own(grid, (64, 64), (1, 2)), machine(64), DType.F16)
    assert home is not None and home.is_partition
    assert set(home.elements()) == {256}
    for block in range(home.grid.blocks):
        rows = home.region(block)[0]
        assert rows.start // 32 == (rows.stop - 1) // 32
    window = Layout(grid, (66, 64), (Span(1, 1, 0, 3), Span(2)))
    assert among_readers(window, machine(64), DType.F16) is None


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 5), st.integers(1, 5))
def test_refined_blocks_lie_within_blocks(rows, columns, a, b):
    grid = Grid((Axis("r", rows, min(a, rows)), Axis("c", columns, min(b, columns))), 64)
    coarse = own(grid, (rows, columns))
    fine = refined(coarse, machine(64), DType.F32, least=1)
    assert fine.is_partition
    owner = np.zeros((rows, columns), int)
    for block in range(grid.blocks):
        owner[coarse.region(block)] = block
    if fine.grid.axes[1].grain == 1:  # words of a long last dimension stay whole
        assert fullest(fine) <= fullest(coarse)
        assert all(len(np.unique(owner[fine.region(i)])) == 1 for i in range(fine.grid.blocks))

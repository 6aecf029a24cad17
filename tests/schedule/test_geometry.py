"""Closed-form geometry of layouts against looking at every element."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from abele.schedule import Axis, Grid, Layout, Span, spread
from abele.schedule.geometry import Windows, kept, near, overlap, sees, shared_out

TILES = 24


@st.composite
def layouts(draw):
    """A layout whose dimensions follow some axes of a grid one to one; blocks that differ in the others read alike."""
    axes, blocks = [], 1
    for i in range(draw(st.integers(1, 4))):
        size, grain = draw(st.integers(1, 24)), draw(st.sampled_from([1, 1, 2, 4]))
        parts = draw(st.integers(1, min(-(-size // grain), 4, TILES // blocks)))
        axes.append(Axis("abcd"[i], size, parts, grain))
        blocks *= parts
    grid = Grid(tuple(axes), TILES, draw(st.integers(0, 2 * TILES)))
    order = draw(st.permutations(range(len(axes))))
    follows = order[: draw(st.integers(1, len(axes)))]
    whole = draw(st.booleans())
    shape = (*(3,) * whole, *(axes[i].size for i in follows))
    return Layout(grid, shape, (*(Span(),) * whole, *map(Span, follows)))


def tiles_of(layout):
    """The tile of every element of a home."""
    owner = np.full(layout.shape, -1)
    for block in range(layout.grid.blocks):
        owner[layout.region(block)] = layout.grid.tile(block)
    return owner


def counted(read, home):
    """Elements of every block of a read that lie on its tile, looked up one by one."""
    owner = tiles_of(home).reshape(read.shape)
    blocks = range(read.grid.blocks)
    return [int((owner[read.region(block)] == read.grid.tile(block)).sum()) for block in blocks]


@settings(max_examples=80)
@given(read=layouts())
def test_a_shared_operand_lies_on_tiles_that_read_it(read):
    home = shared_out(read)
    if home is None:
        return
    assert home.is_partition and sees(read, home)
    assert kept(read, [home]).sum() == home.size
    assert kept(read, [home]).tolist() == counted(read, home)


def test_an_even_split_is_shared_out_evenly():
    grid = Grid((Axis("m", 64, 4), Axis("k", 96, 3, 16), Axis("n", 32, 2)), TILES)
    left, right = Layout(grid, (64, 96), (Span(0), Span(1))), Layout(grid, (96, 32), (Span(1), Span(2)))
    for read in (left, right):
        home = shared_out(read)
        assert home is not None and set(home.elements().tolist()) == {read.size // 24}
    made = Layout(grid, (64, 32), (Span(0), Span(2)))
    assert near(made) is None and near(shared_out(made)) == shared_out(made)
    assert shared_out(made).grid.axes[0].parts == 12  # the blocks of a sum share rows of their result


@settings(max_examples=80)
@given(read=layouts(), flat=st.booleans(), grain=st.sampled_from([1, 3, 4]), data=st.data())
def test_what_lies_there_is_counted_across_views(read, flat, grain, data):
    size = math.prod(read.shape)
    home = spread(size, TILES, grain)
    if not flat:
        cuts = [d for d in range(1, size + 1) if size % d == 0]
        rows = data.draw(st.sampled_from(cuts))
        parts = data.draw(st.integers(1, min(rows, TILES)))
        first = data.draw(st.integers(0, TILES))
        home = Layout(Grid((Axis("r", rows, parts),), TILES, first), (rows, size // rows), (Span(0), Span()))
    assert kept(read, [home]).tolist() == (counted(read, home) if sees(read, home) else [0] * read.grid.blocks)
    assert sees(read, home)  # whole rows and flat pieces are single runs


@given(dimensions=st.integers(0, 3), data=st.data())
def test_windows_that_overlap_are_found(dimensions, data):
    ends = st.tuples(st.integers(0, 6), st.integers(0, 6))
    boxes = data.draw(st.lists(st.tuples(*[ends] * dimensions), max_size=20))
    asked = data.draw(st.tuples(*[ends] * dimensions))
    windows = Windows(dimensions)
    for box in boxes:
        windows.add(box)
    assert windows.overlapping(asked).tolist() == [i for i, box in enumerate(boxes) if overlap(box, asked)]

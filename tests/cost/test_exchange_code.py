"""Exchange code: how many messages a block gets, counted over real regions, and what is assumed of the rest."""

from __future__ import annotations

import numpy as np
import pytest

from abele.charge.columns import messages
from abele.schedule.layout import Axis, Grid, Layout, Span, spread

TILES = 16


def cut(shape, parts, spans=None) -> Layout:
    axes = tuple(Axis(f"d{i}", size, p) for i, (size, p) in enumerate(zip(shape, parts, strict=True)))
    return Layout(Grid(axes, TILES), tuple(shape), spans or tuple(Span(i) for i in range(len(shape))))


def senders(home: Layout, read: Layout) -> int:
    """Blocks of the home that the busiest block of the read meets, by looking at every element."""
    owner = np.full(home.shape, -1)
    for block in range(home.grid.blocks):
        owner[home.region(block)] = block
    owner = owner.reshape(read.shape)
    return max(len(np.unique(owner[read.region(block)])) for block in range(read.grid.blocks))


@pytest.mark.parametrize(
    ("home", "read"),
    [
        (cut((8, 6), (4, 1)), cut((8, 6), (1, 3))),
        (cut((8, 6), (4, 2)), cut((8, 6), (2, 2))),
        (cut((8, 6), (4, 2)), cut((8, 6), (8, 2))),
        (spread(48, 8), cut((8, 6), (4, 1))),
        (spread(48, 4), cut((8, 6), (2, 1))),
    ],
)
def test_messages_come_from_the_tiles_that_a_block_meets(home, read):
    assert messages(home, read) == senders(home, read)


def test_a_window_over_parts_counts_one_more_at_most():
    """Three rows over parts of two may begin anywhere; that they never meet three is not seen."""
    home, read = cut((8, 6), (4, 1)), cut((8, 6), (8, 1), (Span(0, 1, -1, 3), Span(1)))
    assert senders(home, read) <= messages(home, read) <= senders(home, read) + 1


def test_a_flat_sum_takes_one_message_from_each_partial():
    """Slices of the sum are cut in the order in which the partials lie: each meets one block of each partial."""
    home, read = cut((3, 4, 4), (3, 2, 2)), Layout(spread(16, 4).grid, (3, 16), (Span(), Span(0)))
    assert messages(home, read) == 3


def test_a_flat_tensor_lies_as_its_readers_take_it():
    """Columns of a flat tensor meet every tile's elements; it may be spread in their order instead."""
    home, read = spread(64, 8), cut((8, 8), (1, 4))
    assert senders(home, read) == 8
    assert messages(home, read) == 2

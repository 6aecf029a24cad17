"""Columns kept as runs do what columns over tiles do."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from abele.charge.runs import Runs, added, largest

TILES = 90

NUMBERS = (0, 1, 2, 127, 128, 255, 32_767, 32_768, 70_000, 2**31 - 1, 2**31, 2**40, -1, -128, -129, -(2**31))
"""Few, so that neighbours are equal at times, at the ends of the integer types."""


def column(few: list[tuple[int, int]]) -> np.ndarray:
    return np.resize(np.repeat([v for v, _ in few], [n for _, n in few]), TILES).astype(np.int64)


columns = st.lists(
    st.lists(st.tuples(st.sampled_from(NUMBERS), st.integers(1, 20)), min_size=1, max_size=TILES).map(column),
    min_size=1,
    max_size=4,
)


@given(columns)
def test_runs_are_their_column(dense):
    for one in dense:
        runs = Runs.of(one)
        np.testing.assert_array_equal(runs.dense(), one)
        assert (runs.tiles, runs.max, runs.total) == (TILES, one.max(), one.sum())
        assert [runs.at(tile) for tile in range(TILES)] == one.tolist()
        stops, values = runs.runs()
        np.testing.assert_array_equal(np.repeat(values, np.diff(stops, prepend=0)), one)
        into = np.arange(TILES)
        runs.add_to(into, -2)
        np.testing.assert_array_equal(into, np.arange(TILES) - 2 * one)


@given(columns)
def test_runs_of_several_columns(dense):
    runs = [Runs.of(one) for one in dense]
    np.testing.assert_array_equal(largest(runs).dense(), np.max(dense, axis=0))
    terms = [(one, times) for times, one in enumerate(runs, 2)]
    np.testing.assert_array_equal(added(terms).dense(), sum(one * times for times, one in enumerate(dense, 2)))


def test_equal_neighbours_are_one_run_however_many_tiles_there_are():
    for tiles in (100, 10_000):
        halves = Runs.of(np.repeat([1, 5], tiles // 2))
        ends = Runs.of(np.where(np.arange(tiles) < 3, 7, 0))
        assert len(halves.stops) == len(ends.stops) == 2
        assert len(added([(halves, 1), (ends, 1)]).stops) == 3
        assert len(largest([halves, halves]).stops) == 2


def test_an_even_split_takes_hardly_more_memory_over_more_tiles():
    """Parts of 2 and 3 that alternate: thousands of runs, and far less than a byte for each tile."""
    sizes = []
    for tiles in (3_000, 12_000):
        parts = np.diff(np.arange(tiles + 1) * (7 * tiles // 3 + 1) // tiles)
        runs = Runs.of(parts)
        np.testing.assert_array_equal(runs.dense(), parts)
        assert isinstance(runs.values, bytes)
        sizes.append(len(runs.values))
    assert sizes[1] - sizes[0] < 9_000 / 20

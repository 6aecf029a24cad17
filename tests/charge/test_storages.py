"""First fit: nothing lies over anything that lives at the same time, and nothing lies higher than it must."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from abele.charge.storages import first_fit

intervals = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(1, 40)), min_size=1, max_size=25)


@given(intervals)
def test_what_lives_together_lies_apart_and_as_low_as_it_can(drawn):
    first, last = np.array([sorted(each[:2]) for each in drawn]).T
    size = np.array([each[2] for each in drawn])
    address = first_fit(first, last, size)
    assert (address >= 0).all()
    for i in range(len(drawn)):
        beside = [
            (address[j], address[j] + size[j])
            for j in range(len(drawn))
            if j != i and first[j] <= last[i] and first[i] <= last[j]
        ]
        assert all(end <= address[i] or address[i] + size[i] <= start for start, end in beside)
        # below it something stands that was there when it was born
        ends = [e for s, e in beside]
        assert address[i] == 0 or address[i] in ends or address[i] == _always(first, last, size)


def _always(first, last, size):
    kept = (first == first.min()) & (last == last.max())
    return size[kept].sum()


def test_a_hole_that_is_large_enough_is_used_first():
    first, last, size = np.array([[0, 9, 8], [1, 4, 4], [2, 9, 4], [5, 6, 3], [6, 9, 5]]).T
    assert first_fit(first, last, size).tolist() == [0, 8, 12, 8, 16]

"""The slots of a pipeline: against a loop over all of them, and by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.charge.pipeline import first_part, pipelined
from abele.schedule.records import Repeat


def slots(kind, stages, count, work, wait=0.0):
    """The slots of a loop, and how long they take if each is looked at for itself."""
    loop = Repeat("body", count, (), (), stages, pipeline=kind)
    backward = any(back for _, _, back in work)
    halves = 2 if kind == "interleaved" and backward else 1
    length, busiest = 0.0, []
    for half in range(halves):
        by_ipu = {}
        for place, cycles in work.items():
            if first_part(place, loop, halves) % halves == half:
                by_ipu[place[0]] = by_ipu.get(place[0], 0.0) + cycles
        busiest.append(max(by_ipu.values(), default=0.0) + wait)
    length = sum(busiest)
    runs = {}
    for place, cycles in work.items():
        for turn in range(count):
            part = runs.setdefault(first_part(place, loop, halves) + halves * turn, {})
            part[place[0]] = part.get(place[0], 0.0) + cycles
    parts = [max(runs.get(i, {}).values(), default=0.0) + wait for i in range(max(runs) + 1)]
    return pipelined(loop, work, length, wait), parts


def places(stages, forward, backward=None):
    work = {(stage, stage, False): forward[stage] for stage in range(stages)}
    return work | ({(stage, stage, True): backward[stage] for stage in range(stages)} if backward else {})


@given(
    kind=st.sampled_from(["grouped", "interleaved"]),
    stages=st.integers(2, 6),
    count=st.integers(1, 30),
    train=st.booleans(),
    share=st.booleans(),
    seed=st.integers(0, 99),
)
def test_all_slots_are_those_of_the_stages_at_work(kind, stages, count, train, share, seed):
    draw = np.random.default_rng(seed).integers(1, 50, (2, stages)).astype(float).tolist()
    work = places(stages, draw[0], draw[1] if train else None)
    if share:  # the last stage is on the IPU of the first, as where a tied embedding is
        work = {(ipu % (stages - 1), stage, back): cycles for (ipu, stage, back), cycles in work.items()}
    found, parts = slots(kind, stages, count, work, wait=3.0)
    assert np.diff(found.starts()) == pytest.approx(parts)
    assert found.bubble == pytest.approx(sum(parts) - count * found.length)
    assert found.bubble >= -1e-6


def test_by_hand():
    """Alike stages, the backward of twice the forward: S - 1 slots more than micro-batches, in parts."""
    grouped, _ = slots("grouped", 4, 10, places(4, [1.0] * 4, [2.0] * 4))
    assert (grouped.length, grouped.ramp) == (3.0, 6)
    assert grouped.bubble == pytest.approx(3 * 1.0 + 3 * 2.0)
    forward, _ = slots("grouped", 4, 10, places(4, [1.0] * 4))
    assert (forward.length, forward.ramp, forward.bubble) == (1.0, 3, pytest.approx(3.0))
    uneven, _ = slots("grouped", 3, 5, places(3, [7.0, 1.0, 1.0]))
    assert uneven.bubble == pytest.approx(1.0 + 1.0), "while it drains, the slow stage is done"

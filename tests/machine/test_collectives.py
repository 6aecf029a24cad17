"""Collectives on the topology: by hand, limits, symmetries, and that the fastest algorithm is taken."""

from __future__ import annotations

from itertools import pairwise

import pytest

from abele.errors import InvalidOption
from abele.machine import find_system
from abele.machine.collectives import KINDS, collective, group_size, sent_bytes

POD = find_system("bow-pod256")
LINKS = 2 * 16e9 * 0.85
STEP = 0.6e-6 + 600 / 1.85e9
"""Seconds of a step of a ring beside its bytes: a link and a sync between IPUs."""


def seconds(*asked, **groups) -> float:
    return collective(*asked, **groups).seconds


def test_a_ring_by_hand() -> None:
    spread = 15 * (1e9 / 16 / LINKS + STEP)
    assert seconds(POD, "reduce_scatter", 1e9, 16) == pytest.approx(spread)
    assert seconds(POD, "all_gather", 1e9, 16) == pytest.approx(spread)
    assert seconds(POD, "all_reduce", 1e9, 16) == pytest.approx(2 * spread)
    assert seconds(POD, "broadcast", 1e9, 16) == pytest.approx(1e9 / LINKS + 15 * STEP)
    # 16 members: 64 steps of the way in all from each, in both directions, a sixteenth of the data each
    assert seconds(POD, "all_to_all", 1e9, 16) == pytest.approx(64 * 1e9 / 16 / 2 / LINKS + 8 * STEP)


def test_domains_by_hand() -> None:
    """Four domains of 64: rings inside, and what each IPU then holds over the gateways, shared by four of them."""
    sync = 17 * 2 * 15e-9  # 1 + 64 / 4 hops, out and back: longer than 600 cycles
    inside = 63 * (1e9 / 64 / LINKS + 0.6e-6 + sync)
    step = 2.5e-6 + sync + 2 * 2.5e-6  # the data and the sync go over the gateways
    across = 2 * (3 / 4 * 1e9 / 64 / (25e9 / 4) + 2 * step)
    found = collective(POD, "all_reduce", 1e9, 256)
    assert found.algorithm == "ring + halving"
    assert found.seconds == pytest.approx(2 * inside + across, rel=1e-5)
    assert found.seconds == min(found.alternatives.values())


@pytest.mark.parametrize("kind", KINDS)
def test_more_bytes_and_more_members_take_longer(kind: str) -> None:
    times = [seconds(find_system("bow-64000"), kind, 1e9, n) for n in (1, 2, 4, 16, 64, 128, 256, 64_000)]
    assert times[0] == 0 and all(a < b for a, b in pairwise(times))
    assert seconds(POD, kind, 0, 8) == 0
    assert seconds(POD, kind, 2e9, 8) > seconds(POD, kind, 1e9, 8)


def test_thousands_of_members_do_not_take_thousands_of_steps() -> None:
    found = collective(find_system("bow-64000"), "all_reduce", 4.0, 64_000)
    assert found.algorithm == "ring + halving" and found.seconds < 1e-3 < 1 < found.alternatives["ring"]


def test_rings_share_the_ladder() -> None:
    one = seconds(POD, "all_reduce", 1e9, 2)
    # replicas of four IPUs: four rings at once in the two columns of links
    assert seconds(POD, "all_reduce", 1e9, 4, 4) == pytest.approx(2 * (3 / 4) / (1 / 2) * one, rel=1e-3)


def test_a_ring_alone_has_the_ladder_to_itself() -> None:
    """Of replicas of 8 IPUs one takes part: one ring, not four in each column, but as far from member to member."""
    alone, all_ = (seconds(POD, "reduce_scatter", 1e9, 8, 8, active=n) for n in (1, 8))
    step = 4 * 0.6e-6 + 17 * 2 * 15e-9
    assert alone == pytest.approx(7 * (1e9 / 8 / LINKS + step), rel=1e-6)
    assert all_ == pytest.approx(7 * (1e9 / 8 / (LINKS / 4) + step), rel=1e-6)
    assert seconds(POD, "reduce_scatter", 1e9, 8, 8) == all_
    # over the gateway of a machine one of its four IPUs goes alone
    across = [collective(POD, "all_reduce", 1e9, 32, 8, size=4, stride=8, active=n).seconds for n in (1, 8)]
    assert across[0] <= across[1]


def test_groups() -> None:
    consecutive = seconds(POD, "all_reduce", 1e9, 16, size=4)
    assert consecutive == seconds(POD, "all_reduce", 1e9, 4)
    orthogonal = seconds(POD, "all_reduce", 1e9, 16, size=4, stride=4)
    assert orthogonal == pytest.approx(2 * consecutive, rel=1e-3)  # four groups, one between the other
    # one member in each domain: nothing but gateways
    assert collective(POD, "all_reduce", 1e9, 256, size=4, stride=64).algorithm in ("ring", "halving")
    assert group_size(16) == 16 and group_size(16, 4, 4) == 4
    for size, stride in ((3, 1), (4, 8), (-1, 1), (4, 0)):
        with pytest.raises(InvalidOption, match="divide"):
            group_size(16, size, stride)
    with pytest.raises(InvalidOption, match="all_reduce"):
        collective(POD, "all_reduction", 1.0, 4)


def test_bytes_sent() -> None:
    assert sent_bytes("all_reduce", 100.0, 4) == 150.0
    assert sent_bytes("reduce_scatter", 100.0, 4) == sent_bytes("all_gather", 100.0, 4) == 75.0


def test_announced_and_largest_systems() -> None:
    for name, ipus, exaflops in (("m2000-64000", 64_000, 16), ("bow-64000", 64_000, 22.3)):
        system = find_system(name)
        assert system.ipus == ipus and system.peak_flops() == pytest.approx(exaflops * 1e18, rel=0.01)
    good = find_system("good")
    assert good.ipus == 8192 and good.streaming_memory() >= 4e15
    assert 2 * good.peak_flops() > 10e18  # announced in 8 bits, twice the rate of half
    assert {good.provenance(n).confidence for n in good.constants} == {"assumed"}

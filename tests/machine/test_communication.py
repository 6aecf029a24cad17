"""Exchange, sync, links and energy: limits, symmetries and the figures that are published."""

import numpy as np
import pytest

from abele.errors import InvalidOption
from abele.machine import find_system, gc200
from abele.machine.energy import Work, energy
from abele.machine.exchange import (
    exchange_code_bytes,
    exchange_cycles,
    hop_sync_cycles,
    host_seconds,
    link_seconds,
    pairs_share,
    streaming_seconds,
    sync_cycles,
)


def test_exchange() -> None:
    assert exchange_cycles(gc200, 0) == 0
    start, words = gc200.exchange_start_cycles, 1147  # 4,096 bytes at 0.28 cycles each
    assert exchange_cycles(gc200, 4096) == start + words
    assert exchange_cycles(gc200, 4096, paired=True) == start + 574
    assert exchange_cycles(gc200, 8, 4096) == start + words
    assert exchange_cycles(gc200, 4096, messages=64) == start + words  # instructions are given while words arrive
    assert exchange_cycles(gc200, 4096, messages=1024) == start + 2 * 1024  # of one word each
    assert exchange_code_bytes(gc200, received=2) == 2 * 8  # one merged instruction of two words for each
    assert exchange_code_bytes(gc200, sent=2, sent_bytes=40_000) == 3 * 4  # 4,096 words at a time
    assert exchange_code_bytes(gc200, sent=5, sent_bytes=600) == 5 * 4
    received, sent = np.array([0, 0, 5, 4096]), np.array([0, 9, 0, 100])
    together = exchange_cycles(gc200, received, sent)
    assert [exchange_cycles(gc200, int(r), int(s)) for r, s in zip(received, sent)] == list(together)


@pytest.mark.parametrize(("ipus", "cycles"), [(2, 40), (4, 80), (16, 200), (64, 679)])
def test_hops_of_a_sync(ipus: int, cycles: int) -> None:
    """Published for a clock of 1.33 GHz."""
    system = find_system("pod64").derive("x", chip=gc200.derive("x", clock_hz=1.33e9))
    assert hop_sync_cycles(system, ipus) == cycles


def test_sync() -> None:
    system = find_system("pod256")
    assert sync_cycles(system) == gc200.sync_cycles
    assert sync_cycles(system, 4) == 600
    assert sync_cycles(system, 256) > sync_cycles(system, 64) > 600
    assert sync_cycles(find_system("m2000-64000"), 64_000) == sync_cycles(system, 256)  # domains sync side by side


def test_links() -> None:
    system = find_system("bow-pod128")
    megabyte = 1e6
    assert link_seconds(system, megabyte, 3, 3) == 0
    pair, rung, far = (link_seconds(system, megabyte, 0, ipu) for ipu in (1, 2, 5))
    assert pair < rung < far
    assert link_seconds(system, megabyte, 5, 0) == far
    assert link_seconds(system, megabyte, 0, 64) > far  # another domain: over the gateways
    assert megabyte / pair < 4 * 16e9
    with pytest.raises(InvalidOption, match="IPU 128"):
        link_seconds(system, megabyte, 0, 128)


def test_host_and_streaming() -> None:
    system = find_system("m2000")
    assert host_seconds(system, 0) == 0
    assert host_seconds(system, 20e9) == pytest.approx(1.0, rel=1e-3)
    assert streaming_seconds(system, 5e9) == pytest.approx(1.0)  # four IPUs share 20 GB/s


def test_energy_is_power_times_time_and_its_parts_add_up() -> None:
    system = find_system("bow-2000")
    used = energy(system, 2.0, Work(macs_f16=1e14, sram_bytes=1e13, exchange_bytes=1e12, link_bytes=1e10))
    assert used.joules == 2500
    assert sum(used.parts.values()) == pytest.approx(used.joules)
    assert used.scale == 1.0 and used.parts["rest"] > 0
    assert "assumed" in used.basis
    full = energy(system, 1e-9, Work(macs_f32=1e14))
    assert full.scale < 1 and sum(full.parts.values()) == pytest.approx(full.joules)
    assert energy(system, 0.0).joules == 0


def test_pairs_on_a_bus_share_what_whole_runs_of_blocks_read() -> None:
    assert [bool(pairs_share(run, 12, 2)) for run in (1, 2, 3, 4, 12)] == [False, True, False, True, True]
    assert pairs_share(3, 3, 2, first=1)  # all blocks read the same, wherever they lie
    assert not pairs_share(2, 12, 2, first=1)
    np.testing.assert_array_equal(pairs_share(np.array([1, 2, 3]), np.array([1, 12, 3]), 2), [False, True, True])

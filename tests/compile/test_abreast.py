"""Steps that start together: independent ones come next to one another, numbers stay, syncs are saved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from abele.charge import Charged
from abele.compile import abreast as module
from abele.compile.abreast import side_by_side
from abele.compile.lower import lower
from abele.compile.passes.base import run_passes
from abele.compile.passes.update import Optimiser
from abele.compile.pipelines import CompileOptions, Way, passes_for
from abele.engine.reference import run_reference
from abele.ir import Host
from abele.machine.presets import gc200
from abele.machine.system import one_ipu
from abele.schedule import Call, Schedule, Step, check
from abele.schedule.records import abreast
from tests.compile.nets import layered, parameters, random_inputs

SYSTEM = one_ipu(gc200.derive("few", tiles=8))
NUMBERS = {"learning_rate": 0.1, "momentum": 0.9, "dampening": 0.0, "weight_decay": 0.0}


def training(outline: bool = False) -> Schedule:
    """Three layers, as they are lowered."""
    graph = layered(3, width=12)
    spec = Optimiser("sgd", (parameters(graph),), (tuple(NUMBERS.items()),), (("use_momentum", True),))
    options = CompileOptions(SYSTEM, optimiser=spec, outline=outline)
    return lower(run_passes(graph, passes_for(options, Way("best", calls=False)))[0], SYSTEM)


def groups(schedule: Schedule) -> list[list[Step]]:
    found = []
    for function in schedule.all_functions():
        for i, (first, last) in enumerate(abreast(function.nodes)):
            if i == first < last:
                found.append([n for n in function.nodes[first : last + 1] if isinstance(n, Step)])
    return found


@pytest.mark.parametrize("outline", [False, True])
def test_independent_steps_start_together(outline):
    before = training(outline)
    after = check(side_by_side(before, SYSTEM.chip.tile_memory))
    found = groups(after)
    assert found and not groups(before)
    assert any({s.operation for s in group} >= {"sgd"} and len(group) > 4 for group in found)
    for group in found:
        assert not {n for s in group for n in s.makes} & {n for s in group for n in s.reads}
    for one, other in zip(before.all_functions(), after.all_functions(), strict=True):
        assert sorted(n.makes for n in one.nodes) == sorted(n.makes for n in other.nodes)
        assert [n for n in one.nodes if isinstance(n, Call)] == [n for n in other.nodes if isinstance(n, Call)]


def test_numbers_stay_and_syncs_are_saved():
    before = training()
    after = side_by_side(before, SYSTEM.chip.tile_memory)
    x, *states = random_inputs(layered(3, width=12))
    zeros = [np.zeros(v.shape, np.float32) for v in states]
    results = []
    for schedule in (before, after):
        named = {p.name: v for p, v in zip(layered(3, width=12).input_ports[1:], states, strict=True)}
        named |= {f"optimiser.velocity.{p.name}": v for p, v in zip(layered(3).input_ports[1:], zeros, strict=True)}
        host = Host({"x": [x]})
        done = run_reference(schedule, [[named[p.name] for p in schedule.input_ports]], [host])
        results.append(done.next_state[0])
    for name, value in results[0].items():
        np.testing.assert_array_equal(value, results[1][name])
    one, other = (Charged(s, SYSTEM) for s in (before, after))
    assert other.cycles.sync < 0.8 * one.cycles.sync
    assert other.cycles.compute == one.cycles.compute and other.cycles.exchange <= one.cycles.exchange
    # updates still happen in place: nothing is copied at the end
    assert len(other.live.final) == len(one.live.final)
    assert other.memory.max < 1.2 * one.memory.max


def test_what_starts_together_is_bounded(monkeypatch):
    schedule = training()
    assert not groups(side_by_side(schedule, 0))
    monkeypatch.setattr(module, "MOST", 3)
    assert max(map(len, groups(side_by_side(schedule, SYSTEM.chip.tile_memory)))) == 3
    monkeypatch.setattr(module, "REACH", 0)
    assert not groups(side_by_side(schedule, SYSTEM.chip.tile_memory))


def test_other_places_and_the_host_stay_apart():
    schedule = training()
    elsewhere = tuple(
        replace(n, origin=replace(n.origin, stage=i % 2)) if isinstance(n, Step) else n
        for i, n in enumerate(schedule.main.nodes)
    )
    staged = side_by_side(replace(schedule, main=replace(schedule.main, nodes=elsewhere)), SYSTEM.chip.tile_memory)
    for group in groups(staged):
        assert len({s.origin.stage for s in group}) == 1
        assert not any(s.operation.startswith("host") for s in group)

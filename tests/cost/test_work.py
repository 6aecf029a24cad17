"""What a program did, counted for energy and for the share of the peak: matrix unit, streams, the load program."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest

from abele.compile import CompileOptions, lower, passes_for
from abele.compile.passes.base import run_passes
from abele.compile.passes.dead_code import DeadCode
from abele.compile.passes.hoist import Hoist
from abele.compile.passes.update import Optimiser
from abele.cost import cost
from abele.engine.reference import run_load, run_reference
from abele.errors import Bug, InvalidOperand
from abele.ir import Builder, Port, evaluate, f16, f32
from abele.machine import bow, find_system, one_ipu
from abele.schedule import check

sys.path.append(str(Path(__file__).parents[1] / "schedule"))
from handmade import dense, loop

SMALL = one_ipu(bow.derive("small", tiles=16))


def charged(name, types, attributes=None, system=SMALL):
    b = Builder("main")
    operands = [b.input(t, "data", f"x{i}") for i, t in enumerate(types)]
    outputs = b.emit(name, operands, attributes or {})
    graph = b.finish(outputs, [Port("anchor", f"y{i}") for i in range(len(outputs))])
    return cost(check(lower(graph, system)), system)


def joules(profile, part):
    """One part of the energy before it was scaled down to the average power."""
    return profile.energy.parts[part] / profile.energy.scale


def test_attention_runs_on_the_matrix_unit():
    profile = charged("attention", [f16(1, 4, 64, 32)] * 3, {"scale": 0.2})
    assert joules(profile, "matrix") == pytest.approx(profile.flops / 2 * SMALL.chip.joules_per_mac_f16)
    assert joules(profile, "vector") == 0
    assert profile.peak_flops == SMALL.chip.peak_flops("f16")


def test_products_that_the_matrix_unit_takes():
    image = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
    for name, types, attributes in (
        ("matmul", [f16(64, 64), f16(64, 64)], {}),
        ("conv", [f16(4, 32, 8, 8), f16(32, 32, 3, 3)], image),
    ):
        profile = charged(name, types, attributes)
        assert joules(profile, "matrix") > 0 == joules(profile, "vector"), name
    depthwise = charged("conv", [f16(4, 32, 8, 8), f16(32, 1, 3, 3)], image | {"groups": 32})
    assert depthwise.flops > 0 == joules(depthwise, "matrix")


@pytest.mark.parametrize(("type_", "dtype"), [(f32, "f32"), (f16, "f16")])
def test_without_products_the_peak_is_that_of_the_largest_tensor(type_, dtype):
    profile = charged("exp", [type_(64, 64)])
    assert profile.peak_flops == SMALL.chip.peak_flops(dtype)
    assert joules(profile, "matrix") == 0 < joules(profile, "vector")


def test_streams_take_energy():
    """Three turns of the loop load and store 12 floats each; main itself exchanges nothing with the host."""
    system = one_ipu(bow.derive("small", tiles=8))
    profile = cost(loop(size=12, count=3, tiles=8), system)
    assert joules(profile, "streaming") == pytest.approx(3 * 2 * 48 * system.joules_per_streaming_byte)
    data = cost(dense(tiles=8), system)  # the port x is data: 4 x 6 halves in, 4 x 5 out
    ends = 4 * 6 * 2 + 4 * 5 * 2
    assert joules(data, "streaming") == pytest.approx(ends * system.joules_per_streaming_byte)


def test_offloaded_states_take_energy_and_may_be_more_than_there_is_room_for():
    b = Builder("net")
    x, w = b.input(f32(4, 6), "data", "x"), b.input(f32(6, 6), "state", "w")
    y = b.matmul(x, w)
    graph = b.finish([b.reduce_sum(b.mul(y, y), axes=(0, 1))], [Port("loss", "loss")])
    found = []
    for offload in (False, True):
        options = CompileOptions(SMALL, optimiser=Optimiser("adam", (("w",),)), offload=offload)
        schedule = lower(run_passes(graph, passes_for(options))[0], SMALL)
        remote = [s for _, s in schedule.steps() if s.operation.startswith("remote")]
        moved = sum(u.type.bytes for s in remote for u in (s.results or s.operands))
        assert (moved > 0) == offload
        found.append((moved, joules(cost(schedule, SMALL), "streaming")))
    (_, without), (moved, streamed) = found
    assert streamed - without == pytest.approx(moved * SMALL.joules_per_streaming_byte)
    tight = cost(schedule, SMALL.derive("tight", streaming_bytes=100))
    assert any("streaming memory take" in note for note in tight.notes)


def test_a_step_of_no_known_operation_is_a_bug():
    schedule = dense(tiles=8)
    first, *others = schedule.main.nodes
    main = dataclasses.replace(schedule.main, nodes=(dataclasses.replace(first, operation="mystery"), *others))
    with pytest.raises(Bug, match="mystery"):
        cost(dataclasses.replace(schedule, main=main), one_ipu(bow.derive("small", tiles=8)))


def hoisted(replicas=1):
    """A product with a weight that is squared and scaled first: the compiler does that when weights are loaded."""
    b = Builder("net")
    x, w = b.input(f32(5, 6), "data", "x"), b.input(f32(6, 4), "state", "w")
    y = b.matmul(x, b.mul(b.mul(w, w), b.sigmoid(w)))
    graph = b.finish([y], [Port("anchor", "y")])
    system = find_system("bow-2000").derive("small", chip=SMALL.chip)
    after, _ = run_passes(graph, [Hoist(), DeadCode()])
    return graph, check(lower(after, system, replicas=replicas)), system


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_load_program_runs_before_the_reference_and_is_said_not_to_be_charged(replicas):
    graph, schedule, system = hoisted(replicas)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs)
    made = run_load(schedule, {"w": w})
    assert list(made) == ["hoisted.0.w"]
    inputs = [made[port.name] if port.kind == "state" else x for port in schedule.input_ports]
    run = run_reference(schedule, [inputs] * replicas)
    for replica in range(replicas):
        have = run.outputs[replica][0]
        np.testing.assert_allclose(have.reshape(5, 4), evaluate(graph, [x, w])[0], rtol=1e-5, atol=1e-5)
    assert any("when weights are loaded" in n for n in cost(schedule, system).notes)
    with pytest.raises(InvalidOperand, match="w is read when weights are loaded"):
        run_load(schedule, {})
    assert run_load(dense(), {}) == {}

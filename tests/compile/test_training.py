"""Whole training programs through compiler and engine: the options change where things lie, never the numbers."""

from __future__ import annotations

import numpy as np
import pytest

from abele.compile import CompileOptions, compile_graph
from abele.compile.passes.update import Optimiser
from abele.cost import cost
from abele.engine import Engine
from abele.errors import InvalidOption
from abele.machine import find_system
from abele.ops.plans.planning import PlanOptions
from abele.schedule.records import PIPELINES

from .nets import layered, parameters, random_inputs

ADAM = (("beta1", 0.9), ("beta2", 0.99), ("eps", 1e-6), ("weight_decay", 0.0))


LAMB = (*ADAM[:3], ("weight_decay", 0.1), ("max_weight_norm", 1.0))


def train(steps=3, kind="adam", clip=0.0, **changes):
    """Losses and weights after some steps, and the profile."""
    graph = layered(2, width=32, batch=4)
    spec = Optimiser(kind, (parameters(graph),), (LAMB if kind == "lamb" else ADAM,), max_grad_norm=clip)
    options = CompileOptions(find_system("m2000"), optimiser=spec, accumulation=4, **changes)
    executable = compile_graph(graph, options)
    engine = Engine(executable.schedule, threads=1)
    for port, value in zip(graph.input_ports, random_inputs(graph), strict=True):
        if port.kind == "state":
            engine.write(port.name, value)
    engine.write("learning_rate.0", np.float32(0.01))
    shape = (steps, 4, options.replicas, 4, 32)
    data = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    losses = np.array([engine.run({"x": batch})["loss"] for batch in data])
    weights = {name: engine.read(name) for name in parameters(graph)}
    return losses, weights, cost(executable.schedule, options.system, samples=16)


@pytest.mark.parametrize(
    "changes",
    [
        {"offload": True},
        {"recompute": "layers"},
        {"recompute": "standard"},
        {"recompute": "standard", "outline": False},
        {"recompute": "recompute_all"},
        {"recompute": "pipeline", "stages": 2, "split": True},
        {"stages": 2, "split": True},
        {"offload_weights": True},
        {"offload_activations": True, "stages": 2, "split": True},
        {"offload_weights": True, "offload_activations": True, "io_tiles": 32, "overlap": ("host", "streaming")},
        {"phased": "serial", "stages": 2, "split": True, "recompute": "standard"},
        {"phased": "parallel", "stages": 3, "split": True, "offload": True},
        {"stages": 2, "split": True, "pipeline": "interleaved"},
        {"stages": 2, "split": True, "pipeline": "sequential"},
        {"outline": False},
        {"fuse": False},
        {"accumulator": "f32"},
    ],
    ids=lambda c: "-".join(c),
)
def test_options_keep_the_numbers(changes):
    losses, weights, _ = train()
    other_losses, other_weights, _ = train(**changes)
    np.testing.assert_allclose(other_losses, losses, rtol=1e-5)
    for name, value in weights.items():
        np.testing.assert_allclose(other_weights[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["adam", "lamb"])
@pytest.mark.parametrize(
    "changes",
    [
        {"shard": 1},
        {"shard": 1000, "offload": True, "clip": 0.01},
        {"shard": 1, "stages": 2, "split": True, "replicas": 2},
        {"shard": 30, "replicas": 3, "clip": 0.01},
        {"shard": 1, "shard_over": 2, "replicas": 4, "clip": 0.01},
    ],
    ids=str,
)
def test_sharding_keeps_the_numbers(kind, changes):
    """Three replicas do not divide the 1024 elements of a weight: the last part is filled up."""
    changes = {"replicas": 4, **changes}
    losses, weights, _ = train(
        kind=kind, **{k: v for k, v in changes.items() if k not in ("shard", "shard_over", "offload")}
    )
    other_losses, other_weights, _ = train(kind=kind, **changes)
    np.testing.assert_allclose(other_losses, losses, rtol=1e-5)
    for name, value in weights.items():
        np.testing.assert_allclose(other_weights[name], value, rtol=1e-4, atol=1e-6)


def test_sharded_state_takes_a_part_of_the_tiles_and_of_the_streaming_memory():
    kept = [train(1, replicas=4, shard=shard)[2].memory.always["state"].sum() for shard in (0, 1)]
    weights = 4 * 2 * (32 * 32 + 32)
    assert kept[0] - kept[1] == pytest.approx(2 * weights * 3 / 4, rel=0.01)
    streamed = [
        sum(s.cycles.host for s in train(1, replicas=4, offload=True, shard=shard)[2].steps if "remote" in s.name)
        for shard in (0, 1)
    ]
    assert streamed[1] == pytest.approx(streamed[0] / 4, rel=0.01)


def test_sharding_exchanges_parts_in_place_of_wholes():
    """A reduce-scatter and an all-gather move what the all-reduce did; equal ones in a row are done as one."""
    profile = train(1, replicas=4, shard=1)[2]
    names = [s.name for s in profile.steps]
    assert "all_reduce" not in names
    assert names.count("reduce_scatter") == names.count("all_gather") == names.count("replica_shard") == 4
    whole = train(1, replicas=4)[2]
    assert profile.cycles.links == pytest.approx(whole.cycles.links, rel=0.05)


def test_gradients_are_clipped_where_they_lie():
    """Over the links go the sums of squares and the factor, not the gradients."""
    moved = [
        sum(step.linked for step in train(1, stages=2, split=True, clip=clip)[2].steps if step.function == "main")
        for clip in (0.0, 0.5)
    ]
    assert 0 < moved[1] - moved[0] < 4 * 8 * 2


def test_as_the_vendor_has_it_each_weight_is_exchanged_alone():
    """PopART merges neither reduce-scatters nor all-gathers by itself: each pays its own steps."""
    one = {"replicas": 4, "shard": 1}
    joined, alone = (train(1, plan=PlanOptions(0.6, planner), **one)[2] for planner in ("best", "poplibs"))
    spent = [
        sum(step.cycles.links for step in profile.steps if step.name in ("reduce_scatter", "all_gather"))
        for profile in (joined, alone)
    ]
    # four weights: a reduce-scatter and an all-gather of each has the three steps of a ring of four to itself
    step = 0.6e-6 * 1.33e9 + 600
    assert spent[1] - spent[0] == pytest.approx(2 * (4 - 1) * 3 * step, rel=0.01)


def test_offloaded_state_leaves_the_tiles_and_costs_time():
    _, _, near = train(1)
    _, _, far = train(1, offload=True)
    assert far.memory.always["state"].sum() < near.memory.always["state"].sum() / 2
    assert far.cycles.host > near.cycles.host


def test_a_pipeline_charges_its_bubble():
    _, _, profile = train(1, stages=2, split=True)
    assert profile.ipus == 2
    assert profile.cycles.bubble > 0


def test_kinds_of_pipeline():
    """By halves fewer micro-batches are stashed and imbalance costs more; one by one nothing overlaps."""
    kinds = {kind: train(1, stages=2, split=True, pipeline=kind, beside=False)[2] for kind in PIPELINES}
    grouped, interleaved, sequential = (kinds[kind] for kind in ("grouped", "interleaved", "sequential"))
    (fold,) = sequential.timeline.folds
    assert fold.ramp == 0 and fold.length == pytest.approx(4 * fold.slot, rel=0.01)  # and what is carried
    assert sequential.cycles.bubble == 0
    assert grouped.timeline.folds[0].slot < interleaved.timeline.folds[0].slot < sequential.timeline.folds[0].slot
    first = [p.memory.totals[0].max() for p in (grouped, interleaved, sequential)]
    assert first[0] > first[1] > first[2]
    with pytest.raises(InvalidOption, match=r"no pipeline 'grouping'.*grouped"):
        CompileOptions(find_system("m2000"), pipeline="grouping")


def test_weights_and_activations_leave_the_tiles():
    """Of 17 KiB of weights a module's alone are on the tiles at a time; it all comes back from streaming memory."""
    _, _, near = train(1)
    _, _, far = train(1, offload_weights=True, offload_activations=True)
    moments = [sum(p.memory.always[kind].sum() for kind in ("state",)) for p in (near, far)]
    assert moments[1] < moments[0] - 2 * 4 * 32 * 32
    moved = {s.name for s in far.steps if s.cycles.host and s.name.startswith("remote")}
    assert moved == {"remote_load", "remote_store"}
    assert far.cycles.host > near.cycles.host
    assert all(s.cycles.host == 0 for s in near.steps if s.name.startswith("remote"))


def test_overlapped_transfers_cost_what_is_waited_for():
    asked = {"offload_weights": True, "offload_activations": True}
    _, _, apart = train(1, **asked, io_tiles=32)
    _, _, beside = train(1, **asked, io_tiles=32, overlap=("host", "streaming"))
    assert beside.cycles.host < apart.cycles.host
    assert beside.cycles.total < apart.cycles.total
    assert beside.cycles.exchange > apart.cycles.exchange  # from the tiles set aside to those that compute
    assert beside.memory.totals.shape == (1, find_system("m2000").chip.tiles - 32)
    rows = sum(s.cycles.total * s.times for s in beside.steps)
    assert rows == pytest.approx(beside.cycles.total)
    with pytest.raises(InvalidOption, match="tiles of their own"):
        CompileOptions(find_system("m2000"), overlap=("host",))


def test_phases_take_turns_on_one_or_two_groups_of_ipus():
    asked = {"stages": 4, "split": True}
    serial, parallel = (train(1, **asked, phased=kind)[2] for kind in ("serial", "parallel"))
    assert (serial.ipus, parallel.ipus) == (1, 2)
    assert parallel.cycles.host < serial.cycles.host
    assert not serial.timeline.folds or all(f.stages == 1 for f in serial.timeline.folds)

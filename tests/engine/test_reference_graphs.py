"""Lowered programs on the reference executor: numbers against the interpreter of graphs, bytes against the cost.

Every operation that has a plan runs its samples here, on machines of 1 to 16 tiles.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from abele.charge.columns import Columns
from abele.charge.cycles import Charger
from abele.compile import CompileOptions, compile_graph, lower, passes_for
from abele.compile.passes.base import run_passes
from abele.compile.passes.update import Optimiser
from abele.cost import cost
from abele.engine.reference import run_load, run_reference
from abele.importers.torch import capture
from abele.ir import OPERATIONS, Builder, Host, Origin, Port, evaluate, f16, f32, i32
from abele.machine import bow, find_system, one_ipu
from abele.ops.plans.planning import PLANS
from abele.schedule import check, parse_schedule, print_schedule
from abele.schedule.liveness import liveness

STREAMS = {"host_load", "host_store"}
TOLERANCE = {"f2": 6e-3, "f4": 2e-5}
"""Half: partial sums are rounded once more than in the whole. Float: sums in another order."""


def system_of(tiles, ipus=1):
    chip = bow.derive("small", tiles=tiles)
    return one_ipu(chip) if ipus == 1 else find_system("bow-pod16").derive("pod", chip=chip)


def agree(have, want):
    kind = want.dtype.kind + str(want.dtype.itemsize)
    tolerance = TOLERANCE.get(kind, 0)
    wide = want.astype(np.float64)
    np.testing.assert_allclose(
        have.reshape(want.shape).astype(np.float64),
        wide,
        rtol=tolerance,
        atol=tolerance * max(1, np.abs(wide).max(initial=0)),
    )


def bytes_agree(run, schedule, system):
    charger = Charger(schedule, system, liveness(schedule), Columns())
    charger.function(schedule.main)
    for count in run.counts:
        for have, want in zip(charger.plan(count.step).sets, count.sets, strict=True):
            assert have.vertices == want.vertices
            np.testing.assert_array_equal(have.moved.received.dense(), want.received)
            assert have.moved.sent >= want.sent.max()
    profile = cost(schedule, system)
    assert profile.cycles.total > 0 or not any(count.sets for count in run.counts)
    assert sum(profile.memory.categories.values()) == profile.memory.max


@pytest.mark.parametrize("name", sorted(n for n in PLANS if n in OPERATIONS and n not in STREAMS))
def test_samples(name):
    samples = list(OPERATIONS[name].samples())

    @settings(max_examples=4)
    @given(index=st.integers(0, len(samples) - 1), tiles=st.sampled_from([1, 4, 7, 16]))
    def run(index, tiles):
        sample, system = samples[index], system_of(tiles)
        b = Builder("main")
        operands = [b.input(arg.type, "data", f"x{i}") for i, arg in enumerate(sample.operands)]
        outputs = b.emit(name, operands, sample.attributes)
        graph = b.finish(outputs, [Port("anchor", f"y{i}") for i in range(len(outputs))])
        rng = np.random.default_rng(index)
        inputs = [arg.values(rng) for arg in sample.operands]
        schedule = check(lower(graph, system))
        done = run_reference(schedule, [inputs])
        for have, want in zip(done.outputs[0], evaluate(graph, inputs), strict=True):
            agree(have, want)
        bytes_agree(done, schedule, system)

    run()


@pytest.mark.parametrize("tiles", [1, 2, 4])
def test_an_operand_that_is_repeated_is_read_in_its_own_view(tiles):
    """It lies as it was read first, in a view without the dimension along which it is then repeated."""
    system = system_of(tiles)
    b = Builder("main")
    x, y, m = (
        b.input(f32(*shape), "data", n) for n, shape in zip("xym", [(2, 1, 2, 2), (1, 2, 2, 2), (1, 2, 2)], strict=True)
    )
    first, second = b.add(b.relu(x), m), b.mul(b.relu(y), b.reshape(m, shape=(1, 2, 1, 2)))
    graph = b.finish([first, second], [Port("anchor", "first"), Port("anchor", "second")])
    inputs = [np.arange(v.type.size, dtype=np.float32).reshape(v.shape) for v in graph.inputs]
    schedule = check(lower(graph, system))
    run = run_reference(schedule, [inputs])
    for have, want in zip(run.outputs[0], evaluate(graph, inputs), strict=True):
        agree(have, want)
    bytes_agree(run, schedule, system)


@pytest.mark.parametrize("tiles", [1, 3, 16])
def test_what_follows_a_convolution_of_groups_is_done_in_its_view(tiles):
    """The channels of its result lie as groups and what is in them, those of the bias as one dimension."""
    system = system_of(tiles)
    module = torch.nn.Sequential(torch.nn.Conv2d(6, 12, 3, groups=3), torch.nn.ReLU())
    captured = capture(module, (torch.ones(2, 6, 5, 4),))
    schedule = check(compile_graph(captured.graph, CompileOptions(system)).schedule)
    x = np.random.default_rng(0).standard_normal((2, 6, 5, 4)).astype(np.float32)
    states = captured.state()
    states |= run_load(schedule, states)
    host = Host({name: [x] for name in captured.graph.inputs_of("data")})
    run = run_reference(schedule, [[states[p.name] for p in schedule.input_ports]], [host])
    ((have,),) = host.outputs.values()
    agree(have, module(torch.from_numpy(x)).detach().numpy())
    bytes_agree(run, schedule, system)


def network(width=6, layers=2, half=False, ipus=1):
    """Layers by an outlined function, one call each, the last on the last IPU; the weights are state."""
    type_ = f16 if half else f32
    f = Builder("layer")
    x, w, c = (f.input(type_(*s)) for s in ((5, width), (width, width), (width,)))
    with f.at(Origin("net.py", 3, "layer")):
        layer = f.finish([f.tanh(f.add(f.matmul(x, w), c))])
    b = Builder("main", {"layer": layer})
    value = b.input(type_(5, width), "data", "x")
    weights = [
        (b.input(type_(width, width), "state", f"w{i}"), b.input(type_(width), "state", f"c{i}")) for i in range(layers)
    ]
    for pair in weights:
        (value,) = b.call("layer", [value, *pair])
    with b.at(Origin("net.py", 9, "head", ipu=ipus - 1)):
        value = b.reduce_sum(b.mul(value, value), axes=(1,))
    return b.finish([value], [Port("anchor", "y")])


@settings(max_examples=12)
@given(st.integers(1, 9), st.integers(1, 3), st.booleans(), st.integers(1, 2), st.sampled_from([1, 3, 8, 16]))
def test_outlined_layers(width, layers, half, ipus, tiles):
    graph, system = network(width, layers, half, ipus), system_of(tiles, ipus)
    schedule = check(lower(graph, system))
    assert parse_schedule(print_schedule(schedule)) == schedule
    rng = np.random.default_rng(width)
    inputs = [(rng.standard_normal(v.shape) * 0.3).astype(v.dtype.numpy) for v in graph.inputs]
    run = run_reference(schedule, [inputs])
    agree(run.outputs[0][0], evaluate(graph, inputs)[0])
    bytes_agree(run, schedule, system)


def accumulation(count, size=7):
    """A state to which gradients of streamed batches are added in a loop, reduced over replicas, then a step taken."""
    f = Builder("body")
    total, w = f.input(f32(size)), f.input(f32(size))
    x = f.host_load(stream="x", shape=(3, size), dtype="f32")
    error = f.sub(x, f.expand(f.reshape(w, shape=(1, size)), shape=(3, size)))
    total2 = f.add(total, f.reduce_sum(error, axes=(0,)))
    f.emit("host_store", [f.reduce_sum(f.mul(error, error), axes=(0, 1))], {"stream": "loss"})
    body = f.finish([total2])
    b = Builder("main", {"body": body})
    w = b.input(f32(size), "state", "w")
    zero = b.emit("fill", [], {"value": 0.0, "dtype": "f32", "shape": (size,)})[0]
    (total,) = b.repeat("body", count, [zero, w])
    mean = b.all_reduce(total, reduction="mean")
    rate = b.emit("fill", [], {"value": 0.1, "dtype": "f32", "shape": ()})[0]
    return b.finish([b.add(w, b.mul(mean, rate))], [Port("state", "w")])


@settings(max_examples=8)
@given(st.integers(1, 3), st.integers(1, 3), st.sampled_from([1, 4, 9]))
def test_accumulation_over_replicas(count, replicas, tiles):
    graph, system = accumulation(count), system_of(tiles, 2)
    schedule = check(lower(graph, system, replicas=replicas))
    rng = np.random.default_rng(3)
    start = rng.standard_normal(7).astype(np.float32)
    batches = [[rng.standard_normal((3, 7)).astype(np.float32) for _ in range(count)] for _ in range(replicas)]
    hosts = [Host({"x": b}) for b in batches]
    run = run_reference(schedule, [[start]] * replicas, hosts)
    gradient = np.mean([sum((x - start).sum(0) for x in b) for b in batches], axis=0)
    for replica in range(replicas):
        np.testing.assert_allclose(run.next_state[replica]["w"], start + 0.1 * gradient, rtol=1e-5, atol=1e-5)
        losses = [np.square(x - start, dtype=np.float64).sum() for x in batches[replica]]
        np.testing.assert_allclose(np.ravel(hosts[replica].outputs["loss"]), losses, rtol=1e-4)
    bytes_agree(run, schedule, system)
    live = liveness(schedule)
    assert live.final == ()  # the step is taken in place


def classifier(half, stages):
    """Three dense layers and a loss; ``stages`` IPUs take the layers in turn."""
    type_ = f16 if half else f32
    b = Builder("net")
    x, y = b.input(type_(4, 6), "data", "x"), b.input(i32(4), "data", "y")
    value = x
    for i in range(3):
        w, c = b.input(type_(6, 6), "state", f"l{i}.w"), b.input(type_(6), "state", f"l{i}.c")
        place = min(i, stages - 1)
        with b.at(Origin("net.py", 10 + i, f"l{i}", place, place)):
            value = b.add(b.matmul(value, w), c)
            value = b.relu(value) if i < 2 else value
    with b.at(Origin("net.py", 20, "", stages - 1, stages - 1)):
        loss = b.cross_entropy(value, y, reduction="mean")
    return b.finish([value, loss], [Port("anchor", "out"), Port("loss", "loss")])


@pytest.mark.parametrize(
    ("half", "stages", "accumulation", "tiles"), [(False, 1, 1, 4), (False, 1, 3, 7), (True, 1, 2, 4), (False, 2, 4, 4)]
)
def test_training_step(half, stages, accumulation, tiles):
    """A whole training step as the compiler makes it: the schedule gives the numbers of its graph."""
    system = system_of(tiles, 2)
    graph = classifier(half, stages)
    weights = tuple(p.name for p in graph.input_ports if p.kind == "state")
    options = CompileOptions(system, accumulation=accumulation, stages=stages, optimiser=Optimiser("adam", (weights,)))
    final, _ = run_passes(graph, passes_for(options), None)
    schedule = check(lower(final, system))
    assert parse_schedule(print_schedule(schedule)) == schedule
    rng = np.random.default_rng(0)
    inputs = []
    for value, port in zip(final.inputs, final.input_ports, strict=True):
        start = rng.uniform(0.05, 0.3, value.shape) if port.kind == "state" else np.full(value.shape, 0.1)
        inputs.append(start.astype(value.dtype.numpy))
    streams = {
        "x": [rng.standard_normal((4, 6)).astype(np.float32) for _ in range(accumulation)],
        "y": [rng.integers(0, 6, 4).astype(np.int32) for _ in range(accumulation)],
    }
    host, plain_host = Host(streams), Host(streams)
    run = run_reference(schedule, [inputs], [host])
    for have, want in zip(run.outputs[0], evaluate(final, inputs, plain_host), strict=True):
        tolerance = 2e-2 if half else 1e-4
        np.testing.assert_allclose(have.reshape(want.shape), want, rtol=tolerance, atol=tolerance / 10)
    for name, values in plain_host.outputs.items():
        for have, want in zip(host.outputs[name], values, strict=True):
            agree(have, want)
    bytes_agree(run, schedule, system)
    profile = cost(schedule, system)
    assert (profile.cycles.bubble > 0) == (stages > 1)

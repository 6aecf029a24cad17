"""Inference programs whose weights are prepared when they are loaded."""

from __future__ import annotations

import numpy as np
import pytest

from abele.compile import CompileOptions, compile_graph
from abele.engine import Engine
from abele.errors import InvalidOperand
from abele.ir import Builder, Graph, Port, evaluate, f32
from abele.machine import find_system
from abele.schedule.text import parse_schedule, print_schedule


def normed() -> Graph:
    b = Builder("normed")
    x, w = b.input(f32(2, 3, 6, 6), "data", "x"), b.input(f32(4, 3, 3, 3), "state", "w")
    norm = [b.input(f32(4), "state", n) for n in ("scale", "shift", "mean", "variance")]
    y = b.conv(x, w, strides=(1, 1), padding=((1, 1), (1, 1)), dilation=(1, 1))
    y = b.relu(b.batch_norm_inference(y, *norm, eps=1e-5))
    return b.finish([y], [Port("anchor", "y")])


def test_weights_are_prepared_again_when_they_change():
    graph = normed()
    executable = compile_graph(graph, CompileOptions(find_system("bow-2000"), replicas=2))
    schedule = executable.schedule
    assert schedule.load is not None
    assert parse_schedule(print_schedule(schedule)) == schedule
    engine = Engine(schedule, threads=1, timed=True)
    assert {"w", "scale", "shift", "mean", "variance"} <= set(engine.states)
    rng = np.random.default_rng(0)
    for _ in range(3):
        values = {n: rng.uniform(0.5, 1.5, t.shape).astype(np.float32) for n, t in graph_states(graph).items()}
        for name, value in values.items():
            engine.write(name, value)
            np.testing.assert_array_equal(engine.read(name), value)
        x = rng.standard_normal((1, 2, 2, 3, 6, 6)).astype(np.float32)
        got = engine.run({"x": x})["y"]
        for replica in range(2):
            (expected,) = evaluate(graph, [x[0, replica], *values.values()])
            np.testing.assert_allclose(got[0, replica], expected, rtol=1e-4, atol=1e-4)
    made = [port.name for port in schedule.input_ports if port.name.startswith("hoisted.")]
    assert made and not set(made) & set(engine.states)
    with pytest.raises(InvalidOperand, match="made from others"):
        engine.write(made[0], np.zeros(1, np.float32))
    loading = [t for t in engine.timings if t.loading]
    assert loading and all(t.times == 3 for t in loading if t.provider != "engine")
    operations = {name for counts in engine.report().values() for name in counts}
    assert {t.operation for t in engine.timings if t.provider != "engine"} == operations
    with pytest.raises(InvalidOperand, match="no state or hyper value 'v'"):
        engine.write("v", np.zeros(1, np.float32))


def graph_states(graph: Graph):
    return {n: v.type for n, v in graph.inputs_of("state").items()}

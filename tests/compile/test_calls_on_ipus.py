"""A function that is called on an IPU works there: what comes from another IPU crosses once, at the call."""

from __future__ import annotations

import numpy as np

from abele.compile.executable import compile_graph
from abele.compile.pipelines import CompileOptions
from abele.cost import cost
from abele.engine import Engine
from abele.ir import evaluate
from abele.ir.builder import Builder
from abele.ir.graph import Origin, Port
from abele.ir.types import f16
from abele.machine import find_system

SIZE = f16(64, 64)


def _graph():
    """Two calls on IPU 1: the first one's operand is made on IPU 0, the second one's by the first call."""
    there = Origin(stage=1, ipu=1)
    inner = Builder("layer")
    x = inner.input(SIZE)
    with inner.at(there):
        function = inner.finish([inner.add(inner.matmul(x, x), inner.matmul(inner.relu(x), x))])
    b = Builder("main", {"layer": function})
    y = b.exp(b.input(SIZE, "data", "x"))
    with b.at(there):
        (y,) = b.call("layer", (y,))
        (y,) = b.call("layer", (y,))
    return b.finish([y], [Port("anchor", "y")])


def test_what_several_read_is_transferred_once() -> None:
    """Three operations of IPU 1 read what IPU 0 makes, through a view too: it crosses once, and the numbers stay."""
    b = Builder("main")
    y = b.exp(b.input(SIZE, "data", "x"))
    with b.at(Origin(stage=1, ipu=1)):
        z = b.matmul(y, b.tanh(b.add(y, b.constant(0.5, y.dtype))))
        z = b.add(b.reshape(z, shape=(4096,)), b.reshape(y, shape=(4096,)))
    graph = b.finish([z], [Port("anchor", "y")])
    system = find_system("bow-2000").with_ipus(2)
    schedule = compile_graph(graph, CompileOptions(system, fuse=False)).schedule
    steps = {s.name: s for s in cost(schedule, system).steps}
    assert steps["transfer"].linked == SIZE.bytes and steps["transfer"].cycles.links > 0
    assert steps["matmul"].linked == steps["tanh"].linked == 0
    x = (np.random.default_rng(0).standard_normal(SIZE.shape) / 8).astype(np.float16)
    (made,) = Engine(schedule, threads=1).run({"x": x[None, None]}).values()
    (wanted,) = evaluate(graph, [x])
    np.testing.assert_allclose(made[0, 0].astype(float), wanted, rtol=2e-3, atol=1e-3)


def test_only_the_first_call_crosses() -> None:
    system = find_system("bow-2000").with_ipus(2)
    schedule = compile_graph(_graph(), CompileOptions(system)).schedule
    (function,) = (f for name, f in schedule.functions.items() if name == "layer")
    assert [schedule.tensors[name].ipu for name in function.parameters] == [1]
    profile = cost(schedule, system)
    calls = [s for s in profile.steps if s.name == "call layer"]
    assert [s.cycles.links > 0 for s in calls] == [True, False]
    assert all(s.linked == 0 for s in profile.steps if s.function == "layer")

"""A function that is called on an IPU works there: what comes from another IPU crosses once, at the call."""

from __future__ import annotations

from abele.compile.executable import compile_graph
from abele.compile.pipelines import CompileOptions
from abele.cost import cost
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


def test_only_the_first_call_crosses() -> None:
    system = find_system("bow-2000").with_ipus(2)
    schedule = compile_graph(_graph(), CompileOptions(system)).schedule
    (function,) = (f for name, f in schedule.functions.items() if name == "layer")
    assert [schedule.tensors[name].ipu for name in function.parameters] == [1]
    profile = cost(schedule, system)
    calls = [s for s in profile.steps if s.name == "call layer"]
    assert [s.cycles.links > 0 for s in calls] == [True, False]
    assert all(s.linked == 0 for s in profile.steps if s.function == "layer")

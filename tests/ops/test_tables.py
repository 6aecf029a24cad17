"""The tables that rooms keep by name fit together: functions, cycles, vertices; and activations are found in maps."""

from __future__ import annotations

import pytest

from abele.compile import lower
from abele.compile.passes.base import run_passes
from abele.compile.passes.common import CommonSubexpressions
from abele.compile.passes.expand import Expand
from abele.compile.passes.fuse import Fuse
from abele.cost import cost
from abele.ir import Builder, DType, Port, TensorType
from abele.machine import bow, one_ipu
from abele.machine.cycles import ELEMENTWISE_OPS, ESTIMATES
from abele.ops.elementwise.activations import last_activation
from abele.ops.elementwise.functions import FUNCTIONS
from abele.schedule import KINDS

GELUS = ("gelu", "gelu_tanh", "gelu_grad", "gelu_tanh_grad")


def test_the_table_of_cycles_has_no_name_that_nothing_asks_for():
    assert set(FUNCTIONS) | {"cast", "select", "copy", *GELUS, "silu"} == ELEMENTWISE_OPS
    held = {code for kind in KINDS.values() for code in kind.code}
    assert set(ESTIMATES) <= held


ACTIVATIONS = [
    ("relu", {}, "relu"),
    ("sigmoid", {}, "sigmoid"),
    ("tanh", {}, "tanh"),
    ("silu", {}, "silu"),
    ("gelu", {"approximate": "none"}, "gelu"),
    ("gelu", {"approximate": "tanh"}, "gelu_tanh"),
]


def fused(name, attributes, dtype, bias):
    b = Builder("main")
    x = b.input(TensorType((64, 48), dtype), "data", "x")
    if bias:
        x = b.add(x, b.input(TensorType((48,), dtype), "state", "bias"))
    graph = b.finish(b.emit(name, [x], attributes), [Port("anchor", "y")])
    return run_passes(graph, [Expand(), Fuse()])[0]


@pytest.mark.parametrize("dtype", [DType.F16, DType.F32])
@pytest.mark.parametrize(("name", "attributes", "kind"), ACTIVATIONS, ids=[kind for *_, kind in ACTIVATIONS])
def test_an_activation_costs_what_the_published_vertex_does(name, attributes, kind, dtype):
    chip = bow.derive("small", tiles=8)
    graphs = [fused(name, attributes, dtype, bias) for bias in (False, True)]
    alone, biased = (lower(graph, one_ipu(chip)).main.nodes[-1] for graph in graphs)
    (one,), (two,) = alone.plan.sets, biased.plan.sets
    assert (one.vertex, two.vertex) == ("Nonlinearity", "MapNonlinearity")
    each = chip.estimate("Nonlinearity", n=64 * 48 // 8, kind=kind, dtype=str(dtype))
    first, second = (
        next(s for s in cost(lower(g, one_ipu(chip)), one_ipu(chip)).steps[::-1] if s.vertices).cycles.compute
        for g in graphs
    )
    assert first == each
    assert each < second <= each + chip.estimate("Elementwise", n=64 * 48 // 8, ops="add", dtype=str(dtype))
    before, found = last_activation(two.attributes["body"])
    assert found == kind and [fn for fn, *_ in before if fn != "constant"] == ["add"]


@pytest.mark.parametrize("dtype", [DType.F16, DType.F32])
@pytest.mark.parametrize(("approximate", "kind"), [("none", "gelu_grad"), ("tanh", "gelu_tanh_grad")])
def test_a_gelu_and_its_gradient_are_a_vertex_each(approximate, kind, dtype):
    """Computed again side by side, they share no float tensor, and each is charged as its own vertex."""
    b = Builder("main")
    dy, x = (b.input(TensorType((64, 48), dtype), "data", n) for n in ("dy", "x"))
    forward = b.gelu(x, approximate=approximate)
    backward = b.emit("gelu_grad", (dy, x), {"approximate": approximate})[0]
    graph = b.finish([forward, backward], [Port("anchor", "y"), Port("anchor", "dx")])
    done = run_passes(graph, [Expand(), CommonSubexpressions(), Fuse()])[0]
    maps = [op for op in done.operations if op.name == "map"]
    assert sorted(str(last_activation(op.attributes["body"])[1]) for op in maps) == sorted(
        [kind, kind.removesuffix("_grad")]
    )
    assert all(not [fn for fn, *_ in last_activation(op.attributes["body"])[0] if fn != "constant"] for op in maps)


def test_what_is_only_nearly_an_activation_is_charged_one_by_one():
    b = Builder("main")
    x, z = (b.input(TensorType((64,), DType.F32), "data", n) for n in "xz")
    other = b.mul(x, b.sigmoid(z))  # a gate of two tensors, not silu
    half = b.constant(0.4, DType.F32)
    gelu = b.mul(b.mul(x, half), b.add(b.erf(b.mul(x, b.constant(0.70710678, DType.F32))), b.constant(1.0, DType.F32)))
    graph = b.finish([other, gelu], [Port("anchor", "a"), Port("anchor", "b")])
    maps = [op for op in run_passes(graph, [Fuse()])[0].operations if op.name == "map"]
    assert len(maps) == 2
    assert all(last_activation(op.attributes["body"])[1] is None for op in maps)

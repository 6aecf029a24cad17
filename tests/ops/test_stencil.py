"""Stencils: any taps over any split, slices that become one, and what of a grid is exchanged."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abele.compile.passes.base import run_passes
from abele.compile.passes.dead_code import DeadCode
from abele.compile.passes.fuse import Fuse
from abele.engine.engine import Engine
from abele.errors import InvalidOperand
from abele.ir import Arg, Builder, Port, Sample, evaluate, evaluate_operation, infer_types
from abele.ir.types import f16, f32
from abele.machine import gc200
from abele.ops.plans.layouts import even, flat, resized
from abele.ops.plans.planning import PlanOptions, Question, make_plan
from abele.schedule.geometry import kept, near
from tests.engine.support import feed, one_operation
from tests.ops.harness import Case, machine, plan_and_run


def summed(count, dtype):
    """A body that adds up its taps."""
    nodes = [("cast", dtype, (-1,), (dtype,))]
    return (*nodes, *(("add", dtype, (i, -2 - i), ()) for i in range(count - 1)))


@st.composite
def stencils(draw):
    """A case of one or two shifted operands, perhaps larger or smaller than the result, and one that broadcasts."""
    rank = draw(st.integers(1, 3))
    sizes = st.tuples(*[st.integers(1, {1: 40, 2: 12, 3: 7}[rank])] * rank)
    shape, type_ = draw(sizes), draw(st.sampled_from([f16, f32]))
    operands = [type_(*draw(st.sampled_from([shape, draw(sizes)]))) for _ in range(draw(st.integers(1, 2)))]
    start = st.tuples(*[st.integers(-3, 3)] * rank)
    outside = st.sampled_from([0.0, 1.5])
    taps = [(i, draw(start), draw(outside)) for i in range(len(operands)) for _ in range(draw(st.integers(1, 3)))]
    if draw(st.booleans()):
        taps.append((len(operands), (), 0.0))
        operands.append(type_(shape[-1]))
    attributes = {"taps": tuple(taps), "shape": shape, "body": summed(len(taps), str(operands[0].dtype))}
    return Case("stencil", 0, Sample(tuple(map(Arg, operands)), attributes))


@settings(max_examples=60)
@given(stencils(), st.sampled_from([1, 4, 16]), st.data())
def test_plans_of_any_stencil_give_the_reference(case, tiles, data):
    chip = machine(tiles)
    plan_and_run(case, chip, [data.draw(st.sampled_from([None, flat(t, chip), even(t, chip)])) for t in case.operands])


@settings(max_examples=12)
@given(stencils())
def test_the_engine_runs_any_stencil(case):
    values = case.values()
    types = [arg.type for arg in case.sample.operands]
    engine = Engine(one_operation("stencil", types, case.attributes), providers=["llvm"], threads=1)
    (expected,) = evaluate_operation("stencil", values, case.attributes, case.results)
    made = engine.run(feed(values))["r0"][0, 0]
    np.testing.assert_allclose(made, expected, rtol=2e-3 if expected.dtype == np.float16 else 1e-6, atol=1e-5)


@pytest.mark.parametrize("taps", [((1, (0,), 0.0),), ((0, (0, 0), 0.0),), (0, 1)])
def test_taps_that_mean_nothing_are_refused(taps):
    with pytest.raises(InvalidOperand, match=r"[Tt]ap"):
        infer_types("stencil", (f32(4),), {"taps": taps, "shape": (4,), "body": summed(1, "f32")})


@st.composite
def sliced(draw):
    """A graph that adds up slices of a tensor and of the padded tensor."""
    shape = draw(st.tuples(st.integers(2, 9), st.integers(2, 9)))
    low = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    high = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    size = [draw(st.integers(max(1, n - 1), n + a + b)) for n, a, b in zip(shape, low, high, strict=True)]
    b = Builder("main")
    x = b.input(f32(*shape), "data", "x")
    padded = b.pad(x, low=low, high=high, value=draw(st.sampled_from([0.0, 0.1])))
    parts = []
    for _ in range(draw(st.integers(2, 5))):
        source = padded if any(s > n for s, n in zip(size, x.shape, strict=True)) or draw(st.booleans()) else x
        starts = tuple(draw(st.integers(0, n - s)) for n, s in zip(source.shape, size, strict=True))
        stops = tuple(a + s for a, s in zip(starts, size, strict=True))
        parts.append(b.slice(source, starts=starts, stops=stops, steps=(1, 1)))
    total = parts[0]
    for part in parts[1:]:
        total = b.add(total, b.mul(part, b.constant(0.5, total.dtype)))
    return b.finish([total], [Port("anchor", "y")])


@settings(max_examples=60)
@given(sliced())
def test_slices_that_become_a_stencil_keep_their_meaning(graph):
    after, _ = run_passes(graph, [Fuse(), DeadCode()])
    x = np.random.default_rng(0).standard_normal(graph.inputs[0].shape).astype(np.float32)
    np.testing.assert_array_equal(evaluate(after, [x])[0], evaluate(graph, [x])[0])


def names(graph):
    return [op.name for op in run_passes(graph, [Fuse(), DeadCode()])[0].operations]


def test_neighbours_become_a_stencil_and_halves_of_a_tensor_do_not():
    b = Builder("main")
    x = b.input(f32(64, 64), "data", "x")
    near = b.sub(
        b.slice(x, starts=(1, 0), stops=(64, 64), steps=(1, 1)), b.slice(x, starts=(0, 0), stops=(63, 64), steps=(1, 1))
    )
    assert names(b.finish([near], [Port("anchor", "y")])) == ["stencil"]
    b = Builder("main")
    x = b.input(f32(64, 64), "data", "x")
    halves = b.mul(
        b.slice(x, starts=(0, 0), stops=(64, 32), steps=(1, 1)),
        b.slice(x, starts=(0, 32), stops=(64, 64), steps=(1, 1)),
    )
    assert "stencil" not in names(b.finish([halves], [Port("anchor", "y")]))


def question(type_, home=None, chip=gc200, **options):
    cross = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
    attributes = {
        "taps": tuple((0, starts, 0.0) for starts in cross),
        "shape": type_.shape,
        "body": summed(5, str(type_.dtype)),
    }
    return Question("stencil", tuple(attributes.items()), (type_,), (type_,), (home,), chip, 0, PlanOptions(**options))


def test_a_stencil_stays_where_its_grid_lies_and_takes_a_halo_alone():
    first = make_plan(question(f32(512, 512)))
    again = make_plan(question(f32(512, 512), first.homes[0]))
    home = first.homes[0]
    for plan in (first, again):
        (read,) = plan.sets[0].reads
        assert plan.homes == (home,) and near(read.layout) == home
        np.testing.assert_array_equal(kept(read.layout, [home]), home.elements())


def test_a_tensor_of_other_sizes_lies_in_as_many_blocks_on_the_same_tiles():
    home = even(f32(64, 96), machine(16))
    longer = resized(home, (64, 96), (66, 98))
    assert longer is not None and longer.is_partition
    assert [a.parts for a in longer.grid.axes] == [a.parts for a in home.grid.axes]
    assert resized(home, (64, 96), (1, 96)) is None
    assert resized(flat(f32(64, 96), machine(16)), (64, 96), (66, 98)) is None

"""Softmax and norms: statistics over whole rows and over rows that lie on several tiles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abele.errors import InvalidOperand
from abele.ir import Arg, Sample, evaluate_operation, infer_types
from abele.ir.types import f16, f32
from abele.machine.presets import gc200
from abele.ops.plans.layouts import flat, own, split_dims
from abele.ops.plans.planning import Question, make_plan
from abele.schedule.records import Use
from abele.schedule.rules import check_plan
from tests.ops.harness import Case, ask, assert_close, machine, plan_and_run, run_plan, to_torch, twin_results

SOFTMAX = ("softmax", "log_softmax", "softmax_grad", "log_softmax_grad")


@st.composite
def rows(draw):
    """A case of any of these operations, with the view in which its first operand may lie split."""
    name = draw(st.sampled_from([*SOFTMAX, "layer_norm", "layer_norm_grad", "batch_norm", "batch_norm_grad",
                                 "group_norm", "group_norm_grad", "rms_norm", "batch_norm_inference"]))  # fmt: skip
    make = draw(st.sampled_from([f16, f32]))
    sizes = draw(st.tuples(st.integers(1, 4), st.sampled_from([2, 4, 6]), st.integers(1, 7), st.integers(1, 9)))
    x, c = make(*sizes), make(sizes[1])
    affine = draw(st.booleans())
    if name in SOFTMAX:
        operands, attributes = (x,) * (1 + name.endswith("_grad")), {"axis": draw(st.integers(0, 3))}
    elif name in ("layer_norm", "layer_norm_grad", "rms_norm"):
        axes = draw(st.integers(1, 4))
        w, stat = make(*sizes[4 - axes :]), f32(*sizes[: 4 - axes])
        scale = {"layer_norm": (w, w), "layer_norm_grad": (w,), "rms_norm": (w,)}[name] if affine else ()
        operands = (x, x, stat, stat, *scale) if name == "layer_norm_grad" else (x, *scale)
        attributes = {"axes": axes} | ({} if name == "layer_norm_grad" else {"eps": 1e-3})
    elif name.startswith("batch"):
        stat, attributes = f32(sizes[1]), {"eps": 1e-3}
        scale = (c, c) if affine else ()
        operands = (x, x, stat, stat, *scale[:1]) if name == "batch_norm_grad" else (x, *scale)
        operands = (x, c, c, stat, stat) if name == "batch_norm_inference" else operands
    else:
        groups = draw(st.sampled_from([1, 2]))
        stat, scale = f32(sizes[0], groups), (c, c) if affine else ()
        operands = (x, x, stat, stat, *scale[:1]) if name == "group_norm_grad" else (x, *scale)
        attributes = {"groups": groups} | ({} if name == "group_norm_grad" else {"eps": 1e-3})
    at = {"batch_norm_inference": 4}.get(name, 3 if name.endswith("norm_grad") else -1)
    draws = [Arg(t, "uniform", 0.5, 2.0) if i == at else Arg(t) for i, t in enumerate(operands)]
    return Case(name, 0, Sample(tuple(draws), attributes))


@settings(max_examples=40)
@given(rows(), st.sampled_from([6, 16]), st.sampled_from([1, 2]))
def test_every_choice_gives_the_reference(case, tiles, choice):
    x = case.operands[0]
    home = own(split_dims(x.shape, tiles), x.shape)
    homes = [home if t == x else None for t in case.operands]
    plan_and_run(case, machine(tiles), homes, choice=choice)


@settings(max_examples=80)
@given(rows(), st.sampled_from([1, 6, 16]), st.booleans())
def test_plans_give_the_reference_wherever_the_operand_lies(case, tiles, follows):
    chip = machine(tiles)
    x = case.operands[0]
    home = own(split_dims(x.shape, tiles), x.shape) if follows else None
    homes = [home if t.shape == x.shape and home else flat(t, chip) for t in case.operands]
    question = ask(case, chip, homes)
    plan = make_plan(question)
    uses = [Use("x", t) for t in (*case.operands, *case.results)]
    assert not list(check_plan(plan, uses[: len(case.operands)], uses[len(case.operands) :], homes, tiles))
    actual = run_plan(question, plan, case.values())
    expected = evaluate_operation(case.name, case.values(), case.attributes, case.results)
    for i, (a, e, t) in enumerate(zip(actual, expected, case.results, strict=True)):
        scale = np.abs(e.astype(np.float64)).max(initial=0.0)
        error = np.abs(a.astype(np.float64) - e.astype(np.float64)).max(initial=0.0)
        # partial sums are kept in f32: a sum that cancels is right to f32 of its terms, not of itself
        assert error <= (2e-3 if str(t.dtype) == "f16" else 1e-5) * max(scale, 1.0), f"{case.name} result {i}"


@settings(max_examples=40)
@given(st.lists(st.floats(-80, 80, width=32), min_size=1, max_size=24), st.sampled_from(["softmax", "log_softmax"]))
def test_softmax_of_any_row_agrees_with_torch(row, name):
    case = Case(name, 0, Sample((Arg(f32(1, len(row))),), {"axis": 1}))
    x = np.array([row], np.float32)
    (actual,) = evaluate_operation(name, [x], case.attributes, case.results)
    (expected,) = twin_results(case, [to_torch(x)])
    assert_close(actual, expected.numpy(), case.results[0], name)


def test_large_values_neither_overflow_nor_lose_the_row():
    x = np.array([[3e38, 3e38, -3e38], [-1e30, 0.0, 1e30]], np.float32)
    (y,) = evaluate_operation("softmax", [x], {"axis": 1}, infer_types("softmax", [f32(2, 3)], {"axis": 1}))
    np.testing.assert_allclose(y, [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])


def test_variance_of_a_far_mean_is_right():
    """Two passes: the mean goes first, so that 1e4 does not swallow a deviation of 1."""
    rng = np.random.default_rng(0)
    x = (1e4 + rng.standard_normal((4, 256))).astype(np.float32)
    case = Case("layer_norm", 0, Sample((Arg(f32(4, 256)),), {"axes": 1, "eps": 1e-5}))
    _, _, rstd = evaluate_operation("layer_norm", [x], case.attributes, case.results)
    np.testing.assert_allclose(rstd, 1 / np.sqrt(x.astype(np.float64).var(axis=1) + 1e-5), rtol=1e-4)


def question(name, x, attributes, home, extra=()):
    results = infer_types(name, (x, *extra), attributes)
    homes = (home, *(flat(t, gc200) for t in extra))
    return Question(name, tuple(attributes.items()), (x, *extra), results, homes, gc200)


def test_rows_that_lie_whole_are_normalised_where_they_lie():
    x = f16(2048, 768)
    home = own(split_dims(x.shape, gc200.tiles, keep=(1,)), x.shape)
    w = f16(768)
    plan = make_plan(question("layer_norm", x, {"axes": 1, "eps": 1e-5}, home, (w, w)))
    assert [s.vertex for s in plan.sets] == ["NormWhole"]
    assert plan.sets[0].reads[0].resident
    assert plan.homes[0] == home


def test_batch_norm_stays_on_a_convolution_output():
    x = f16(16, 64, 56, 56)
    home = own(split_dims(x.shape, gc200.tiles), x.shape)
    plan = make_plan(question("batch_norm", x, {"eps": 1e-5}, home, (f16(64), f16(64))))
    assert [s.vertex for s in plan.sets] == ["NormPartial", "NormCombine", "NormApply"]
    assert plan.sets[0].reads[0].resident and plan.sets[2].reads[0].resident
    assert plan.homes[0] == home


def test_few_long_rows_are_split():
    x = f16(4, 30522)
    plan = make_plan(question("softmax", x, {"axis": 1}, None))
    assert plan.sets[0].grid.blocks > 0.5 * gc200.tiles
    assert [s.vertex for s in plan.sets] == ["SoftmaxPartial", "SoftmaxCombine", "SoftmaxApply"]


@pytest.mark.parametrize(
    ("name", "types", "attributes", "names"),
    [
        ("softmax", (f32(2, 3),), {"axis": 2}, "axis 2"),
        ("softmax_grad", (f32(2, 3), f32(3, 2)), {"axis": 1}, "Operand 1"),
        ("layer_norm", (f32(2, 3), f32(2), f32(3)), {"axes": 1, "eps": 1e-5}, "Operand 1"),
        ("layer_norm", (f32(2, 3),), {"axes": 3, "eps": 1e-5}, "axes"),
        ("group_norm", (f32(2, 3, 4),), {"groups": 2, "eps": 1e-5}, "2 groups"),
        ("batch_norm", (f32(3),), {"eps": 1e-5}, "at least 2"),
    ],
)
def test_what_is_wrong_is_named(name, types, attributes, names):
    with pytest.raises(InvalidOperand, match=names):
        infer_types(name, types, attributes)


def test_single_row_plan_runs_with_the_shared_harness():
    case = Case("layer_norm", 0, Sample(tuple(map(Arg, (f32(1, 64), f32(64), f32(64)))), {"axes": 1, "eps": 1e-5}))
    plan = plan_and_run(case, machine(8))
    assert len(plan.homes) == 3

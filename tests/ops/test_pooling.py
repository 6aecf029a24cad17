"""Pooling: any window over any split, the first of several maxima, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from abele.errors import InvalidOperand
from abele.ir import Arg, Sample, evaluate_operation, infer_types
from abele.ir.types import f16, f32
from abele.machine.presets import gc200
from abele.ops.plans.layouts import even, flat
from abele.ops.plans.planning import Question, make_plan
from tests.ops.harness import Case, assert_close, cotangents, gradients, machine, plan_and_run, to_torch, twin_results


@st.composite
def pools(draw, names=("max_pool", "avg_pool", "max_pool_grad", "avg_pool_grad"), fewest=0):
    """A case of one of these operations, of at least ``fewest`` samples, that the type rule takes."""
    spatial = draw(st.integers(1, 3))
    most = {1: 12, 2: 8, 3: 5}[spatial]
    each = lambda low, high: draw(st.tuples(*[st.integers(low, high)] * spatial))  # noqa: E731
    name = draw(st.sampled_from(names))
    attributes = {"kernel": each(1, 3), "strides": each(1, 3)}
    attributes["padding"] = tuple(draw(st.tuples(st.integers(0, 1), st.integers(0, 2))) for _ in range(spatial))
    if name.startswith("max"):
        attributes["dilation"] = each(1, 2)
    else:
        attributes |= {"count_include_pad": draw(st.booleans()), "divisor": draw(st.sampled_from([None, 3]))}
    x = draw(st.sampled_from([f16, f32]))(draw(st.integers(fewest, 2)), draw(st.integers(1, 5)), *each(1, most))
    try:
        (y,) = infer_types(name.removesuffix("_grad"), (x,), attributes)
    except InvalidOperand:
        assume(False)
    if name == "avg_pool_grad":
        attributes["input_shape"] = x.shape
    # whole numbers: ties are common, so that the first maximum matters
    tied = Arg(x, "integers", -2, 3)
    operands = {"max_pool_grad": (tied, Arg(y, "integers", -2, 3), Arg(y)), "avg_pool_grad": (Arg(y),)}
    return Case(name, 0, Sample(operands.get(name, (tied,)), attributes))


@settings(max_examples=50)
@given(pools(), st.sampled_from([1, 4, 16]), st.data())
def test_plans_of_any_pool_give_the_reference(case, tiles, data):
    chip = machine(tiles)
    plan_and_run(case, chip, [data.draw(st.sampled_from([None, flat(t, chip), even(t, chip)])) for t in case.operands])


@settings(max_examples=40)
@given(pools(("max_pool", "avg_pool", "avg_pool_grad"), fewest=1))
def test_any_pool_agrees_with_torch(case):
    values = case.values()
    (actual,) = evaluate_operation(case.name, values, case.attributes, case.results)
    (expected,) = twin_results(case, [to_torch(v) for v in values])
    assert_close(actual, expected.detach().numpy(), case.results[0], case.name)


def test_the_first_of_equal_maxima_takes_the_gradient():
    """Held against torch on a tensor of few values; torch too scans a window row by row."""
    attributes = {"kernel": (3, 3), "strides": (2, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
    case = Case("max_pool", 0, Sample((Arg(f32(2, 3, 9, 8), "integers", 0, 3),), attributes))
    values, weights = case.values(), cotangents(case)
    (found,) = gradients(case, values, weights)
    x = to_torch(values[0]).requires_grad_()
    y = torch.nn.functional.max_pool2d(x, (3, 3), (2, 1), 1)
    (expected,) = torch.autograd.grad(y, x, to_torch(weights[0]))
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6)


def test_pool_of_a_large_field_uses_most_tiles():
    attributes = {"kernel": (3, 3), "strides": (2, 2), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
    x = f16(16, 64, 112, 112)
    results = infer_types("max_pool", (x,), attributes)
    plan = make_plan(Question("max_pool", tuple(attributes.items()), (x,), results, (flat(x, gc200),), gc200))
    assert plan.sets[0].grid.blocks > 0.8 * gc200.tiles


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"kernel": (9, 9)}, "larger than the padded input"),
        ({"padding": ((0, 0), (3, 0))}, "padding alone"),
        ({"strides": (1, 0)}, "strides"),
        ({"kernel": (2,)}, "kernel"),
    ],
)
def test_type_rule_names_what_is_wrong(change, names):
    attributes = {"kernel": (2, 2), "strides": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)} | change
    with pytest.raises(InvalidOperand, match=names):
        infer_types("max_pool", (f32(1, 1, 5, 5),), attributes)


@pytest.mark.parametrize("kind", ["avg", "max"])
def test_adaptive_pool_refuses_an_output_of_another_rank(kind):
    with pytest.raises(InvalidOperand, match="spatial dimension"):
        infer_types(f"adaptive_{kind}_pool", (f32(1, 1, 5, 5),), {"output": (2,)})

"""References and gradients agree with torch (float 1e-5 relative, half 2 units in the last place)."""

from __future__ import annotations

import numpy as np
import pytest

from abele.ir import Primitive, evaluate_operation
from tests.ops import gaps
from tests.ops.harness import (
    TWINS,
    Case,
    assert_close,
    cases,
    cotangents,
    differentiable,
    gradients,
    numerical_slope,
    to_torch,
    twin_gradients,
    twin_results,
)


def parameters(chosen: list[Case], known: dict[str, str]):
    for case in chosen:
        reason = known.get(case.id, known.get(case.name))
        marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
        yield pytest.param(case, id=case.id, marks=marks)


@pytest.mark.parametrize("case", parameters([c for c in cases() if c.name in TWINS], gaps.REFERENCE))
def test_reference_agrees_with_torch(case):
    values = case.values()
    actual = evaluate_operation(case.name, values, case.attributes, case.results)
    expected = twin_results(case, [to_torch(v) for v in values])
    assert len(actual) >= len(expected)  # a twin may leave out results that only our gradient needs
    for i, (a, e, t) in enumerate(zip(actual, expected, case.results, strict=False)):
        assert_close(a, e.detach().numpy(), t, f"{case.id} result {i}")


def float_gradients() -> list[Case]:
    wanted = [c for c in cases() if differentiable(c) and not c.half]
    return [c for c in wanted if c.name in TWINS or isinstance(c.operation, Primitive)]


@pytest.mark.parametrize("case", parameters(float_gradients(), gaps.GRADIENT))
def test_gradient_agrees_with_torch(case):
    values, weights = case.values(), cotangents(case)
    if case.name in TWINS:
        # Results that the twin leaves out carry no gradient of their own.
        known = len(twin_results(case, [to_torch(v) for v in values]))
        weights = [w if i < known else None for i, w in enumerate(weights)]
        found = gradients(case, values, weights)
        expected = twin_gradients(case, values, weights[:known])
        for i, a, e in zip(differentiable(case), found, expected, strict=True):
            assert_close(a, e, case.operands[i], f"{case.id} gradient of operand {i}")
        return
    found = gradients(case, values, weights)
    rng = np.random.default_rng(7)
    directions = [rng.standard_normal(g.shape) for g in found]
    slope = sum(float(np.sum(g.astype(np.float64) * d)) for g, d in zip(found, directions, strict=True))
    scale = sum(float(np.sum(np.abs(g * d))) for g, d in zip(found, directions, strict=True))
    assert abs(slope - numerical_slope(case, values, weights, directions)) <= 1e-5 * max(scale, 1e-3)


@pytest.mark.parametrize(
    "case", parameters([c for c in cases() if differentiable(c) and c.half and c.name in TWINS], gaps.GRADIENT)
)
def test_half_gradient_agrees_with_torch(case):
    """Against float64 from the same half operands, or torch in half: a gradient that reads the rounded result, as
    torch's own do (softmax, norms), cannot be nearer to the truth than that result."""
    values, weights = case.values(), cotangents(case)
    known = len(twin_results(case, [to_torch(v) for v in values]))
    weights = [w if i < known else None for i, w in enumerate(weights)]
    found = gradients(case, values, weights)
    exact = twin_gradients(case, values, weights[:known])
    try:
        torch_half = [[g] for g in twin_gradients(case, values, weights[:known], half=True)]
    except (RuntimeError, NotImplementedError):  # torch has no half kernel on the CPU
        torch_half = [[] for _ in exact]
    for i, a, e, others in zip(differentiable(case), found, exact, torch_half, strict=True):
        assert_close(a, e, case.operands[i], f"{case.id} gradient of operand {i}", *others)


def test_every_differentiable_composite_has_a_twin():
    for case in cases():
        if differentiable(case) and not isinstance(case.operation, Primitive):
            assert case.name in TWINS, f"{case.name} is compared with nothing"

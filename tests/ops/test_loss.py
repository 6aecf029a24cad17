"""Losses beyond the shared samples: class weights, nothing counted, edges of the logarithm, half overflow, errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from abele.errors import InvalidOperand
from abele.ir import Arg, Sample, evaluate_operation, f16, f32, i32, infer_types
from abele.ir.operation import complete_attributes
from tests.ops.harness import Case, cotangents, gradients, to_torch, twin_gradients


def run(name, *operands, **attributes):
    full = complete_attributes(name, attributes)
    kinds = {"float32": f32, "float16": f16, "int32": i32}
    types = infer_types(name, [kinds[a.dtype.name](*a.shape) for a in operands], full)
    return evaluate_operation(name, list(operands), full, types)[0]


@pytest.mark.parametrize(
    ("reduction", "smoothing", "ignore"), itertools.product(("mean", "sum", "none"), (0.0, 0.1), (-100, 1))
)
def test_class_weights_are_torchs(reduction, smoothing, ignore):
    rng = np.random.default_rng(0)
    logits, weight = rng.standard_normal((6, 4, 3)).astype(np.float32), rng.uniform(0.5, 2, 4).astype(np.float32)
    target = rng.integers(0, 4, (6, 3)).astype(np.int32)
    target[0] = ignore
    given = (to_torch(logits), to_torch(target).long(), to_torch(weight))
    how = {"reduction": reduction, "ignore_index": ignore}
    expected = F.cross_entropy(*given, label_smoothing=smoothing, **how)
    found = run("cross_entropy", logits, target, weight, smoothing=smoothing, **how)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    if not smoothing:
        expected = F.nll_loss(*given, **how)
        np.testing.assert_allclose(run("nll_loss", logits, target, weight, **how), expected, rtol=1e-5, atol=1e-6)


@given(st.data())
@settings(max_examples=20)
def test_cross_entropy_on_any_shape(data):
    n, classes = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    rest = tuple(data.draw(st.lists(st.integers(1, 3), max_size=2)))
    ignore, smoothing = data.draw(st.sampled_from([-100, 0])), data.draw(st.sampled_from([0.0, 0.2]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    logits = rng.standard_normal((n, classes, *rest)).astype(np.float32)
    target = rng.integers(0, classes, (n, *rest)).astype(np.int32)
    found = run("cross_entropy", logits, target, ignore_index=ignore, smoothing=smoothing)
    args = to_torch(logits), to_torch(target).long()
    expected = F.cross_entropy(*args, ignore_index=ignore, label_smoothing=smoothing).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_mean_over_nothing_is_not_a_number():
    logits, target = np.zeros((2, 3), np.float32), np.full(2, -100, np.int32)
    assert np.isnan(run("cross_entropy", logits, target))
    assert run("cross_entropy", logits, target, reduction="sum") == 0


def test_an_ignored_target_has_no_gradient():
    case = Case("cross_entropy", 0, Sample((Arg(f32(3, 4)), Arg(i32(3))), {"ignore_index": 1}))
    values = [np.ones((3, 4), np.float32), np.array([0, 1, 2], np.int32)]
    (found,) = gradients(case, values, cotangents(case))
    assert not found[1].any() and found[0].any() and found[2].any()


def test_logits_far_apart_do_not_overflow():
    logits, target = np.array([[200.0, -200.0], [-300.0, 300.0]], np.float32), np.array([1, 1], np.int32)
    np.testing.assert_allclose(run("cross_entropy", logits, target, reduction="none"), [400.0, 0.0])
    x, t = np.array([100.0, -100.0, 1e4], np.float32), np.array([0.0, 1.0, 1.0], np.float32)
    np.testing.assert_allclose(run("bce_with_logits", x, t, reduction="none"), [100.0, 100.0, 0.0])


def test_a_half_mean_is_taken_in_float():
    """The sum, 400 000, is beyond half; the mean is not."""
    x, t = np.full(4000, 10.0, np.float16), np.zeros(4000, np.float16)
    assert run("mse_loss", x, t) == 100.0
    assert np.isinf(run("mse_loss", x, t, reduction="sum"))


@pytest.mark.parametrize(
    ("name", "x", "t"),
    [
        ("bce_loss", [0.0, 1.0, 0.5, 1.0], [0.0, 0.0, 1.0, 1.0]),
        ("bce_with_logits", [0.0, -1.0, 2.0, 0.0], [0.0, 0.0, 1.0, 1.0]),
        ("kl_div", [-1.0, 0.5, -0.25, 0.0], [0.0, 0.0, 1.0, 0.5]),
        ("smooth_l1_loss", [0.0, 1.0, -1.0, 3.0], [0.0, 0.0, 0.0, 0.0]),
        ("huber_loss", [0.0, 1.0, -1.0, 3.0], [0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_edges_are_torchs(name, x, t):
    """Values at 0 and 1, at a kink and at the border of two pieces; and the gradient of the first operand there."""
    case = Case(name, 0, Sample((Arg(f32(4)), Arg(f32(4))), {"reduction": "none"}))
    values, weights = [np.array(a, np.float32) for a in (x, t)], [np.array([1.0, 2.0, 3.0, 4.0], np.float32)]
    functions = {
        "bce_loss": F.binary_cross_entropy,
        "bce_with_logits": F.binary_cross_entropy_with_logits,
        "kl_div": F.kl_div,
        "smooth_l1_loss": F.smooth_l1_loss,
        "huber_loss": F.huber_loss,
    }
    expected = functions[name](*(torch.from_numpy(v) for v in values), reduction="none")
    np.testing.assert_allclose(run(name, *values, reduction="none"), expected, rtol=1e-5, atol=1e-7)
    found, wanted = gradients(case, values, weights), twin_gradients(case, values, weights)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "types", "attributes", "words"),
    [
        ("mse_loss", (f32(3), f32(4)), {}, "one type"),
        ("mse_loss", (f32(3), f32(3)), {"reduction": "batchmean"}, "none, mean, sum"),
        ("nll_loss", (f32(3, 4), i32(4)), {}, "targets"),
        ("nll_loss", (f32(3, 4), i32(3), f32(3)), {}, "class weights"),
        ("cross_entropy", (f32(3, 4), f32(3)), {}, "probabilities"),
        ("cross_entropy", (f32(3), i32()), {}, r"\[N, C"),
        ("cross_entropy", (f32(3, 4), i32(3)), {"smoothing": 2.0}, "smoothing"),
        ("smooth_l1_loss", (f32(3), f32(3)), {"beta": -1.0}, "beta"),
        ("huber_loss", (f32(3), f32(3)), {"delta": 0.0}, "delta"),
        ("identity_loss", (f32(3),), {"reduction": "max"}, "identity_loss"),
    ],
)
def test_what_does_not_fit_is_refused(name, types, attributes, words):
    with pytest.raises(InvalidOperand, match=words):
        infer_types(name, types, complete_attributes(name, attributes))

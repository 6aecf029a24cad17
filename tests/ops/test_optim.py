"""Optimisers beyond the shared samples: many steps against torch, first steps, state in half, plans."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from abele.compile.choose import Chooser
from abele.errors import InvalidOperand
from abele.ir import Arg, Sample, evaluate_operation, f16, f32, infer_types
from abele.ir.operation import complete_attributes
from abele.ops.optim.op import HYPER, STATE
from abele.ops.plans.layouts import even, flat
from abele.ops.plans.planning import PLANNERS, PlanOptions
from tests.ops.harness import Case, ask, cases, machine, plan_and_run

SIZE = 50

SETTINGS = [
    ("sgd", {}, {"lr": 0.1, "momentum": 0.9, "dampening": 0.0, "weight_decay": 0.01}, torch.optim.SGD),
    ("sgd", {"nesterov": True}, {"lr": 0.1, "momentum": 0.9, "dampening": 0.0, "weight_decay": 0.0}, torch.optim.SGD),
    ("adam", {}, {"lr": 0.01, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.1}, torch.optim.Adam),
    (
        "adam",
        {"decoupled": True},
        {"lr": 0.01, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.1},
        torch.optim.AdamW,
    ),
    (
        "rmsprop",
        {"use_momentum": True},
        {"lr": 0.01, "alpha": 0.99, "eps": 1e-8, "momentum": 0.9, "weight_decay": 0.1},
        torch.optim.RMSprop,
    ),
    (
        "rmsprop",
        {"centered": True},
        {"lr": 0.01, "alpha": 0.99, "eps": 1e-8, "momentum": 0.0, "weight_decay": 0.0},
        torch.optim.RMSprop,
    ),
]


def torch_options(attributes, hyper):
    """Our hyper-parameters by torch's names; each is the float32 number that the machine sees."""
    seen = {k: float(np.float32(v)) for k, v in hyper.items()}
    options = {k: v for k, v in seen.items() if k not in ("beta1", "beta2")}
    if "beta1" in seen:
        options["betas"] = (seen["beta1"], seen["beta2"])
    return options | {k: v for k, v in attributes.items() if k in ("nesterov", "centered")}


def step(name, attributes, hyper, param, grad, state, number=1):
    full = complete_attributes(name, attributes)
    scalars = [np.float32(number if k == "step" else hyper[k]) for k in HYPER[name]]
    operands = [param, grad, *state, *(np.asarray(s) for s in scalars)]
    kinds = {"float32": f32, "float16": f16}
    types = infer_types(name, [kinds[a.dtype.name](*a.shape) for a in operands], full)
    param, *state = evaluate_operation(name, operands, full, types)
    return param, state


@pytest.mark.parametrize(("name", "attributes", "hyper", "kind"), SETTINGS)
def test_ten_steps_from_nothing_follow_torch(name, attributes, hyper, kind):
    rng = np.random.default_rng(0)
    param = rng.standard_normal(SIZE).astype(np.float32)
    twin = torch.nn.Parameter(torch.from_numpy(param.astype(np.float64)))
    optimiser = kind([twin], **torch_options(attributes, hyper))
    state = [np.zeros(SIZE, np.float32) for _ in STATE[name]]
    for number in range(1, 11):
        grad = rng.standard_normal(SIZE).astype(np.float32)
        param, state = step(name, attributes, hyper, param, grad, state, number)
        twin.grad = torch.from_numpy(grad.astype(np.float64))
        optimiser.step()
        np.testing.assert_allclose(param, twin.detach(), rtol=1e-5, atol=2e-6)


def test_first_velocity_is_dampened():
    """As PopTorch does it; torch would start from the undampened gradient."""
    hyper = {"lr": 1.0, "momentum": 0.9, "dampening": 0.25, "weight_decay": 0.0}
    zero = np.zeros(1, np.float32)
    param, (velocity,) = step("sgd", {}, hyper, zero, np.array([2.0], np.float32), [zero])
    assert velocity == 1.5 and param == -1.5


def test_state_in_half_is_rounded_once_and_used_unrounded():
    hyper = {"lr": 1.0, "momentum": 0.9, "dampening": 0.0, "weight_decay": 0.0}
    grad = np.array([1.0002], np.float32)
    param, (velocity,) = step("sgd", {}, hyper, np.zeros(1, np.float32), grad, [np.zeros(1, np.float16)])
    assert velocity.dtype == np.float16 and velocity == np.float16(1.0)
    assert param == -grad


def test_lamb_scales_by_the_ratio_of_norms():
    hyper = {"lr": 0.5, "beta1": 0.0, "beta2": 0.0, "eps": 0.0, "weight_decay": 0.0, "max_weight_norm": np.inf}
    grad, zero = np.array([1.0, -1.0], np.float32), [np.zeros(2, np.float32)] * 2
    uncorrected = {"bias_correction": False}
    param, _ = step("lamb", uncorrected, hyper, np.array([3.0, 4.0], np.float32), grad, zero)
    np.testing.assert_allclose(param, np.array([3.0, 4.0]) - 0.5 * 5 / np.sqrt(2) * grad, rtol=1e-6)
    capped, _ = step(
        "lamb", uncorrected, hyper | {"max_weight_norm": 1.0}, np.array([3.0, 4.0], np.float32), grad, zero
    )
    np.testing.assert_allclose(capped, np.array([3.0, 4.0]) - 0.5 * 1 / np.sqrt(2) * grad, rtol=1e-6)
    still, _ = step("lamb", uncorrected, hyper, np.zeros(2, np.float32), grad, zero)
    np.testing.assert_allclose(still, -0.5 * grad)  # no norm, no ratio


def test_lars_scales_matrices_and_leaves_vectors():
    hyper = {"lr": 0.5, "momentum": 0.0, "weight_decay": 0.1, "eta": 0.01}
    param, grad = np.array([[3.0, 4.0]], np.float32), np.array([[1.0, -1.0]], np.float32)
    zero = [np.zeros((1, 2), np.float32)]
    new, (velocity,) = step("lars", {}, hyper, param, grad, zero)
    move = 0.5 * 0.01 * 5 / (np.sqrt(2) + 0.1 * 5) * (grad + 0.1 * param)
    np.testing.assert_allclose(velocity, move, rtol=1e-6)
    np.testing.assert_allclose(new, param - move, rtol=1e-6)
    vector, _ = step("lars", {}, hyper, param[0], grad[0], [zero[0][0]])
    np.testing.assert_allclose(vector, param[0] - 0.5 * grad[0], rtol=1e-6)


def test_an_update_happens_where_the_parameter_lies():
    chip = machine(16)
    case = Case("adam", 0, Sample(tuple(map(Arg, (f16(64, 32), f16(64, 32), f32(64, 32), f32(64, 32)))), {}))
    scalars = tuple(Arg(f32(), "uniform", 0.5, 0.9) for _ in HYPER["adam"])
    case = Case("adam", 0, Sample((*case.sample.operands, *scalars), {}))
    home = even(f16(64, 32), chip)
    for first, there in ((0, True), (3, False)):
        # the same pieces in another view lie at home too; from another tile on they do not
        homes = [home, flat(f16(64, 32), chip, first), None, None, *[None] * len(scalars)]
        plan = plan_and_run(case, chip, homes)
        (done,) = plan.sets
        assert [a.resident for a in done.reads[:4]] == [True, there, True, True]
    assert plan.homes == (home,) * 3


@pytest.mark.parametrize(
    ("changes", "velocity", "scaled"),
    [({}, f32, True), ({}, f16, False), ({"nesterov": True}, f32, False), ({"zero": ("dampening",)}, f32, False)],
)
def test_plain_sgd_is_scaled_additions_in_the_planner_best(changes, velocity, scaled):
    """Where each of them rounds as the whole does: the state is float, and nothing else is added."""
    chip, shape = machine(16), (64, 128)
    operands = (f16(*shape), f16(*shape), velocity(*shape), *(f32() for _ in HYPER["sgd"]))
    attributes = complete_attributes("sgd", {"zero": ("dampening", "weight_decay"), **changes})
    case = Case("sgd", 0, Sample(tuple(map(Arg, operands)), attributes))
    (done,) = plan_and_run(case, chip).sets
    assert done.vertex == ("ScaledUpdate" if scaled else "Update")
    chooser, question = Chooser(chip), ask(case, chip)
    best, vendor = (chooser.price(replace(question, options=PlanOptions(planner=p))) for p in PLANNERS)
    assert best < vendor if scaled else best == vendor


@pytest.mark.parametrize(
    ("name", "position", "type", "words"),
    [("sgd", 1, f32(4), "grad"), ("adam", 4, f32(1), "step"), ("lamb", 10, f16(), "max_weight_norm")],
)
def test_what_does_not_fit_is_refused(name, position, type, words):
    case = cases([name])[0]
    types = list(case.operands)
    types[position] = type
    with pytest.raises(InvalidOperand, match=words):
        infer_types(name, types, case.attributes)


def test_nesterov_needs_momentum():
    case = cases(["sgd"])[0]
    with pytest.raises(InvalidOperand, match="nesterov"):
        infer_types("sgd", case.operands, {"nesterov": True, "use_momentum": False, "zero": ()})

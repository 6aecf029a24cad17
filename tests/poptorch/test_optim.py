"""The optimizers: arguments, constant and variable attributes, state, and the record that the compiler takes."""

from __future__ import annotations

import copy
import logging
import pickle

import pytest
import torch

import poptorch
from poptorch.optim import _spec

OPTIMIZERS = [getattr(poptorch.optim, n) for n in ("SGD", "Adam", "AdamW", "RMSprop", "LAMB")]


def parameters(count=2):
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(3, 4)) for _ in range(count)]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_what_is_passed_is_variable(kind):
    optimizer = kind(parameters(), lr=0.1, weight_decay=0.0)
    attributes = optimizer.variable_attrs
    assert not attributes.isConstant("lr") and not attributes.isConstant("weight_decay")
    assert attributes.isConstant("loss_scaling")
    attributes.markAsVariable("loss_scaling")
    attributes.markAsConstant("weight_decay")
    assert not attributes.isConstant("loss_scaling") and attributes.isConstant("weight_decay")
    with pytest.raises(poptorch.Error, match=r"no attribute 'weight_deca'.*'weight_decay'"):
        attributes.markAsConstant("weight_deca")


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_they_are_pytorch_optimizers(kind):
    upstream = getattr(torch.optim, kind.__name__, torch.optim.Optimizer)
    own, reference = kind(parameters(), lr=0.1), None
    assert isinstance(own, upstream) and isinstance(own, poptorch.optim.Optimizer)
    if upstream is torch.optim.Optimizer:
        return
    reference = upstream(parameters(), lr=0.1)
    for optimizer in (own, reference):
        for _ in range(3):
            optimizer.zero_grad()
            sum((p**2).sum() for g in optimizer.param_groups for p in g["params"]).backward()
            optimizer.step()
    for a, b in zip(own.param_groups[0]["params"], reference.param_groups[0]["params"]):
        assert torch.equal(a, b)


@pytest.mark.parametrize("bias_correction", [True, False])
def test_the_first_step_of_lamb(bias_correction):
    (weight,) = parameters(1)
    before = weight.detach().clone()
    gradient = torch.randn(3, 4)
    weight.grad = gradient
    optimizer = poptorch.optim.LAMB(
        [weight], lr=0.1, weight_decay=0.2, bias_correction=bias_correction, max_weight_norm=1.5
    )
    optimizer.step()
    first, second = (1 - 0.9) * gradient, (1 - 0.999) * gradient**2
    if bias_correction:
        first, second = gradient, gradient**2
    update = first / (second.sqrt() + 1e-8) + 0.2 * before
    assert before.norm() > 1.5
    torch.testing.assert_close(weight.detach(), before - 0.1 * 1.5 / update.norm() * update)


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_copies_keep_all_attributes(kind, duplicate):
    optimizer = kind(parameters(), lr=0.1, loss_scaling=4.0, accum_type=torch.half)
    optimizer.connect(lambda: None)
    other = duplicate(optimizer)
    assert other._refresh is None
    assert _spec.read(other) == _spec.read(optimizer)
    assert other.variable_attrs.isConstant("weight_decay")


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_state_of_the_device(kind):
    optimizer = kind(parameters(), lr=0.1)
    empty = optimizer.state_dict()
    assert empty["ipu_state"] is None and empty["ipu_param"] is None and len(empty["param_groups"]) == 1
    assert not optimizer.has_state()
    state = {"ipu_state": {"Accl1___w": torch.ones(2)}, "ipu_param": {"lossScaling_FLOAT": torch.ones(())}}
    refreshed = []

    def refresh():
        refreshed.append(1)
        optimizer.set_state_dict(state)

    optimizer.connect(refresh)
    saved = optimizer.state_dict()
    assert saved["ipu_state"] is state["ipu_state"] and refreshed == [1]
    other = kind(parameters(), lr=0.5)
    other.load_state_dict(saved)
    assert other.param_groups[0]["lr"] == 0.1
    assert other.state_dict()["ipu_param"] == state["ipu_param"]
    assert other.take_new_state() == state and other.take_new_state() is None


def test_state_of_the_host_is_refused():
    weights = parameters()
    with pytest.raises(RuntimeError, match=r"Only IPU optimizer states can be loaded onto the IPU\."):
        poptorch.optim.Adam(weights).load_state_dict(torch.optim.Adam(weights).state_dict())


def test_velocity_scaling_belongs_to_groups_of_the_combined_variant():
    groups = [{"params": [p]} for p in parameters()]
    combined = poptorch.optim.SGD(groups, lr=0.1, loss_scaling=2.0, velocity_scaling=8.0, use_combined_accum=True)
    combined.param_groups[1]["velocity_scaling"] = 16.0
    spec = _spec.read(combined)
    assert [g.values["velocity_scaling"].value for g in spec.groups] == [8.0, 16.0]
    separate = poptorch.optim.SGD(parameters(), lr=0.1, loss_scaling=2.0)
    assert "velocity_scaling" not in separate.defaults
    assert _spec.read(separate).defaults.values["velocity_scaling"].value == 2.0


def test_the_record_of_each_rule():
    weights = parameters()
    rules = [_spec.read(kind(weights, lr=0.1)).rule for kind in OPTIMIZERS]
    assert rules == ["sgd", "adam", "adamw", "rmsprop", "lamb"]
    upstream = [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop]
    assert [_spec.read(kind(weights, lr=0.1)).rule for kind in upstream] == rules[:4]
    with pytest.raises(poptorch.Error, match="Adagrad is not supported"):
        _spec.read(torch.optim.Adagrad(weights))
    with pytest.raises(poptorch.Error, match="amsgrad"):
        _spec.read(poptorch.optim.Adam(weights, amsgrad=True))


def test_constants_of_pytorch_optimizers_are_those_left_at_default():
    def constants(**arguments):
        spec = _spec.read(torch.optim.SGD(parameters(), lr=0.1, **arguments))
        return {k for k, v in spec.groups[0].values.items() if v.constant}

    assert constants() == constants(momentum=0.0) >= {"momentum", "dampening", "weight_decay"}
    assert constants() - constants(momentum=0.9) == {"momentum"}
    assert "lr" not in constants()


def test_equal_optimizers_have_equal_records():
    weights = parameters()
    assert _spec.read(torch.optim.Adam(weights, lr=0.1)) == _spec.read(poptorch.optim.Adam(weights, lr=0.1))
    changed = poptorch.optim.Adam(weights, lr=0.1)
    changed.param_groups[0]["lr"] = 0.2
    assert _spec.read(changed) != _spec.read(poptorch.optim.Adam(weights, lr=0.1))
    assert _spec.read(changed).constants() == _spec.read(poptorch.optim.Adam(weights, lr=0.3)).constants()


def test_attributes_that_appear_later_are_warned_of_once(caplog):
    optimizer = poptorch.optim.SGD(parameters(), lr=0.1)
    optimizer.param_groups[0]["early"] = 1
    tracker, relaxed = _spec.AttributeTracker(), _spec.AttributeTracker(relaxed=True)
    for t in (tracker, relaxed):
        _spec.read(optimizer, t)
    optimizer.param_groups[0]["late"] = 1
    optimizer.lr = 0.2
    for t in (tracker, relaxed, tracker):
        _spec.read(optimizer, t)
    assert [r.getMessage() for r in caplog.records] == [
        "Ignoring unexpected optimizer attribute 'lr' in SGD optimizer",
        "Ignoring unexpected group 0 attribute 'late' in SGD optimizer",
    ]


def test_derived_optimizers_are_warned_of(caplog):
    class Mine(poptorch.optim.SGD):
        pass

    tracker = _spec.AttributeTracker()
    for _ in range(2):
        assert _spec.read(Mine(parameters(), lr=0.1), tracker).rule == "sgd"
    assert len(caplog.records) == 1
    assert "does not run Python optimizer code directly" in caplog.text


class Squared(torch.nn.Module):
    """A loss of anything."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return poptorch.identity_loss(x.square(), "mean") if poptorch.isRunningOnIpu() else x.square().mean()


@pytest.mark.parametrize("load", [False, True])
def test_state_that_stays_on_the_device_is_told_when_it_is_saved(caplog, load):
    model, x = torch.nn.Sequential(torch.nn.Linear(3, 2), Squared()), torch.ones(2, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    if load:
        model(x).backward()
        optimizer.step()
    with caplog.at_level(logging.WARNING):
        poptorch.trainingModel(model, optimizer=optimizer)(x)
        assert ("state that torch.optim.Adam has is not taken" in caplog.text) == load
        caplog.clear()
        optimizer.state_dict()
        optimizer.state_dict()
    assert caplog.text.count("nothing of its state on the device. Use poptorch.optim.Adam") == 1


def test_descent_without_momentum_has_no_state_to_speak_of(caplog):
    model, x = torch.nn.Sequential(torch.nn.Linear(3, 2), Squared()), torch.ones(2, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with caplog.at_level(logging.WARNING):
        poptorch.trainingModel(model, optimizer=optimizer)(x)
        optimizer.state_dict()
    assert "state" not in caplog.text


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), "128", [], (1.0, 2.0)])
def test_a_scale_of_the_loss_that_nothing_can_be_divided_by_is_refused(value):
    with pytest.raises(poptorch.Error, match=r"The optimizer's loss_scaling must be"):
        _spec.read(poptorch.optim.AdamW(parameters(), lr=0.1, loss_scaling=value))


def test_numbers_of_an_optimizer_that_are_none_are_named():
    wrong = {
        "max_grad_norm": poptorch.optim.Adam(parameters(), lr=0.1, max_grad_norm=-1.0),
        "max_weight_norm": poptorch.optim.LAMB(parameters(), lr=0.1, max_weight_norm=-1.0),
        "betas": torch.optim.Adam(parameters(), lr=0.1),
        "momentum": torch.optim.SGD(parameters(), lr=0.1, momentum=0.9),
        "velocity_scaling": poptorch.optim.SGD(
            parameters(), lr=0.1, momentum=0.9, use_combined_accum=True, velocity_scaling=0.0
        ),
    }
    wrong["betas"].param_groups[0]["betas"] = (0.9,)
    wrong["momentum"].param_groups[0]["momentum"] = "0.9"
    for name, optimizer in wrong.items():
        with pytest.raises(poptorch.Error, match=f"The optimizer's {name} must be"):
            _spec.read(optimizer)

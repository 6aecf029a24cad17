"""Weights of wrapped models: when host and device agree, copies and pickles, buffers, optimizers."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import warnings

import pytest
import torch
from torch import nn

import poptorch
from poptorch import _logging


class Regression(nn.Module):
    """A linear layer; with a target, its squared error too."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.loss = nn.MSELoss()

    def forward(self, x, target=None):
        out = self.fc(x)
        return out if target is None else (out, self.loss(out, target))


class Counting(nn.Module):
    """Counts its calls in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        return x + self.calls


X, TARGET = torch.linspace(-1, 1, 6).reshape(2, 3), torch.ones(2, 2)


def trained(steps=1, **kwargs):
    """A module and its executor after some steps."""
    torch.manual_seed(0)
    module = Regression()
    executor = poptorch.trainingModel(module, **kwargs)
    for _ in range(steps):
        executor(X, TARGET)
    return module, executor


def counted(executor):
    """The copies to the host that the executor makes from now on, counted in a list."""
    made, original = [], executor.copyWeightsToHost

    def copy_and_count():
        made.append(1)
        original()

    executor.copyWeightsToHost = copy_and_count
    return made


def test_training_copies_weights_to_the_host_only_when_they_are_looked_at():
    torch.manual_seed(0)
    module = Regression()
    executor = poptorch.trainingModel(module)
    weight, before = module.fc.weight, module.fc.weight.detach().clone()
    copies = counted(executor)
    for _ in range(3):
        executor(X, TARGET)
    assert not copies
    assert weight.shape == (2, 3) and weight.requires_grad and not copies
    assert not torch.equal(before, weight) and len(copies) == 1
    assert not torch.equal(module.state_dict()["fc.weight"], before) and len(copies) == 1
    executor(X, TARGET)
    assert "Parameter" in repr(module.fc.bias) and len(copies) == 2


def test_training_agrees_with_plain_torch():
    module, executor = trained(5, optimizer=None)
    torch.manual_seed(0)
    plain = Regression()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        plain(X, TARGET)[1].backward()
        optimizer.step()
    assert torch.allclose(module.fc.weight, plain.fc.weight, atol=1e-6)
    assert torch.allclose(executor.fc.weight, plain.fc.weight, atol=1e-6)


class Through(nn.Module):
    """One layer after another; the squared error, and the result of the first, which may be kept from training."""

    def __init__(self, first, second, trained_alone=False):
        super().__init__()
        self.first, self.second, self.alone = first, second, trained_alone

    def forward(self, x, target):
        between = self.first(x)
        return nn.functional.mse_loss(self.second(between.detach() if self.alone else between), target)


@pytest.mark.parametrize("both_update", [False, True])
def test_models_that_are_trained_by_turns_share_weights(both_update):
    """As a generator and its critic are: each is trained by a wrapper of its own, and both have all the weights."""
    torch.manual_seed(0)
    layers = nn.Linear(3, 4), nn.Linear(4, 2)
    plain = copy.deepcopy(layers)
    wrappers, steps = [], []
    for alone in (True, False):
        ours, theirs = Through(*layers, alone), Through(*plain, alone)
        part = (lambda m: m) if both_update else (lambda m, alone=alone: m.second if alone else m.first)
        optimizer = torch.optim.SGD(part(ours).parameters(), lr=0.1)
        wrappers.append(poptorch.trainingModel(ours, optimizer=optimizer))
        steps.append((theirs, torch.optim.SGD(part(theirs).parameters(), lr=0.1)))
    for _ in range(3):
        for wrapper, (model, optimizer) in zip(wrappers, steps, strict=True):
            optimizer.zero_grad()
            loss = model(X, TARGET)
            loss.backward()
            optimizer.step()
            torch.testing.assert_close(wrapper(X, TARGET), loss.detach(), rtol=1e-5, atol=1e-6)
    copied = copy.deepcopy(layers)
    wrappers[1].destroy()
    wrappers[0].destroy()
    for ours, kept, theirs in zip(layers, copied, plain, strict=True):
        assert type(ours.weight) is type(kept.weight) is nn.Parameter
        torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(kept.state_dict(), theirs.state_dict(), rtol=1e-5, atol=1e-6)


def test_parameters_in_the_place_of_others_reach_the_device_when_copied():
    module, executor = trained()
    module.load_state_dict({"fc.weight": torch.ones(2, 3), "fc.bias": torch.zeros(2)}, assign=True)
    executor.copyWeightsToDevice()
    out, _ = executor(X, TARGET)
    torch.testing.assert_close(out, X.sum(1, keepdim=True).expand(2, 2))
    assert not torch.equal(module.fc.weight, torch.ones(2, 3))  # what is trained now
    module.fc = nn.Linear(3, 5)
    with pytest.raises(poptorch.Error, match=r"fc.weight is torch.float32 \[5, 3\] and the model was compiled for"):
        executor.copyWeightsToDevice()
    executor.destroy()
    inference = poptorch.inferenceModel(module)
    torch.testing.assert_close(inference(X), module.fc(X))


def test_edits_on_the_host_reach_the_device_when_copied():
    module, executor = trained()
    inference = poptorch.inferenceModel(module)
    first = inference(X)
    with torch.no_grad():
        module.fc.weight.zero_()
        module.fc.bias.fill_(7)
    assert torch.equal(inference(X), first)
    inference.copyWeightsToDevice()
    assert torch.equal(inference(X), torch.full((2, 2), 7.0))
    executor.load_state_dict({"fc.weight": torch.zeros(2, 3), "fc.bias": torch.ones(2)})
    assert torch.equal(executor(X, TARGET)[0], torch.ones(2, 2))


def test_an_inference_model_follows_training():
    torch.manual_seed(0)
    module = Regression()
    inference = poptorch.inferenceModel(module)
    before = inference(X)
    executor = poptorch.trainingModel(module)
    executor(X, TARGET)
    after = inference(X)
    assert not torch.equal(before, after) and torch.allclose(after, module(X), atol=1e-6)


def test_copies_and_pickles_have_the_users_own_classes_and_the_trained_values():
    module, executor = trained()
    deep, again = copy.deepcopy(module), pickle.loads(pickle.dumps(module))
    for other in (deep, again):
        assert type(other) is Regression and type(other.fc.weight) is nn.Parameter
        assert torch.equal(other.fc.weight, module.fc.weight)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=True)["fc.bias"], module.fc.bias)
    kept = module.fc.weight
    executor.destroy()
    assert type(module) is Regression and type(kept) is nn.Parameter


def test_a_trained_module_that_is_dropped_is_collected_and_a_kept_one_keeps_its_weights():
    module, executor = trained()
    expected = executor._program.engine.read("fc.weight")
    executor.itself = executor
    del executor
    gc.collect()
    assert type(module) is Regression and torch.equal(module.fc.weight, torch.from_numpy(expected))


def test_a_module_is_trained_by_one_executor_at_a_time():
    module, executor = trained()
    with pytest.raises(RuntimeError, match="already been wrapped"):
        poptorch.trainingModel(module)
    module.destroy()
    assert not executor.isCompiled()
    again = poptorch.trainingModel(executor)
    again(X, TARGET)
    with pytest.raises(RuntimeError, match="already been wrapped"):
        executor(X, TARGET)


def test_the_root_keeps_the_mode_that_it_was_wrapped_in():
    class Mode(nn.Module):
        def forward(self, x):
            return x + 1 if self.training else x

    module = Mode().eval()
    inference = poptorch.inferenceModel(module)
    module.train()
    assert inference(torch.zeros(1)) == 0
    inference.destroy()
    assert inference.train()(torch.zeros(1)) == 1
    inference.destroy()
    inference.model.eval()  # the copy's mode, not the module's
    assert inference(torch.zeros(1)) == 0 and module.training


def test_attributes_are_those_of_the_module():
    module, executor = trained()
    assert executor.model is module and executor.fc is module.fc and executor.training
    with pytest.raises(AttributeError):
        _ = executor.nothing


def test_buffers_of_inference_stay_on_the_device_until_copied():
    module = Counting()
    model = poptorch.inferenceModel(module)
    assert [model(torch.zeros(1)).item() for _ in range(3)] == [1, 2, 3] and module.calls == 0
    model.copyWeightsToHost()
    assert module.calls == 3


def test_buffers_of_training_are_up_to_date_when_looked_at():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.loss = module, nn.MSELoss()

        def forward(self, x, target):
            return self.loss(self.inner(x), target)

    model = Model()
    plain = copy.deepcopy(model)
    poptorch.trainingModel(model)(X, TARGET)
    plain(X, TARGET)
    assert torch.allclose(module[1].running_mean, plain.inner[1].running_mean, atol=1e-6)
    assert module[1].num_batches_tracked == 1 and module[1].num_batches_tracked.dtype == torch.int64


def test_named_buffers_are_sent_again():
    module = Counting()
    model = poptorch.inferenceModel(module, poptorch.Options().updatableNamedBuffers(["calls"]))
    assert model(torch.zeros(1)) == 1
    module.calls.fill_(10)
    model.copyNamedBuffersToDevice()
    assert model(torch.zeros(1)) == 11
    other = poptorch.inferenceModel(Counting(), poptorch.Options().updatableNamedBuffers(["call"]))
    with pytest.raises(poptorch.Error, match="no buffer 'call'"):
        other(torch.zeros(1))


def test_exchanged_buffers_and_buffers_of_replicas_are_refused():
    class Exchange(Counting):
        def forward(self, x):
            self.calls = x * 2
            return x

    class Remove(Counting):
        def forward(self, x):
            del self.calls
            return x

    for kind, message in ((Exchange, "calls is reassigned within"), (Remove, "calls is removed from")):
        module = kind()
        with pytest.raises(poptorch.Error, match=message):
            poptorch.inferenceModel(module)(torch.zeros(1))
        assert module.calls == 0
    replicated = poptorch.Options().replicationFactor(2)
    with pytest.raises(poptorch.Error, match="broadcastBuffers"):
        poptorch.inferenceModel(Counting(), replicated)(torch.zeros(2))
    allowed = poptorch.Options().replicationFactor(2).broadcastBuffers(False)
    assert poptorch.inferenceModel(Counting(), allowed)(torch.zeros(2)).tolist() == [1, 1]


def test_a_detached_model_comes_back_with_its_weights():
    _module, executor = trained(2)
    executor.detachFromDevice()
    assert not executor.isAttachedToDevice()
    with pytest.raises(poptorch.Error, match="already been detached"):
        executor.detachFromDevice()
    other, uninterrupted = trained(2)
    executor.attachToDevice()
    for one in (executor, uninterrupted):
        one(X, TARGET)
    assert torch.equal(executor.fc.weight, other.fc.weight)
    executor.destroy()
    with pytest.raises(poptorch.Error, match="not been compiled or has been destroyed"):
        executor.copyWeightsToHost()


@pytest.mark.parametrize("kind", [torch.optim.Adam, poptorch.optim.Adam])
@pytest.mark.parametrize("leave", ["detachFromDevice", "destroy"])
def test_the_state_of_an_optimizer_is_there_again_when_the_model_is(kind, leave):
    """As in a program that leaves the device for a validation model after every epoch."""
    torch.manual_seed(0)
    module = Regression()
    plain = copy.deepcopy(module)
    executor = poptorch.trainingModel(module, optimizer=kind(module.parameters(), lr=0.05))
    optimizer = torch.optim.Adam(plain.parameters(), lr=0.05)
    for _ in range(4):
        optimizer.zero_grad()
        loss = plain(X, TARGET)[1]
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(executor(X, TARGET)[1], loss.detach(), rtol=1e-5, atol=1e-6)
        getattr(executor, leave)()
        if leave == "detachFromDevice":
            executor.attachToDevice()


def optimized(make, steps, change=None):
    """Weights after training by an optimizer on the device and in plain torch."""
    results = []
    for compiled in (True, False):
        torch.manual_seed(3)
        module = Regression()
        optimizer = make(module.parameters())
        executor = poptorch.trainingModel(module, optimizer=optimizer) if compiled else None
        for step in range(steps):
            if change is not None and step == steps // 2:
                change(optimizer)
                if executor is not None:
                    executor.setOptimizer(optimizer)
            if executor is not None:
                executor(X, TARGET)
            else:
                optimizer.zero_grad()
                module(X, TARGET)[1].backward()
                optimizer.step()
        results.append(torch.cat([p.detach().flatten() for p in module.parameters()]))
    return results


@pytest.mark.parametrize(
    "make",
    [
        lambda p: poptorch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, loss_scaling=128.0),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        lambda p: poptorch.optim.Adam(p, lr=0.05, weight_decay=0.1),
        lambda p: torch.optim.AdamW(p, lr=0.05),
        lambda p: torch.optim.Adam(p, lr=0.05, weight_decay=0.3, decoupled_weight_decay=True),
        lambda p: torch.optim.RMSprop(p, lr=0.05, centered=True, momentum=0.5),
        lambda p: poptorch.optim.LAMB(p, lr=0.05, weight_decay=0.1),
    ],
)
def test_optimizers_agree_with_torch(make):
    device, host = optimized(make, 4)
    assert torch.allclose(device, host, rtol=1e-5, atol=1e-6)


def test_groups_that_are_updated_by_different_formulas_are_refused():
    module = Regression()
    groups = [{"params": [module.fc.weight], "centered": True}, {"params": [module.fc.bias]}]
    with pytest.raises(poptorch.Error, match="same centered"):
        poptorch.trainingModel(module, optimizer=torch.optim.RMSprop(groups, lr=0.1))


def test_the_learning_rate_changes_with_set_optimizer_and_constants_do_not():
    def change(optimizer):
        optimizer.param_groups[0]["lr"] = 0.5

    device, host = optimized(lambda p: torch.optim.SGD(p, lr=0.1), 4, change)
    assert torch.allclose(device, host, rtol=1e-5, atol=1e-6)

    module = Regression()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    executor = poptorch.trainingModel(module, optimizer=optimizer)
    executor(X, TARGET)
    optimizer.param_groups[0]["weight_decay"] = 0.5
    with pytest.raises(poptorch.Error, match="weight_decay cannot change"):
        executor.setOptimizer(optimizer)


def test_groups_have_hyper_values_of_their_own_and_frozen_weights_stay():
    torch.manual_seed(0)
    module = Regression()
    before = copy.deepcopy(module.state_dict())
    groups = [{"params": [module.fc.weight], "lr": 0.0}, {"params": [module.fc.bias], "lr": 0.1}]
    executor = poptorch.trainingModel(module, optimizer=torch.optim.SGD(groups, lr=1.0))
    executor(X, TARGET)
    assert torch.equal(module.fc.weight, before["fc.weight"]) and not torch.equal(module.fc.bias, before["fc.bias"])

    frozen = Regression()
    frozen.fc.weight.requires_grad_(False)
    before = copy.deepcopy(frozen.state_dict())
    poptorch.trainingModel(frozen)(X, TARGET)
    assert torch.equal(frozen.fc.weight, before["fc.weight"]) and not torch.equal(frozen.fc.bias, before["fc.bias"])


def test_clipping_bounds_the_update():
    def make(limit):
        return lambda p: poptorch.optim.SGD(p, lr=1.0, max_grad_norm=limit)

    torch.manual_seed(3)
    start = torch.cat([p.detach().flatten() for p in Regression().parameters()])
    clipped, _ = optimized(make(0.01), 1)
    assert (clipped - start).norm().item() == pytest.approx(0.01, rel=1e-3)


def test_the_state_of_an_optimizer_is_saved_and_goes_on_in_another_model():
    def run(steps, state=None, weights=None):
        torch.manual_seed(0)
        module = Regression()
        if weights is not None:
            module.load_state_dict(weights)
        optimizer = poptorch.optim.Adam(module.parameters(), lr=0.1)
        if state is not None:
            optimizer.load_state_dict(state)
        executor = poptorch.trainingModel(module, optimizer=optimizer)
        for _ in range(steps):
            executor(X, TARGET)
        return module.state_dict(), optimizer.state_dict()

    weights, state = run(2)
    assert set(state) == {"ipu_state", "ipu_param", "state", "param_groups"}
    assert state["ipu_param"]["learningRate___specific___fc.bias"] == pytest.approx(0.1)
    assert state["ipu_state"]["Accl1___fc.weight"].abs().sum() > 0
    resumed, _ = run(2, state, weights)
    straight, _ = run(4)
    assert torch.allclose(resumed["fc.weight"], straight["fc.weight"], atol=1e-6)


@pytest.mark.parametrize("compiled_before", [False, True])
def test_a_loaded_state_may_have_other_numbers_for_each_weight(compiled_before):
    torch.manual_seed(0)
    module = Regression()
    optimizer = poptorch.optim.Adam(module.parameters(), lr=0.1)
    executor = poptorch.trainingModel(module, optimizer=optimizer)
    executor(X, TARGET)
    state = optimizer.state_dict()
    if not compiled_before:
        executor.destroy()
    state["ipu_param"]["learningRate___specific___fc.bias"] = torch.tensor(0.0)
    optimizer.load_state_dict(state)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    executor(X, TARGET)
    after = module.state_dict()
    assert torch.equal(before["fc.bias"], after["fc.bias"])
    assert not torch.equal(before["fc.weight"], after["fc.weight"])
    again = optimizer.state_dict()
    assert again["ipu_param"]["learningRate___specific___fc.bias"] == 0
    assert again["ipu_param"]["learningRate___specific___fc.weight"] == pytest.approx(0.1)
    assert again["ipu_state"]["Step"] == state["ipu_state"]["Step"] + 1


def test_plain_descent_saves_its_own_two_numbers():
    torch.manual_seed(0)
    module = Regression()
    optimizer = poptorch.optim.SGD(module.parameters(), lr=0.1, weight_decay=0.5, loss_scaling=4.0)
    executor = poptorch.trainingModel(module, optimizer=optimizer)
    executor(X, TARGET)
    state = optimizer.state_dict()
    for weight in ("fc.weight", "fc.bias"):
        assert state["ipu_param"][f"scaledLearningRate0___specific___{weight}"] == pytest.approx(0.1 / 4)
        assert state["ipu_param"][f"weightDecayScaleFactor0___specific___{weight}"] == pytest.approx(1 - 0.1 * 0.5)
        state["ipu_param"][f"scaledLearningRate0___specific___{weight}"] = torch.tensor(0.2 / 4)
        state["ipu_param"][f"weightDecayScaleFactor0___specific___{weight}"] = torch.tensor(1 - 0.2 * 0.25)
    optimizer.load_state_dict(state)
    executor(X, TARGET)
    read = executor._program.engine.read
    assert read("learning_rate.0") == pytest.approx(0.2) and read("weight_decay.0") == pytest.approx(0.25, rel=1e-5)


def test_half_accumulators_average_while_running_and_too_late_is_an_error():
    module = Regression()
    optimizer = poptorch.optim.SGD(module.parameters(), lr=0.1, accum_type=torch.half)
    options = poptorch.Options()
    executor = poptorch.trainingModel(module, options, optimizer)
    running = poptorch.MeanReductionStrategy.Running
    assert executor.options.Training.meanAccumulationAndReplicationReductionStrategy is running

    _module, late = trained()
    with pytest.raises(ValueError, match="is already compiled"):
        late.setOptimizer(optimizer)


def test_names_and_anchors():
    options = poptorch.Options().anchorTensor("weight", "UpdatedVar___fc.weight")
    module, executor = trained(0, options=options)
    with pytest.raises(AssertionError):
        executor.getTensorNames()
    executor(X, TARGET)
    names = executor.getTensorNames()
    assert {"input/x", "fc.weight", "loss", "Gradient___fc.bias", "UpdatedVar___fc.weight"} <= set(names)
    assert torch.equal(executor.getAnchoredTensor("weight"), module.fc.weight)
    with pytest.raises(poptorch.Error, match="No tensor is anchored as 'bias'"):
        executor.getAnchoredTensor("bias")
    with pytest.raises(poptorch.Error, match="cannot be anchored"):
        trained(1, options=poptorch.Options().anchorTensor("g", "Gradient___missing"))


def test_anchored_gradients_are_those_of_torch():
    options = poptorch.Options().anchorTensor("w", "Gradient___fc.weight").anchorTensor("y", "fc/linear:0")
    options.anchorTensor("dy", "Gradient___fc/linear:0").anchorTensor("loss", "loss", poptorch.OutputMode.Sum)
    module, executor = trained(0, options=options)
    twin = copy.deepcopy(module)
    result = twin.fc(X)
    result.retain_grad()
    loss = torch.nn.functional.mse_loss(result, TARGET)
    loss.backward()
    executor(X, TARGET)
    for short, expected in (("w", twin.fc.weight.grad), ("y", result), ("dy", result.grad), ("loss", loss)):
        torch.testing.assert_close(executor.getAnchoredTensor(short), expected.detach())


def test_an_executor_that_is_dropped_gives_its_weights_back_at_once():
    torch.manual_seed(0)
    module = Regression()
    before = module.fc.weight.detach().clone()
    executor = poptorch.trainingModel(module, optimizer=poptorch.optim.Adam(module.parameters()))
    executor(X, TARGET)
    gc.disable()
    try:
        del executor
        assert type(module) is Regression and not torch.equal(module.fc.weight, before)
    finally:
        gc.enable()


def test_a_module_can_be_unwrapped_for_a_while():
    module, executor = trained()
    poptorch._impl.unwrapModelIfNecessary(module)
    assert type(module.fc.weight) is nn.Parameter
    before = module.fc.weight.clone()
    poptorch._impl.rewrapModelIfNecessary(module)
    executor(X, TARGET)
    assert not torch.equal(module.fc.weight, before)


def test_what_the_user_has_not_set_is_not_warned_of(caplog, monkeypatch):
    monkeypatch.setattr(_logging, "_seen", set())
    module = Regression()
    optimizer = poptorch.optim.AdamW(module.parameters(), lr=0.1, accum_type=torch.float16)
    model = poptorch.trainingModel(module, optimizer=optimizer)
    strategy = model.options.Training.meanAccumulationAndReplicationReductionStrategy
    assert strategy is poptorch.MeanReductionStrategy.Running
    assert not caplog.records
    model.destroy()


@pytest.mark.parametrize("kind", [poptorch.optim.SGD, torch.optim.SGD])
def test_a_schedule_of_learning_rates_warns_of_nothing(kind, caplog):
    module = Regression()
    optimizer = kind(module.parameters(), lr=0.1)
    model = poptorch.trainingModel(module, optimizer=optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        for _ in range(2):
            model(torch.ones(1, 3), torch.zeros(1, 2))
            schedule.step()
            model.setOptimizer(optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.025
    assert not caplog.records
    model.destroy()

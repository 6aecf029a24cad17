"""Errors and Ctrl-C in the middle: no wrong numbers after, no work lost, no file half written."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import poptorch
from abele.engine.engine import Engine


class Classifier(nn.Module):
    """A linear layer and running statistics; with labels, the loss too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 3), nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        out = self.norm(self.linear(x))
        return out if labels is None else (out, nn.functional.cross_entropy(out, labels))


class PerReplica(nn.Module):
    """A weight for each of two replicas."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.arange(6.0).reshape(2, 3))

    def forward(self, x: torch.Tensor) -> Any:
        out = (x * self.w).sum(-1)
        return out, poptorch.identity_loss((out**2).mean(), "none")


class Times(nn.Module):
    def forward(self, x: torch.Tensor, factor: Any) -> torch.Tensor:
        return x * torch.as_tensor(factor)


X, LABELS = torch.linspace(-1, 1, 24).reshape(6, 4).sin(), torch.tensor([0, 1, 2, 2, 1, 0])


def trained(options: poptorch.Options | None = None) -> tuple[Classifier, poptorch.PoplarExecutor]:
    torch.manual_seed(0)
    module = Classifier()
    optimizer = poptorch.optim.SGD(module.parameters(), lr=0.1)
    return module, poptorch.trainingModel(module, options, optimizer)


@pytest.mark.parametrize("method", ["__init__", "write"])
def test_a_first_call_that_was_interrupted_leaves_no_model_of_zeros(monkeypatch: Any, method: str) -> None:
    module = Classifier().eval()
    model = poptorch.inferenceModel(module)

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Engine, method, interrupted)
        with pytest.raises(KeyboardInterrupt):
            model(X)
    assert not model.isAttachedToDevice()
    torch.testing.assert_close(model(X), module(X).detach(), atol=1e-5, rtol=1e-5)


def test_a_copy_to_the_host_that_was_interrupted_is_made_at_the_next_look(monkeypatch: Any) -> None:
    module, model = trained()
    before = copy.deepcopy(module.linear.weight.detach())
    model(X, LABELS)

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            module.linear.weight.sum()
    assert not torch.equal(module.linear.weight.detach(), before)


def test_after_a_call_that_failed_the_host_sees_what_the_device_has() -> None:
    options = poptorch.Options().deviceIterations(3)
    options.Precision.enableFloatingPointExceptions(True)
    module, model = trained(options)
    model(X, LABELS)
    seen = module.linear.weight.detach().clone()
    bad = X.clone()
    bad[5] = float("inf")
    with pytest.raises(poptorch.Error, match="NaN"):
        model(bad, LABELS)
    after = module.linear.weight.detach().clone()
    assert not torch.equal(after, seen), "the first two iterations were done"
    model.copyWeightsToHost()
    assert torch.equal(module.linear.weight.detach(), after)
    model(X, LABELS)


def test_copies_and_files_keep_the_weights_of_groups_of_replicas(tmp_path: Path) -> None:
    options = poptorch.Options().replicationFactor(2)
    module = PerReplica()
    model = poptorch.trainingModel(module, options, poptorch.optim.SGD(module.parameters(), lr=0.1))
    grouped: Any = module.w
    grouped.replicaGrouping(poptorch.CommGroupType.NoGrouping, 0, poptorch.VariableRetrievalMode.OnePerGroup)
    twin = copy.deepcopy(model)
    x = torch.ones(4, 3)
    outputs = model(x)
    assert torch.equal(twin(x)[0], outputs[0])
    assert torch.equal(twin.model.w, module.w)
    model.save(str(tmp_path / "m.pt"))
    later = model(x)
    model.destroy()
    assert torch.equal(poptorch.load(str(tmp_path / "m.pt"))(x)[0], later[0])


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_go_on_with_the_state_of_the_optimizer(twin_of: Any) -> None:
    torch.manual_seed(0)
    module = Classifier()
    model = poptorch.trainingModel(module, optimizer=poptorch.optim.Adam(module.parameters(), lr=0.01))
    for _ in range(3):
        model(X, LABELS)
    twin = twin_of(model)
    assert twin._trainer.optimizer.get_state_dict()["ipu_state"]
    model(X, LABELS)
    twin(X, LABELS)
    assert torch.equal(twin.model.linear.weight, module.linear.weight)


@pytest.mark.parametrize("damage", ["empty", "half", "text", "bits"])
def test_a_file_that_is_damaged_is_named(tmp_path: Path, damage: str) -> None:
    model = poptorch.inferenceModel(Classifier().eval())
    model.compile(X)
    file = tmp_path / "m.pt"
    model.save(str(file))
    whole = file.read_bytes()
    spoilt = {"empty": b"", "half": whole[: len(whole) // 2], "text": b"no program", "bits": b""}[damage]
    if damage == "bits":
        at = whole.index(b"abele-poptorch")
        spoilt = whole[: at - 40] + bytes(b ^ 255 for b in whole[at - 40 : at]) + whole[at:]
    file.write_bytes(spoilt)
    with pytest.raises(poptorch.Error, match=r"m\.pt.*damaged"):
        poptorch.load(str(file))


def test_a_file_stays_as_it_was_when_it_cannot_be_written_anew(tmp_path: Path) -> None:
    module = Classifier().eval()
    model = poptorch.inferenceModel(module)
    model.compile(X)
    file = tmp_path / "m.pt"
    model.save(str(file))
    whole = file.read_bytes()
    module.hook = lambda: None  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(poptorch.Error, match=r"cannot be saved.*export_model=False"):
        model.save(str(file))
    assert file.read_bytes() == whole and [p.name for p in tmp_path.iterdir()] == ["m.pt"]
    with pytest.raises(poptorch.Error, match="cannot be written"):
        model.save(str(file / "below.pt"), export_model=False)


def test_arguments_that_are_no_tensors_are_compared_with_their_type() -> None:
    model = poptorch.inferenceModel(Times())
    whole = torch.arange(3)
    model(whole, 1)
    with pytest.raises(poptorch.Error, match=r"Type mismatch for factor: expected .*int.* but got .*float"):
        model(whole, 1.0)
    model = poptorch.inferenceModel(Times())
    array = np.arange(3.0)
    assert torch.equal(model(whole, array), model(whole, array.copy()))
    with pytest.raises(poptorch.Error, match="Value mismatch for factor"):
        model(whole, array + 1)


def test_inputs_may_be_lazily_negated() -> None:
    z = torch.complex(torch.ones(3), torch.arange(3.0))
    assert z.conj().imag.is_neg()
    assert torch.equal(poptorch.inferenceModel(Times())(z.conj().imag, 2.0), torch.arange(3.0) * -2)

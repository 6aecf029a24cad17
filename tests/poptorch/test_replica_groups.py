"""Weights of which groups of replicas have values of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import poptorch
from poptorch.enums import CommGroupType, VariableRetrievalMode

ONE = VariableRetrievalMode.OnePerGroup


class Product(torch.nn.Module):
    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x @ self.weight
        return y, poptorch.identity_loss(y**2, reduction="mean")


def wrapped(groups: int, optimizer: Any = torch.optim.SGD, **more: float) -> tuple[Product, poptorch.PoplarExecutor]:
    generator = torch.Generator().manual_seed(1)
    module = Product(torch.rand(groups, 5, 3, generator=generator))
    options = poptorch.Options().replicationFactor(4).outputMode(poptorch.OutputMode.All)
    return module, poptorch.trainingModel(module, options, optimizer(module.parameters(), lr=0.1, **more))


MEMBERS = {
    "consecutive": (CommGroupType.Consecutive, 2, [0, 0, 1, 1]),
    "orthogonal": (CommGroupType.Orthogonal, 2, [0, 1, 0, 1]),
    "own": (CommGroupType.NoGrouping, 1, [0, 1, 2, 3]),
}


@pytest.mark.parametrize("kind", MEMBERS)
def test_groups_train_as_so_many_weights(kind: str) -> None:
    group, size, of = MEMBERS[kind]
    module, model = wrapped(4 // size)
    whole = module.weight.detach().clone().requires_grad_()
    model.weight.replicaGrouping(group, size, ONE)
    x = torch.rand(8, 5, generator=torch.Generator().manual_seed(2))
    for _ in range(3):
        result, losses = model(x)
        parts = [x[2 * r : 2 * r + 2] @ whole[g] for r, g in enumerate(of)]
        torch.testing.assert_close(result, torch.cat(parts).detach())
        expected = torch.stack([p.square().mean() for p in parts])
        torch.testing.assert_close(losses, expected.detach())
        (slope,) = torch.autograd.grad(expected.mean(), whole)
        whole = (whole - 0.1 * slope).detach().requires_grad_()
    torch.testing.assert_close(module.weight.detach(), whole.detach())


def test_the_state_of_the_optimizer_has_the_groups_too() -> None:
    module, model = wrapped(2, poptorch.optim.SGD, momentum=0.9, use_combined_accum=False)
    model.weight.replicaGrouping(CommGroupType.Orthogonal, 2, ONE)
    x = torch.rand(8, 5)
    model(x)
    model.detachFromDevice()
    before = module.weight.detach().clone()
    model.attachToDevice()
    model(x)
    assert not torch.equal(module.weight.detach(), before)
    states = model._trainer.optimizer.state_dict()["ipu_state"]  # type: ignore[union-attr]
    assert [s.shape for s in states.values()] == [module.weight.shape]


def test_all_is_no_grouping() -> None:
    module, model = wrapped(5)
    module.weight.data = torch.rand(5, 3)
    model.weight.replicaGrouping(CommGroupType.All, 4, ONE)
    result, _ = model(torch.ones(4, 5))
    assert result.shape == (4, 3)


@pytest.mark.parametrize(
    ("kind", "size", "mode", "message"),
    [
        (CommGroupType.Orthogonal, 3, ONE, "do not divide into groups of 3"),
        (CommGroupType.Consecutive, 1, ONE, "holds their 4 values, and the weight is"),
        (CommGroupType.Consecutive, 2, VariableRetrievalMode.AllReplicas, "use VariableRetrievalMode.OnePerGroup"),
        ("Orthogonal", 2, ONE, "CommGroupType"),
    ],
    ids=["size", "shape", "mode", "kind"],
)
def test_what_does_not_fit_is_refused(kind: Any, size: int, mode: Any, message: str) -> None:
    _, model = wrapped(2)
    with pytest.raises((AssertionError, RuntimeError), match=message):
        model.weight.replicaGrouping(kind, size, mode)


def test_grouping_comes_before_compiling() -> None:
    _, model = wrapped(2)
    model.weight.replicaGrouping(CommGroupType.Orthogonal, 2, ONE)
    model(torch.ones(4, 5))
    with pytest.raises(AssertionError, match="before the model is compiled"):
        model.weight.replicaGrouping(CommGroupType.Orthogonal, 2, ONE)

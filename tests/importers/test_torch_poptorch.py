"""The operations that poptorch adds to torch, in a captured model."""

from __future__ import annotations

import pytest
import torch
from helpers import result, run
from torch import nn

import poptorch
from abele.importers.torch import capture

X = torch.linspace(-1, 2, 12).reshape(3, 4)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.linspace(0, 1, 4))

    def forward(self, x):
        y = poptorch.recomputationCheckpoint(x * self.w)
        y = poptorch.nop(poptorch.set_available_memory(y, 0.3)) + 1
        y = poptorch.ipu_print_tensor(y, "seen")
        return y, poptorch.identity_loss(y**2, reduction="mean")


@pytest.mark.parametrize("training", [False, True])
def test_marks(training):
    captured = capture(Model(), (X,), training=training)
    names = [op.name for op in captured.graph.operations]
    assert names == ["mul", "checkpoint", "fill", "add", "print_tensor", "square", "identity_loss"]
    assert captured.graph.operations[4].attributes["title"] == "seen"
    assert len(captured.losses) == 1
    y, loss = result(captured, (X,))
    expected = X * torch.linspace(0, 1, 4) + 1
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(loss, (expected**2).mean())


def test_identity_loss_absorbs_the_losses_before_it():
    def program(x, t):
        one, two = nn.functional.mse_loss(x, t), nn.functional.l1_loss(x, t)
        return poptorch.identity_loss(one + 2 * two, reduction="none")

    captured = capture(program, (X, X + 1), training=True)
    assert captured.independent_losses() == [2]
    assert run(captured, (X, X + 1))["loss loss.2"] == pytest.approx(3.0)


def test_dynamic_slices():
    def program(x, at):
        part = poptorch.dynamic_slice(x, 1, at, 2, 1)
        return part, poptorch.dynamic_update(x, part * 10, 1, at, 2)

    at = torch.tensor([1], dtype=torch.int32)
    part, updated = result(capture(program, (X, at)), (X, at))
    torch.testing.assert_close(part, X[:, 1:3])
    expected = X.clone()
    expected[:, 1:3] *= 10
    torch.testing.assert_close(updated, expected)

"""Complex buffers, constants and writes in place, through compiler and engine."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import poptorch
from abele.errors import Unsupported
from abele.importers.torch import capture
from tests.torchops.cases import Draw
from tests.torchops.checking import check_forward, check_gradient

draw = Draw(31)
X, TARGET = draw.normal(2, 5, 6), draw.normal(2, 5, 6)


class Rotated(nn.Module):
    """Rotary positions as complex numbers, as language models keep them."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(5.0), torch.tensor([1.0, 0.3, 0.1]))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))
        self.linear = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor, target: torch.Tensor | None = None) -> torch.Tensor:
        q = self.linear(x)
        turned = torch.view_as_complex(q.reshape(*q.shape[:-1], -1, 2)) * self.turns
        y = torch.view_as_real(turned).flatten(-2)
        return y if target is None else F.mse_loss(y, target)


class Sum(nn.Module):
    """A complex buffer that every call adds to."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(torch.complex(x, 2 * x))
        return torch.view_as_real(self.total * 1)


def test_a_complex_buffer_is_read_in_inference_and_training() -> None:
    model = Rotated()
    torch.testing.assert_close(poptorch.inferenceModel(model)(X), model(X))
    other = copy.deepcopy(model)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    other(X, TARGET).backward()
    optimizer.step()
    poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))(X, TARGET)
    torch.testing.assert_close(model.linear.weight, other.linear.weight)


def test_a_complex_buffer_is_written() -> None:
    model = Sum()
    compiled = poptorch.inferenceModel(model)
    compiled(torch.ones(3))
    torch.testing.assert_close(compiled(torch.ones(3))[0], torch.tensor([2.0, 4.0]))
    compiled.copyWeightsToHost()
    torch.testing.assert_close(model.total, torch.full((3,), 2 + 4j))


def in_place(x: torch.Tensor) -> torch.Tensor:
    z = torch.view_as_complex(x.reshape(2, 5, 3, 2) * 1)
    z[:, 1] *= 2j
    z[0].add_(1)
    z.real[..., 0] = 0.5
    part = z.transpose(0, 1)[2:]
    part.mul_(
        torch.tensor([1j, 2.0, 1 - 1j], dtype=torch.complex64 if x.dtype is not torch.float64 else torch.complex128)
    )
    return torch.view_as_real(z)


def test_writes_in_place_reach_all_views() -> None:
    check_forward(in_place, (X,), torch.float32)
    check_gradient(in_place, (X,), torch.float32)


@pytest.mark.parametrize("size", [7, 64, 96, 97, 120])
def test_long_transforms_are_split(size: int) -> None:
    x = draw.normal(3, size)

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        spectrum = torch.fft.rfft(x)
        return torch.view_as_real(torch.fft.fft(x)), torch.fft.irfft(spectrum * (1 + 0.5j), size), spectrum.abs()

    check_forward(program, (x,), torch.float32)
    check_gradient(program, (x,), torch.float32)


def test_complex_parameters_are_refused() -> None:
    module = nn.Module()
    module.w = nn.Parameter(torch.zeros(3, dtype=torch.complex64))
    module.forward = lambda x: torch.view_as_real(module.w * x)
    with pytest.raises(Unsupported, match="parameter w is complex"):
        capture(module, (X[0, 0, :3],))

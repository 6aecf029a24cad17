"""What training makes of code that goes behind autograd's back, and of gradients that torch treats apart."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

import poptorch


class _Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 2, generator=torch.Generator().manual_seed(0)))

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(self.result(x), target)

    def result(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


class ClampedParameter(_Weighted):
    """The weight itself is written in every forward; the step starts from what was written."""

    def result(self, x):
        with torch.no_grad():
            self.w.clamp_(-0.3, 0.3)
        return x @ self.w


class ClampedData(_Weighted):
    def result(self, x):
        self.w.data.clamp_(-0.3, 0.3)
        return x @ self.w


class ReplacedData(_Weighted):
    def result(self, x):
        self.w.data = self.w.data.clamp(-0.3, 0.3)
        return x @ self.w


class ScaledWithoutGradient(_Weighted):
    """New values, the gradient of the old ones."""

    def result(self, x):
        h = x @ self.w
        with torch.no_grad():
            h.mul_(0.5)
        return h * h


class ScaledThroughDetach(_Weighted):
    def result(self, x):
        h = x @ self.w
        h.detach().mul_(0.5)
        return h + 1


class RowsWrittenWithoutGradient(_Weighted):
    def result(self, x):
        h = x @ self.w
        with torch.no_grad():
            h[0].mul_(0.5)
            h[:, 1].add_(1)
        h[1].data.zero_()
        return h


class ReadWithoutGradient(_Weighted):
    """What is computed under no_grad takes nothing from the gradient of what it read."""

    def result(self, x):
        h = x @ self.w
        with torch.no_grad():
            copied, viewed, rows = h.clone(), h[:], h.view(-1)
        return h + copied * viewed + rows.view_as(h)


class ParameterReadWithoutGradient(_Weighted):
    def result(self, x):
        with torch.no_grad():
            copied, viewed = self.w.clone(), self.w.view(3, 2)
        return x @ self.w + (x @ copied) * (x @ viewed)


class Cosine(_Weighted):
    """torch keeps norms from zero under no_grad, and differentiates them all the same."""

    def result(self, x):
        return F.cosine_similarity(x @ self.w, x[:, :2]).unsqueeze(1).expand(-1, 2)


class Checkpointed(_Weighted):
    """torch's own checkpoints, which keep nothing of what a function computes and compute it again for its gradient."""

    def result(self, x):
        h = checkpoint(self.part, x, use_reentrant=False)
        return checkpoint(self.part, h @ self.w.t(), use_reentrant=True)

    def part(self, x):
        return (x @ self.w).sigmoid()


@torch.jit.script
def _scripted(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + torch.ones(2)


class Scripted(_Weighted):
    def result(self, x):
        return _scripted(x @ self.w)


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize(
    "kind",
    [
        ClampedParameter,
        ClampedData,
        ReplacedData,
        ScaledWithoutGradient,
        ScaledThroughDetach,
        RowsWrittenWithoutGradient,
        ReadWithoutGradient,
        ParameterReadWithoutGradient,
        Cosine,
        Checkpointed,
        Scripted,
    ],
)
def test_training_agrees_with_torch(kind: type[_Weighted], accumulation: int) -> None:
    model = kind()
    plain = copy.deepcopy(model)
    options = poptorch.Options()
    options.Training.gradientAccumulation(accumulation)
    options.outputMode(poptorch.OutputMode.All)
    ours = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.1))
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    random = torch.Generator().manual_seed(1)
    for _ in range(3):
        x, target = (torch.randn(4 * accumulation, n, generator=random) for n in (3, 2))
        optimizer.zero_grad()
        losses = []
        for one, wanted in zip(x.chunk(accumulation), target.chunk(accumulation), strict=True):
            losses.append(plain(one, wanted))
            (losses[-1] / accumulation).backward()
        optimizer.step()
        expected = torch.stack(losses).detach()
        torch.testing.assert_close(ours(x, target).reshape(-1), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model.w.detach(), plain.w.detach(), rtol=1e-5, atol=1e-6)
    ours.destroy()


def test_embedding_scales_gradients_by_frequency() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(6, 3, scale_grad_by_freq=True)

        def forward(self, words, target):
            return F.mse_loss(self.table(words), target)

    model = Model()
    plain = copy.deepcopy(model)
    words, target = torch.tensor([[0, 1, 5], [5, 5, 2]]), torch.zeros(2, 3, 3)
    ours = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0))
    ours(words, target)
    plain(words, target).backward()
    expected = plain.table.weight.detach() - plain.table.weight.grad
    torch.testing.assert_close(model.table.weight.detach(), expected, rtol=1e-5, atol=1e-6)
    ours.destroy()


def test_an_input_without_elements_is_refused_as_the_vendors_package_does() -> None:
    with pytest.raises(poptorch.Error, match=r"Zero-sized tensors are unsupported \(Got shape \[0, 3\]\)"):
        poptorch.inferenceModel(nn.Linear(3, 2))(torch.empty(0, 3))


class WithoutTokens(nn.Module):
    """A parameter and a buffer without elements, as a vision transformer has that adds no tokens of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.mix = nn.Parameter(torch.empty(1, 0, 3)), nn.Linear(3, 3)
        self.none: torch.Tensor
        self.register_buffer("none", torch.zeros(0, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.mix(torch.cat([self.tokens.expand(len(x), -1, -1), x], 1))
        return poptorch.identity_loss(y.square().mean() + torch.sum(self.none), "none")


def test_weights_without_elements_are_kept() -> None:
    torch.manual_seed(0)
    model = WithoutTokens()
    plain, x = copy.deepcopy(model), torch.randn(2, 4, 3)
    ours = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9))
    theirs = torch.optim.SGD(plain.parameters(), lr=0.5, momentum=0.9)
    for _ in range(3):
        theirs.zero_grad()
        expected = plain(x)
        expected.backward()
        theirs.step()
        torch.testing.assert_close(ours(x), expected.detach())
    assert model.tokens.shape == (1, 0, 3) and model.none.shape == (0, 2)
    torch.testing.assert_close(model.mix.weight, plain.mix.weight)


def test_a_scripted_function_that_ran_before_makes_its_tensors_on_the_device() -> None:
    class Model(nn.Module):
        def forward(self, x):
            return _scripted(x)

    x = torch.randn(3, 2, generator=torch.Generator().manual_seed(2))
    for _ in range(3):
        _scripted(x)  # torch optimizes it: what it makes is made once, on the host
    torch.testing.assert_close(poptorch.inferenceModel(Model())(x), x * 2 + 1)


@pytest.mark.parametrize("make", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_a_parametrized_module_is_trained_like_in_torch(make) -> None:
    torch.manual_seed(0)
    model = make(nn.Linear(3, 2))
    model.forward = lambda x, target: F.mse_loss(F.linear(x, model.weight, model.bias), target)
    wanted = make(nn.Linear(3, 2))
    wanted.load_state_dict(model.state_dict())
    x, target = torch.randn(4, 3), torch.randn(4, 2)
    ours = poptorch.trainingModel(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    optimizer = torch.optim.SGD(wanted.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.mse_loss(wanted(x), target)
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(ours(x, target), loss.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model.state_dict(), wanted.state_dict(), rtol=1e-4, atol=1e-5)
    ours.destroy()


def test_what_hooks_into_gradients_is_refused_or_said_to_have_no_effect(caplog) -> None:
    class Hooked(_Weighted):
        def result(self, x):
            h = x @ self.w
            h.register_hook(lambda g: g * 2)
            return h

    class Derived(_Weighted):
        def result(self, x):
            return torch.autograd.grad((x @ self.w).square().sum(), x)[0]

    args = torch.ones(4, 3), torch.zeros(4, 2)
    for kind, name in ((Hooked, "register_hook"), (Derived, "grad")):
        with pytest.raises(
            poptorch.Error, match=rf"^A gradient is asked for \({name}\) in a captured model.*test_gradients\.py"
        ):
            poptorch.trainingModel(kind())(*args)
    model = Cosine()
    model.w.register_hook(lambda g: g * 2)
    poptorch.trainingModel(model)(*args)
    assert "Hooks on gradients have no effect on a PopTorch model: those of w do not run" in caplog.text

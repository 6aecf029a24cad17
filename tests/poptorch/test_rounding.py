"""Half weights that are rounded stochastically follow, on average, those of float."""

import numpy as np
import pytest
import torch
from torch import nn

import poptorch
from abele.compile.passes.rounding import StochasticRounding
from abele.ir import Builder, Port, evaluate, f32


def rounded(values: np.ndarray, seed: int) -> np.ndarray:
    b = Builder("main")
    x = b.input(f32(*values.shape), "data", "x")
    rounding = StochasticRounding(b)
    made = rounding(x)
    graph = b.finish((made,), (Port("data", "y"),))
    return np.asarray(evaluate(graph, [values, np.array([seed, 0], np.uint32)])[0])


@pytest.mark.parametrize("scale", [1.0, 2.0**-14, 2.0**-20, 30_000.0])
def test_rounds_to_one_of_the_neighbours_and_right_on_average(scale):
    generator = np.random.default_rng(0)
    exact = np.concatenate([generator.uniform(-1, 1, 60), [1 - 2.0**-12, 1 + 2.0**-12, 0.5, 0.0]]) * scale
    exact = exact.astype(np.float32)
    many = 4000
    found = rounded(np.broadcast_to(exact, (many, len(exact))).copy(), 3).astype(np.float64)
    nearest = exact.astype(np.float16)
    beside = np.where(nearest.astype(np.float32) <= exact, np.nextafter(nearest, np.float16(np.inf)), nearest)
    below = np.nextafter(beside, np.float16(-np.inf)).astype(np.float64)
    above = beside.astype(np.float64)
    assert ((found == below) | (found == above)).all()
    spacing = above - below
    # five deviations of a mean of coin tosses
    assert (np.abs(found.mean(0) - exact) <= 5 * spacing * 0.5 / many**0.5 + 1e-9 * spacing).all()
    grid = nearest.astype(np.float32) == exact
    np.testing.assert_array_equal(found[:, grid], np.broadcast_to(exact[grid], (many, grid.sum())))


class Scale(nn.Module):
    """A loss whose gradient is the same for all weights, at every step."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(count, dtype=torch.half))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return poptorch.identity_loss((self.weight * x).sum(), "none")


def trained(stochastic: bool, steps: int, replicas: int = 1, optimizer=poptorch.optim.SGD) -> torch.Tensor:
    module = Scale(4096)
    options = poptorch.Options().randomSeed(7).replicationFactor(replicas)
    options.Precision.enableStochasticRounding(stochastic)
    # a hundredth of the spacing of half below 1
    model = poptorch.trainingModel(module, options, optimizer(module.parameters(), lr=2.0**-11 / 100))
    for _ in range(steps):
        model(torch.ones(replicas, dtype=torch.half))
    return module.weight.detach().float()


@pytest.mark.parametrize("optimizer", [poptorch.optim.SGD, poptorch.optim.AdamW])
def test_small_updates_are_not_lost(optimizer):
    settings = {} if optimizer is poptorch.optim.SGD else {"weight_decay": 0.0}
    steps = 50

    def made(parameters, lr):
        return optimizer(parameters, lr=lr, **settings)

    assert (trained(False, steps, optimizer=made) == 1).all()
    found = trained(True, steps, optimizer=made)
    assert found.unique().tolist() == pytest.approx([1 - 2.0**-11 * i for i in range(len(found.unique()))][::-1])
    expected = 1 - 2.0**-11 / 100 * steps
    assert abs(float(found.mean()) - expected) < 5 * 2.0**-11 * 0.5 / len(found) ** 0.5


def test_replicas_keep_equal_weights():
    """Weights are read from the first replica; were others different, the shared gradient would tell."""
    assert not torch.equal(trained(True, 3, replicas=2), torch.ones(4096))
    assert torch.equal(trained(True, 3, replicas=2), trained(True, 3))

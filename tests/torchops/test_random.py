"""Operations that draw numbers: the same mean and spread as torch's, and other numbers for every run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from abele.errors import Unsupported
from abele.importers.torch import capture
from abele.ir import evaluate
from tests.torchops.cases_random import RANDOM, N


def drawn(program: Any, p: torch.Tensor, seed: int) -> np.ndarray:
    captured = capture(program, (p,))
    assert captured.random
    state, data = captured.state(seed), iter(captured.arguments((p,)))
    inputs = [next(data) if port.kind == "data" else state[port.name] for port in captured.graph.input_ports]
    return np.asarray(evaluate(captured.graph, inputs)[0], np.float64)


@pytest.mark.parametrize("program", RANDOM.values(), ids=RANDOM)
def test_mean_and_spread_are_torchs(program: Any) -> None:
    torch.manual_seed(3)
    p = torch.rand(N) * 0.5 + 0.25
    ours, theirs = drawn(program, p, 7), program(p).double().numpy()
    assert ours.shape == theirs.shape
    spread = theirs.std() / np.sqrt(theirs.size)
    assert abs(ours.mean() - theirs.mean()) < 7 * spread  # both are off by one or two
    assert 0.8 < ours.std() / theirs.std() < 1.25
    assert not np.array_equal(ours, drawn(program, p, 8))


def test_what_cannot_be_drawn_is_refused() -> None:
    """It would be drawn once, when the model is captured, and stay."""
    for program in (
        lambda x: torch.distributions.Gamma(torch.tensor(1.0), torch.tensor(1.0)).sample() + x,
        lambda x: torch.poisson(torch.ones(3)) + x,
    ):
        with pytest.raises(Unsupported, match="has no rule"):
            capture(program, (torch.ones(3),))


def test_distributions_check_their_parameters_outside_as_before() -> None:
    capture(lambda x: torch.distributions.Normal(x, 1.0).sample(), (torch.zeros(3),))
    with pytest.raises(ValueError, match="Expected parameter"):
        torch.distributions.Normal(torch.zeros(3), -1.0)

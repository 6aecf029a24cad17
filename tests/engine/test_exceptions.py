"""An engine that was asked to stops at the first operation that makes what is not finite, and names it."""

import numpy as np
import pytest
import torch
from torch import nn

from abele.compile import compile_graph
from abele.engine.engine import Engine
from abele.errors import FloatingPointFault
from abele.importers.torch import capture
from abele.programs import Loaded, compile_options


class Apply(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def run(function, x, *, replicas=1, exceptions=True):
    """Results of a function of one tensor on an engine, by replica; every replica after the first gets ones."""
    captured = capture(Apply(function), (x,))
    loaded = Loaded("function", captured.graph, 1, False)
    options = compile_options(loaded, system="bow-pod16", replicas=replicas)
    engine = Engine(compile_graph(captured.graph, options).schedule, threads=1, exceptions=exceptions)
    (name,) = engine.inputs
    ones = torch.ones_like(x)
    fed = torch.stack([ones] * (replicas - 1) + [x])[None]
    (found,) = engine.run({name: fed.numpy()}).values()
    return found[0, -1]


@pytest.mark.parametrize(
    "function, x, kind",
    [
        (lambda x: (x + 1).log() * 2, [0.0, -3.0], "a NaN"),
        (lambda x: (x / (x - x)) @ x, [1.0, 2.0], "an infinity"),
        (lambda x: x.softmax(0) @ (x * 3e38 * 10), [1.0, 2.0], "an infinity"),
        (lambda x: torch.nn.functional.layer_norm(x.sqrt(), (2,)), [4.0, -4.0], "a NaN"),
    ],
)
def test_the_first_operation_that_makes_it_is_named(function, x, kind):
    x = torch.tensor(x)
    assert not np.isfinite(run(function, x, exceptions=False)).all()
    with pytest.raises(FloatingPointFault, match=f"makes {kind} of finite operands on replica 0") as caught:
        run(function, x)
    assert "test_exceptions.py:" in caught.value.where


def test_half_overflows_at_its_own_end():
    x = torch.tensor([60_000.0, 1.0], dtype=torch.half)
    with pytest.raises(FloatingPointFault, match=r"1 of 2 elements, the first at \[0\].*lower the loss scale"):
        run(lambda x: x + x, x)
    assert run(lambda x: x + x, x[1:]).tolist() == [2.0]


def test_the_replica_is_named():
    with pytest.raises(FloatingPointFault, match="on replica 2"):
        run(torch.log, torch.tensor([-1.0]), replicas=3)


def test_what_is_meant_to_be_infinite_is_no_fault():
    x = torch.tensor([[1.0, 2.0, 3.0], [2.0, 0.5, 1.0]])
    for function in (
        lambda x: x.masked_fill(x > 2, float("-inf")).softmax(-1),
        lambda x: torch.where(x > 2, float("inf"), x).amin(-1),
        lambda x: nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True),
    ):
        np.testing.assert_allclose(run(function, x), function(x), rtol=1e-5)
    infinite = torch.tensor([float("inf"), 1.0])  # what comes in is not made here
    assert run(lambda x: x * 2, infinite).tolist() == [float("inf"), 2.0]
    with pytest.raises(FloatingPointFault, match="a NaN"):
        run(lambda x: x - x, infinite)


def test_a_nan_that_comes_in_is_named():
    with pytest.raises(FloatingPointFault, match=r"The input '.*' holds 1 NaN of 2 elements on replica 1.*nan_to_num"):
        run(lambda x: x > 1, torch.tensor([float("nan"), 1.0]), replicas=2)

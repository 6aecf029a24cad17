"""A user's ``torch.autograd.Function``: its forward and its own backward, in a module that is trained."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import poptorch
from abele.errors import InvalidOperand, Unsupported
from abele.importers.torch import capture
from tests.torchops.cases import Draw
from tests.torchops.checking import check_forward, check_gradient

_draw = Draw(15)
normal = _draw.normal

X, W = normal(3, 4), normal(4, 5)


class Clipped(Function):
    """A gradient that is no linear function of the one that comes in."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, k: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.k = k
        return (x * k).tanh()

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return (g * ctx.k * (1 - (x * ctx.k).tanh() ** 2)).clamp(-0.5, 0.5) * 3, None


class Several(Function):
    @staticmethod
    def forward(x: torch.Tensor, w: torch.Tensor) -> Any:
        return x @ w, x.sum(0), x.argmax(1)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.mark_non_differentiable(output[2])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, ga: torch.Tensor, gb: torch.Tensor, gi: torch.Tensor) -> Any:
        x, w = ctx.saved_tensors
        assert ctx.needs_input_grad == (True, True)
        return ga @ w.t() + 2 * gb, x.t() @ ga


class Doubled(Function):
    """Writes into its argument."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * 5


class Sign(Function):
    """A straight-through estimator."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.sign()

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g


class Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, b)
        return x * b

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        x, b = ctx.saved_tensors
        return g * b, g * x  # the second is summed to the shape of b


class Nested(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return Clipped.apply(x, 1.0) * 2

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return Clipped.apply(g * ctx.saved_tensors[0], 2.0)


def doubled_view(x: torch.Tensor) -> Any:
    y = x * 3
    z = y.view(-1)
    return Doubled.apply(y), z * 2, y


PROGRAMS = {
    "clipped": (lambda x: Clipped.apply(x * 2, 1.5) + x, X),
    "twice": (lambda x: Clipped.apply(Clipped.apply(x, 0.5), 2.0), X),
    "several results": (Several.apply, X, W),
    "one result of several": (lambda x, w: Several.apply(x, w)[1], X, W),
    "in place": (lambda x: Doubled.apply(x * 3), X),
    "in place, seen by a view": (doubled_view, X),
    "straight through": (lambda x: Sign.apply(x) * x, X),
    "broadcast": (lambda x, w: Broadcast.apply(x, w[:, 0]), X, W),
    "nested": (Nested.apply, X),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_forward_and_backward_are_the_users(program: Any) -> None:
    function, *args = program
    for kind in (torch.float32, torch.float16):
        check_forward(function, args, kind)
    check_gradient(function, args, torch.float32)


class Trained(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(W.clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return poptorch.identity_loss(Clipped.apply(x @ self.w, 1.5), "sum")


def test_a_training_step_uses_the_users_backward() -> None:
    ours, theirs = Trained(), Trained()
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
    theirs(X).backward()
    optimizer.step()
    step = poptorch.trainingModel(ours, optimizer=torch.optim.SGD(ours.parameters(), lr=0.1))
    step(X)
    torch.testing.assert_close(ours.w, theirs.w)


def test_wrong_backwards_are_named() -> None:
    class Short(Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x * y

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> Any:
            return g

    class Shapeless(Short):
        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> Any:
            return g.sum(), g

    class Writing(Short):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            ctx.x = x * y
            return ctx.x * 1

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> Any:
            ctx.x.mul_(2)
            return g * ctx.x, g

    args = (X, X.clone())
    with pytest.raises(InvalidOperand, match="Short returns 1 gradients for 2"):
        capture(Short.apply, args, training=True)
    with pytest.raises(InvalidOperand, match=r"shape \[\] for an argument of shape \[3, 4\]"):
        capture(Shapeless.apply, args, training=True)
    with pytest.raises(Unsupported, match="writes into a tensor that was there before"):
        capture(Writing.apply, args, training=True)

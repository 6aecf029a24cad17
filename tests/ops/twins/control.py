"""Markers in torch."""

from __future__ import annotations

import torch


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx, *given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.zeros_like(given[0]), given[0]


class _Scaled(torch.autograd.Function):
    """The backward of the samples: the gradient of ``y`` goes to ``x`` times ``k``."""

    @staticmethod
    def forward(ctx, y: torch.Tensor, x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(k)
        return y.clone()

    @staticmethod
    def backward(ctx, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.zeros_like(given[0]), given[0] * ctx.saved_tensors[0], torch.zeros_like(given[0])


TWINS = {
    "checkpoint": lambda x: x,
    "custom_gradient": lambda y, x, k, backward, results: _Scaled.apply(y, x, k),
    "host_call": lambda x, function, shapes, dtypes: x,
    "print_tensor": lambda x, title: x,
    "straight_through": _StraightThrough.apply,
}

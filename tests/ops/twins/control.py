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


TWINS = {
    "checkpoint": lambda x: x,
    "host_call": lambda x, function, shapes, dtypes: x,
    "print_tensor": lambda x, title: x,
    "straight_through": _StraightThrough.apply,
}

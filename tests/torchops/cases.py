"""What a row of the catalogue is, and the tensors that its programs share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


class Draw:
    """Random tensors of one module: the same ones whatever else is imported."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> torch.Tensor:
        """Normal numbers that half holds, so that float and half start from the same ones."""
        return torch.randn(*shape, generator=self.generator).half().float()

    def positive(self, *shape: int, low: float = 0.1, high: float = 1.1) -> torch.Tensor:
        """Uniform numbers in [low, high) that half holds."""
        return (torch.rand(*shape, generator=self.generator) * (high - low) + low).half().float()

    def integers(self, low: int, high: int, *shape: int) -> torch.Tensor:
        """Whole numbers in [low, high)."""
        return torch.randint(low, high, shape, generator=self.generator)

    def distinct(self, *shape: int) -> torch.Tensor:
        """Numbers that are all different, also in half, in no order."""
        size = int(torch.Size(shape).numel())
        return ((torch.randperm(size, generator=self.generator) - size / 2) / 8).reshape(shape)


@dataclass(frozen=True)
class Case:
    """One use of an operation.

    Attributes:
        program: a function of the arguments.
        args: tensors (floats are tried in float and in half) and anything else.
        half: why it is not tried in half, or empty.
        gradient: why its gradient is not tried, or empty.
        tolerance: relative to the largest number, where not the usual one.
    """

    program: Callable[..., Any]
    args: tuple[Any, ...]
    half: str = ""
    gradient: str = ""
    tolerance: float | None = None


def case(program: Callable[..., Any], *args: Any, **kwargs: Any) -> Case:
    return Case(program, args, **kwargs)


_draw = Draw(5)
X, Y, P = _draw.normal(3, 5), _draw.normal(3, 5), _draw.positive(3, 5)
Z, J = _draw.integers(-9, 10, 3, 5), torch.tensor([[2, 3, 4, 1, 5], [-3, 2, 5, 3, 1], [4, 4, 2, 5, -2]])
B, D = X > 0, _draw.distinct(4, 6)
M = _draw.normal(2, 3, 4, 6)
A, S, V = _draw.normal(2, 3, 4), _draw.normal(2, 4, 5), _draw.normal(5)
ODD = torch.tensor([[0.5, 1.5, -2.5, float("nan"), float("inf")], [float("-inf"), 0.0, -0.0, 2.0, -1.5]])

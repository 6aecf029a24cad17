"""Inference on the engine against torch eager: CPU time of one step on one thread."""

from __future__ import annotations

import torch
from torch import nn

from abele.zoo import ZOO
from benchmarks.programs import WITHOUT_TORCH, inference
from benchmarks.rounds import Result, compare, one_thread

LIBRARY = ("resnet50", "bert-base")
"""Models with operations for which torch's library is preferred: they are also measured without it."""


class _Chain(nn.Module):
    """A chain of elementwise functions and a sum."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.tanh(torch.exp(-(x * 2 + 1))) * x).sum()


class _Layers(nn.Module):
    """Three linear layers, 784-256-128-10."""

    def __init__(self) -> None:
        super().__init__()
        layers = (nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class _Recurrent(nn.Module):
    """Two LSTM layers of 256 cells over sequences ``[64, 8, 256]``."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LSTM(256, 256, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)[0]


def main() -> list[Result]:
    """Measure all; returns the results."""
    one_thread()
    torch.manual_seed(0)
    cases = [
        ("mlp 784-256-128-10, batch 1", _Layers(), {"x": torch.randn(1, 784)}),
        ("elementwise and sum, 10 million", _Chain(), {"x": torch.randn(10_000_000)}),
        ("lstm 2 x 256, batch 8, 64 steps", _Recurrent(), {"x": torch.randn(64, 8, 256)}),
        *((name, ZOO[name].build(), ZOO[name].inputs(1)) for name in ("resnet50", "bert-base")),
    ]
    results = []
    for name, module, inputs in cases:
        run = inference(module.eval(), inputs)
        native = inference(module, inputs, WITHOUT_TORCH) if name in LIBRARY else None
        with torch.inference_mode():
            results.append(compare(name, run, lambda m=module, i=inputs: m(**i), native))
    return results


if __name__ == "__main__":
    main()

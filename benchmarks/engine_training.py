"""Training on the engine against torch eager: CPU time of one step of SGD with momentum on one thread."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from abele.zoo import ZOO
from benchmarks.programs import WITHOUT_TORCH, training
from benchmarks.rounds import Result, compare, one_thread

RATE, MOMENTUM = 0.01, 0.9


class _Layers(nn.Module):
    """Three linear layers, 784-256-128-10, with their loss."""

    def __init__(self) -> None:
        super().__init__()
        layers = (nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.layers(x)
        return y, nn.functional.cross_entropy(y, labels)


def eager(module: nn.Module, inputs: dict[str, torch.Tensor]) -> Callable[[], object]:
    """One step in torch."""
    optimiser = torch.optim.SGD(module.parameters(), lr=RATE, momentum=MOMENTUM)

    def step() -> None:
        optimiser.zero_grad()
        module(**inputs)[1].backward()
        optimiser.step()

    return step


def main() -> list[Result]:
    """Measure all; returns the results."""
    one_thread()
    torch.manual_seed(0)
    digits = {"x": torch.randn(32, 784), "labels": torch.randint(0, 10, (32,))}
    cases = [("mlp training, batch 32", _Layers(), digits)]
    for name, batch in (("mnist-cnn", 32), ("resnet18", 8)):
        model = ZOO[name]
        module = model.build(training=True)
        cases.append((f"{name} training, batch {batch}", module, model.inputs(batch, training=True)))
    results = []
    for name, module, inputs in cases:
        run = training(module.train(), inputs, RATE, MOMENTUM)
        # Convolutions and pools are torch's library by preference: they are also measured without it.
        images = any(isinstance(m, nn.Conv2d) for m in module.modules())
        native = training(module, inputs, RATE, MOMENTUM, WITHOUT_TORCH) if images else None
        results.append(compare(name, run, eager(module, inputs), native, rounds=5))
    return results


if __name__ == "__main__":
    main()

"""EfficientNet, after Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks" (2019)."""

from __future__ import annotations

import math

import torch
from torch import nn

# Stages of B0: expansion, channels, blocks, stride, kernel (table 1 of the paper).
_STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)


def _channels(count: float) -> int:
    """Rounded to a multiple of eight, never down by more than a tenth."""
    rounded = max(8, int(count + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * count else rounded


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, act: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01),
    ]
    return nn.Sequential(*layers, *([nn.SiLU()] if act else []))


class SqueezeExcite(nn.Module):
    """Scales channels by what a small network makes of their means."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1),
            nn.SiLU(),
            nn.Conv2d(squeezed, channels, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gate(x)


class StochasticDepth(nn.Module):
    """Drops a whole sample of a residual branch with probability ``p`` in training."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training or not self.p:
            return x
        kept = torch.rand(x.shape[0], 1, 1, 1, device=x.device) >= self.p
        return x * kept / (1 - self.p)


class InvertedResidual(nn.Module):
    """Expand, convolve each channel alone, squeeze and excite, project."""

    def __init__(self, inputs: int, outputs: int, expansion: int, kernel: int, stride: int, drop: float) -> None:
        super().__init__()
        wide = inputs * expansion
        layers: list[nn.Module] = [_conv(inputs, wide, 1)] if expansion > 1 else []
        layers += [
            _conv(wide, wide, kernel, stride, groups=wide),
            SqueezeExcite(wide, max(1, inputs // 4)),
            _conv(wide, outputs, 1, act=False),
        ]
        self.branch = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs
        self.drop = StochasticDepth(drop)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.branch(x)
        return x + self.drop(y) if self.residual else y


class EfficientNet(nn.Module):
    """``f32[N, 3, H, W]`` to ``f32[N, classes]``. ``width`` and ``depth`` scale B0's channels and blocks."""

    def __init__(self, width: float, depth: float, dropout: float, classes: int, stages: int = len(_STAGES)) -> None:
        super().__init__()
        plan = [(e, _channels(c * width), math.ceil(n * depth), s, k) for e, c, n, s, k in _STAGES[:stages]]
        total = sum(n for _, _, n, _, _ in plan)
        channels = _channels(32 * width)
        self.stem = _conv(3, channels, 3, 2)
        blocks = []
        for expansion, outputs, count, stride, kernel in plan:
            for j in range(count):
                drop = 0.2 * len(blocks) / total
                blocks.append(InvertedResidual(channels, outputs, expansion, kernel, 1 if j else stride, drop))
                channels = outputs
        self.blocks = nn.Sequential(*blocks)
        features = _channels(1280 * width)
        self.top = nn.Sequential(_conv(channels, features, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(features, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.top(self.blocks(self.stem(x))))

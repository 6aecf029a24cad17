"""Residual networks, after He et al., "Deep Residual Learning for Image Recognition" (2015).

The stride of a bottleneck lies in its 3 x 3 convolution, as in most implementations since.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F


def conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """A convolution without bias that keeps the size (up to its stride), and batch normalisation."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class Residual(nn.Module):
    """``relu(branch(x) + shortcut(x))``; the shortcut projects where shapes differ."""

    expansion = 1

    def __init__(self, inputs: int, outputs: int, stride: int, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else conv_norm(inputs, outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.branch(x) + self.shortcut(x))


class BasicBlock(Residual):
    """Two 3 x 3 convolutions."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        first, second = conv_norm(inputs, width, 3, stride), conv_norm(width, width, 3)
        super().__init__(inputs, width, stride, nn.Sequential(first, nn.ReLU(), second))


class Bottleneck(Residual):
    """A 3 x 3 convolution between two of 1 x 1; four times as many channels come out."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        outputs = width * self.expansion
        narrow, middle = conv_norm(inputs, width, 1), conv_norm(width, width, 3, stride)
        branch = nn.Sequential(narrow, nn.ReLU(), middle, nn.ReLU(), conv_norm(width, outputs, 1))
        super().__init__(inputs, outputs, stride, branch)


class ResNet(nn.Module):
    """``f32[N, 3, H, W]`` to ``f32[N, classes]``. ``depths``: blocks of each stage; channels double."""

    def __init__(self, block: type[BasicBlock | Bottleneck], depths: Sequence[int], width: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        stages, channels = [], width
        for i, depth in enumerate(depths):
            blocks = []
            for j in range(depth):
                blocks.append(block(channels, width << i, 2 if i and not j else 1))
                channels = (width << i) * block.expansion
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.stages(self.stem(x)))
        return self.head(torch.flatten(x, 1))

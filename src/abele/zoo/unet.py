"""U-Net, after Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation" (2015).

Convolutions are padded, so that the output has the size of the input, and followed by batch normalisation.
"""

from __future__ import annotations

import torch
from torch import nn


def _pair(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        conv = nn.Conv2d(channels, outputs, 3, padding=1, bias=False)
        layers += [conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """``f32[N, inputs, H, W]`` to ``f32[N, classes, H, W]``; H and W are multiples of ``2 ** levels``."""

    def __init__(self, inputs: int, classes: int, width: int, levels: int) -> None:
        super().__init__()
        sizes = [width << i for i in range(levels + 1)]
        self.down = nn.ModuleList(_pair(a, b) for a, b in zip([inputs, *sizes[:-1]], sizes, strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose2d(n, n // 2, 2, 2) for n in sizes[:0:-1])
        self.join = nn.ModuleList(_pair(n, n // 2) for n in sizes[:0:-1])
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for i, block in enumerate(self.down):
            x = block(x if not i else self.pool(x))
            kept.append(x)
        kept.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([kept.pop(), up(x)], dim=1))
        return self.head(x)

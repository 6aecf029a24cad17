"""Models that do not fit or run slowly on m2000, without values, so that they are quick to capture."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn


class Layers(nn.Module):
    """Linear layers of these widths; with a target it gives its loss too."""

    def __init__(self, *widths: int):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def forward(self, x, y=None):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        x = self.layers[-1](x)
        return x if y is None else (x, nn.functional.mse_loss(x, y))


def wide(batch):
    with torch.device("meta"):
        return Layers(*[6144] * 9), (torch.empty(batch, 6144),)


def trained(batch):
    with torch.device("meta"):
        return Layers(*[4096] * 6), (torch.empty(batch, 4096), torch.empty(batch, 4096))


def narrow(batch):
    with torch.device("meta"):
        return Layers(*[512] * 9), (torch.empty(batch, 512), torch.empty(batch, 512))


def images(batch):
    with torch.device("meta"):
        body = nn.Sequential(nn.Conv2d(3, 64, 7, 2), nn.ReLU(), nn.Conv2d(64, 128, 3, 2), nn.ReLU(), nn.Flatten())
        return nn.Sequential(body, nn.Linear(128 * 15 * 15, 100)), (torch.empty(batch, 3, 68, 68),)

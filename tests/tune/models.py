"""Small models and machines to tune."""

from itertools import pairwise

import torch
from torch import nn

from abele.machine import gc200, one_ipu

small = one_ipu(gc200.derive("small", tiles=16, tile_memory=64 * 1024)).with_ipus(4)
tiny = one_ipu(gc200.derive("tiny", tiles=16, tile_memory=18 * 1024)).with_ipus(2)


class Net(nn.Module):
    """Linear layers of these widths; with a target it gives its loss too."""

    def __init__(self, *widths):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def forward(self, x, y=None):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        x = self.layers[-1](x)
        return x if y is None else (x, nn.functional.mse_loss(x, y))


def deep(batch):
    return Net(64, 128, 128, 128, 64), (torch.zeros(batch, 64), torch.zeros(batch, 64))


def inference(batch):
    return Net(64, 128, 64), (torch.zeros(batch, 64),)


def large(batch):
    return Net(256, 1024, 256), (torch.zeros(batch, 256), torch.zeros(batch, 256))


def of_one_size():
    return Net(64, 128, 64), (torch.zeros(8, 64),)

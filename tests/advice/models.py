"""Models that do not fit or run slowly on m2000, without values, so that they are quick to capture."""

from __future__ import annotations

import torch
from torch import nn

from tests.tune.models import Net


def wide(batch):
    with torch.device("meta"):
        return Net(*[6144] * 9), (torch.empty(batch, 6144),)


def trained(batch):
    with torch.device("meta"):
        return Net(*[4096] * 6), (torch.empty(batch, 4096), torch.empty(batch, 4096))


def narrow(batch):
    with torch.device("meta"):
        return Net(*[512] * 9), (torch.empty(batch, 512), torch.empty(batch, 512))


def images(batch):
    with torch.device("meta"):
        body = nn.Sequential(nn.Conv2d(3, 64, 7, 2), nn.ReLU(), nn.Conv2d(64, 128, 3, 2), nn.ReLU(), nn.Flatten())
        return nn.Sequential(body, nn.Linear(128 * 15 * 15, 100)), (torch.empty(batch, 3, 68, 68),)

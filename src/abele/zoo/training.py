"""Forwards that return (output, loss), as training on the machine wants them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class Classifier(nn.Module):
    """A network whose output scores classes (in dimension 1, or in the last for sequences), with cross entropy.

    ``forward(x, labels)``: scores and the mean loss, ``f32[]``.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = self.net(x)
        if labels.dim() == 2 and scores.dim() == 3:
            return scores, F.cross_entropy(scores.flatten(0, 1), labels.flatten())
        return scores, F.cross_entropy(scores, labels)


class FromBytes(nn.Module):
    """A network of images ``u8[batch, 3, …]``, which it takes in the type of its weights, normalised by channel.

    What comes behind the images is handed on.
    """

    scale: torch.Tensor
    shift: torch.Tensor

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("scale", torch.ones(3, 1, 1))
        self.register_buffer("shift", torch.zeros(3, 1, 1))

    def forward(self, x: torch.Tensor, *behind: torch.Tensor) -> Any:
        return self.net(x.to(self.scale.dtype) * self.scale + self.shift, *behind)


class WithLoss(nn.Module):
    """A model of ``transformers`` that is given labels: its scores and its loss."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, **inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        loss, scores = self.net(**inputs)[:2]
        return scores, loss


def classifier(net: nn.Module, training: bool) -> nn.Module:
    """The network, with its loss when it is to be trained."""
    return Classifier(net) if training else net

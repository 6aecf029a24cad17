"""Softmax and its gradients in torch."""

from __future__ import annotations

import torch

TWINS = {
    "softmax": lambda x, axis, safe=False: torch.ops.aten._safe_softmax(x, axis) if safe else torch.softmax(x, axis),
    "log_softmax": lambda x, axis: torch.log_softmax(x, axis),
    "softmax_grad": lambda dy, y, axis: y * (dy - (dy * y).sum(axis, keepdim=True)),
    "log_softmax_grad": lambda dy, y, axis: dy - y.exp() * dy.sum(axis, keepdim=True),
}

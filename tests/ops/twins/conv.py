"""Convolutions and their gradients in torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def convolution(x, w, strides, padding, dilation, groups, partials="f32"):
    """``conv`` with padding of its own on each side."""
    wide = F.pad(x, [n for pair in reversed(padding) for n in pair])
    return CONV[len(strides)](wide, w, None, strides, 0, dilation, groups)


def _input_grad(dy, w, strides, padding, dilation, groups, input_shape, partials):
    x = torch.zeros(input_shape, dtype=torch.float64, requires_grad=True)
    y = convolution(x, w, strides, padding, dilation, groups)
    return torch.autograd.grad(y, x, dy, create_graph=True)[0]


def _weight_grad(dy, x, strides, padding, dilation, groups, weight_shape, partials):
    w = torch.zeros(weight_shape, dtype=torch.float64, requires_grad=True)
    y = convolution(x, w, strides, padding, dilation, groups)
    return torch.autograd.grad(y, w, dy, create_graph=True)[0]


TWINS = {"conv": convolution, "conv_input_grad": _input_grad, "conv_weight_grad": _weight_grad}

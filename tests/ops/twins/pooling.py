"""Pooling in torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F

MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
ADAPTIVE_AVG = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
ADAPTIVE_MAX = {1: F.adaptive_max_pool1d, 2: F.adaptive_max_pool2d, 3: F.adaptive_max_pool3d}


def _pad(x, padding, value):
    return F.pad(x, [n for pair in reversed(padding) for n in pair], value=value)


def _max(x, kernel, strides, padding, dilation):
    return MAX[len(kernel)](_pad(x, padding, -torch.inf), kernel, strides, 0, dilation)


def _avg(x, kernel, strides, padding, count_include_pad, divisor):
    def total(t):
        taps = torch.ones((1, 1, *kernel), dtype=torch.float64)
        flat = _pad(t, padding, 0.0).reshape(-1, 1, *(n + sum(p) for n, p in zip(t.shape[2:], padding, strict=True)))
        conv = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[len(kernel)]
        summed = conv(flat, taps, None, strides)
        return summed.reshape(*t.shape[:2], *summed.shape[2:])

    if divisor is not None:
        return total(x) / divisor
    if count_include_pad:
        return total(x) / torch.tensor(kernel).prod()
    return total(x) / total(torch.ones((1, 1, *x.shape[2:]), dtype=torch.float64))


def _avg_grad(dy, kernel, strides, padding, count_include_pad, divisor, input_shape):
    x = torch.zeros(input_shape, dtype=torch.float64, requires_grad=True)
    y = _avg(x, kernel, strides, padding, count_include_pad, divisor)
    return torch.autograd.grad(y, x, dy, create_graph=True)[0]


TWINS = {
    "max_pool": _max,
    "avg_pool": _avg,
    "avg_pool_grad": _avg_grad,
    "adaptive_avg_pool": lambda x, output: ADAPTIVE_AVG[len(output)](x, output),
    "adaptive_max_pool": lambda x, output: ADAPTIVE_MAX[len(output)](x, output),
}

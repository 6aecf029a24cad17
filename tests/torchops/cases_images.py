"""Convolution, pooling, padding, resampling."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from tests.torchops.cases import Draw, M, case

_draw = Draw(14)
distinct, normal = _draw.distinct, _draw.normal

IMAGE, SIGNAL, VOLUME = normal(2, 4, 7, 6), normal(2, 4, 11), normal(1, 2, 4, 3, 5)
W1, W2, W3, BIAS = normal(6, 4, 3) / 4, normal(6, 2, 3, 2) / 4, normal(4, 2, 2, 2, 2) / 4, normal(6)
T1, T2, T3 = normal(4, 3, 3) / 4, normal(4, 3, 3, 2) / 4, normal(2, 3, 2, 2, 2) / 4
POOL1, POOL2, POOL3 = distinct(2, 3, 9), distinct(1, 2, 8, 6), distinct(1, 2, 4, 4, 6)
GRID = torch.tanh(normal(2, 3, 5, 2))


def one(f, *args, **kw):
    return [case(f, *args, **kw)]


CONVOLUTION = {
    "torch.nn.Conv1d": one(lambda x, w, b: F.conv1d(x, w, b, 2, 2, 2), SIGNAL, W1, BIAS)
    + one(lambda x, w: F.conv1d(x, w, padding="same"), SIGNAL, W1),
    "torch.nn.Conv2d": one(lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 0), 1, 2), IMAGE, W2, BIAS)
    + one(lambda x, w: F.conv2d(x[:, :2], w, dilation=2), IMAGE, W2),
    "torch.nn.Conv3d": one(lambda x, w: F.conv3d(x, w), VOLUME, W3),
    "torch.nn.ConvTranspose1d": one(lambda x, w: F.conv_transpose1d(x, w, None, 3, 1, 1), SIGNAL, T1),
    "torch.nn.ConvTranspose2d": one(lambda x, w: F.conv_transpose2d(x, w, None, 2, 1, (1, 0)), IMAGE, T2)
    + one(lambda x, w: F.conv_transpose2d(x, w, dilation=2, groups=2), IMAGE, T2),
    "torch.nn.ConvTranspose3d": one(lambda x, w: F.conv_transpose3d(x, w, stride=2), VOLUME, T3),
    "torch.nn.Fold": one(lambda x: F.fold(x.reshape(2, 12, -1)[:, :, :6], (4, 6), 2, stride=2), M),
    "torch.nn.Unfold": one(lambda m: F.unfold(m, 2, padding=1), M)
    + one(lambda m: F.unfold(m, (2, 3), dilation=(1, 2), stride=2), M),
}
POOLING = {
    "torch.nn.AdaptiveAvgPool1d": one(lambda x: F.adaptive_avg_pool1d(x, 4), SIGNAL),
    "torch.nn.AdaptiveAvgPool2d": one(lambda x: (F.adaptive_avg_pool2d(x, (3, 2)), F.adaptive_avg_pool2d(x, 1)), IMAGE),
    "torch.nn.AdaptiveAvgPool3d": one(lambda x: F.adaptive_avg_pool3d(x, (2, 3, 2)), VOLUME),
    "torch.nn.AdaptiveMaxPool1d": one(lambda x: F.adaptive_max_pool1d(x, 4), POOL1),
    "torch.nn.AdaptiveMaxPool2d": one(lambda x: F.adaptive_max_pool2d(x, (3, 2)), POOL2),
    "torch.nn.AdaptiveMaxPool3d": one(lambda x: F.adaptive_max_pool3d(x, (2, 2, 3)), POOL3),
    "torch.nn.AvgPool1d": one(lambda x: F.avg_pool1d(x, 3, 2, 1), SIGNAL),
    "torch.nn.AvgPool2d": one(
        lambda x: (
            F.avg_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
            F.avg_pool2d(x, 2, divisor_override=3),
            F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
        ),
        IMAGE,
    ),
    "torch.nn.AvgPool3d": one(lambda x: F.avg_pool3d(x, 2), VOLUME),
    "torch.nn.LPPool2d": one(lambda x: F.lp_pool2d(x.abs() + 0.1, 2, 2), IMAGE),
    "torch.nn.MaxPool1d": one(lambda x: F.max_pool1d(x, 3, 2, 1), POOL1),
    "torch.nn.MaxPool2d": one(
        lambda x: (F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, 3, 2, ceil_mode=True), F.max_pool2d(x, 2, dilation=2)),
        POOL2,
    )
    + one(lambda x: F.max_pool2d(x, 2, return_indices=True), POOL2),
    "torch.nn.MaxPool3d": one(lambda x: F.max_pool3d(x, 2), POOL3),
    "torch.nn.MaxUnpool2d": one(lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), POOL2),
}
PADDING = {
    "torch.nn.CircularPad2d": one(lambda m: F.pad(m, (1, 1, 2, 0), "circular"), M),
    "torch.nn.ConstantPad1d": one(lambda x: F.pad(x, (1, 2), value=3), SIGNAL),
    "torch.nn.ConstantPad2d": one(lambda x: F.pad(x, (1, 2, 0, 1), value=3), IMAGE)
    + one(lambda x: F.pad(x, (-1, 2)), IMAGE),
    "torch.nn.ConstantPad3d": one(lambda x: F.pad(x, (1, 2, 0, 1, 1, 0), value=3), VOLUME),
    "torch.nn.ReflectionPad1d": one(lambda x: F.pad(x, (2, 1), "reflect"), SIGNAL),
    "torch.nn.ReflectionPad2d": one(lambda x: F.pad(x, (2, 1, 1, 3), "reflect"), IMAGE),
    "torch.nn.ReflectionPad3d": one(lambda x: F.pad(x, (2, 1, 1, 2, 1, 0), "reflect"), VOLUME),
    "torch.nn.ReplicationPad1d": one(lambda x: F.pad(x, (2, 1), "replicate"), SIGNAL),
    "torch.nn.ReplicationPad2d": one(lambda x: F.pad(x, (2, 1, 1, 3), "replicate"), IMAGE),
    "torch.nn.ReplicationPad3d": one(lambda x: F.pad(x, (2, 1, 1, 3, 0, 1), "replicate"), VOLUME),
    "torch.nn.ZeroPad2d": one(nn.ZeroPad2d((1, 2, 0, 1)), IMAGE),
}


def _resize(**kw):
    return lambda x: F.interpolate(x, **kw)


RESAMPLING = {
    "torch.nn.ChannelShuffle": one(lambda x: F.channel_shuffle(x, 2), IMAGE),
    "torch.nn.PixelShuffle": one(lambda x: F.pixel_shuffle(x, 2), IMAGE),
    "torch.nn.PixelUnshuffle": one(lambda m: F.pixel_unshuffle(m, 2), M),
    "torch.nn.Upsample": one(nn.Upsample(scale_factor=2), IMAGE)
    + one(nn.Upsample(scale_factor=2, mode="bicubic"), IMAGE),
    "torch.nn.functional.affine_grid": one(
        lambda t: F.affine_grid(t, [2, 1, 3, 4], align_corners=False), normal(2, 2, 3)
    )
    + one(lambda t: F.affine_grid(t, [2, 1, 2, 3, 4], align_corners=True), normal(2, 3, 4)),
    "torch.nn.functional.grid_sample": [
        case(
            lambda x, g, mode=mode, pad=pad, corners=corners: F.grid_sample(x, g, mode, pad, corners),
            IMAGE,
            GRID * 1.2,
            half="" if mode != "nearest" else "a rounded position",
        )
        for mode, pad, corners in (
            ("bilinear", "zeros", False),
            ("bilinear", "border", True),
            ("bilinear", "reflection", False),
            ("nearest", "zeros", True),
            ("bicubic", "zeros", False),
            ("bicubic", "border", True),
        )
    ]
    + one(lambda x, g: F.grid_sample(x, g, align_corners=False), VOLUME, torch.tanh(normal(1, 2, 2, 3, 3))),
    "torch.nn.functional.interpolate": [
        case(_resize(**kw), image)
        for image, kw in (
            (IMAGE, {"scale_factor": 2}),
            (IMAGE, {"size": (5, 11)}),
            (IMAGE, {"size": (5, 4), "mode": "nearest-exact"}),
            (SIGNAL, {"size": 7, "mode": "linear"}),
            (IMAGE, {"scale_factor": 1.5, "mode": "bilinear"}),
            (IMAGE, {"size": (4, 9), "mode": "bilinear", "align_corners": True}),
            (IMAGE, {"size": (12, 5), "mode": "bicubic"}),
            (VOLUME, {"scale_factor": 2, "mode": "trilinear"}),
            (IMAGE, {"size": (3, 4), "mode": "area"}),
            (IMAGE, {"size": (5, 4), "mode": "bilinear", "antialias": True}),
            (IMAGE, {"size": (4, 4), "mode": "bicubic", "antialias": True}),
            (VOLUME, {"size": (3, 5, 4), "mode": "nearest"}),
            (IMAGE, {"scale_factor": 0.6, "mode": "bilinear", "recompute_scale_factor": True}),
        )
    ],
}
SECTIONS = {"Convolution": CONVOLUTION, "Pooling": POOLING, "Padding": PADDING, "Resampling": RESAMPLING}

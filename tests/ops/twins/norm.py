"""Normalisation in torch: forward with its statistics, gradients written out or by autograd."""

from __future__ import annotations

import torch.nn.functional as F


def _moments(x, dims):
    mean = x.mean(dims, keepdim=True)
    return mean.squeeze(dims), ((x - mean) ** 2).mean(dims)


def _layer(x, w=None, b=None, *, axes, eps):
    dims = tuple(range(x.ndim - axes, x.ndim))
    mean, variance = _moments(x, dims)
    return F.layer_norm(x, x.shape[-axes:], w, b, eps), mean, (variance + eps).rsqrt()


def _batch(x, w=None, b=None, *, eps):
    dims = (0, *range(2, x.ndim))
    mean, variance = _moments(x, dims)
    return F.batch_norm(x, None, None, w, b, training=True, eps=eps), mean, variance


def _group(x, w=None, b=None, *, groups, eps):
    mean, variance = _moments(x.reshape(x.shape[0], groups, -1), (2,))
    return F.group_norm(x, groups, w, b, eps), mean, (variance + eps).rsqrt()


def _grad(dy, x, mean, rstd, w, view, dims, kept):
    """The formula on a view, with the statistics as given."""
    shape, x, dy = x.shape, x.reshape(view), dy.reshape(view)
    normal = (x - mean) * rstd
    g = dy if w is None else dy * w.reshape(kept)
    dx = rstd * (g - g.mean(dims, keepdim=True) - normal * (g * normal).mean(dims, keepdim=True))
    if w is None:
        return dx.reshape(shape)
    other = [i for i, n in enumerate(kept) if n == 1]
    dw, db = (v.sum(other).reshape(w.shape) if other else v.reshape(w.shape) for v in (dy * normal, dy))
    return dx.reshape(shape), dw, db


def _layer_grad(dy, x, mean, rstd, w=None, *, axes):
    dims = tuple(range(x.ndim - axes, x.ndim))
    stat = (*mean.shape, *(1,) * axes)
    kept = (*(1,) * mean.ndim, *x.shape[-axes:])
    return _grad(dy, x, mean.reshape(stat), rstd.reshape(stat), w, x.shape, dims, kept)


def _batch_grad(dy, x, mean, variance, w=None, *, eps):
    dims = (0, *range(2, x.ndim))
    kept = (1, -1, *(1,) * (x.ndim - 2))
    rstd = (variance + eps).rsqrt()
    kept = tuple(x.shape[1] if n == -1 else 1 for n in kept)
    return _grad(dy, x, mean.reshape(kept), rstd.reshape(kept), w, x.shape, dims, kept)


def _group_grad(dy, x, mean, rstd, w=None, *, groups):
    view = (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    stat = (*mean.shape, *(1,) * (len(view) - 2))
    kept = (1, groups, x.shape[1] // groups, *(1,) * (len(view) - 3))
    return _grad(dy, x, mean.reshape(stat), rstd.reshape(stat), w, view, tuple(range(2, len(view))), kept)


def _inference(x, w, b, mean, variance, eps):
    # torch's own has no gradient of the running statistics
    per = (1, -1, *(1,) * (x.ndim - 2))
    scale = (w * (variance + eps).rsqrt()).reshape(per)
    return (x - mean.reshape(per)) * scale + b.reshape(per)


TWINS = {
    "layer_norm": _layer,
    "layer_norm_grad": _layer_grad,
    "batch_norm": _batch,
    "batch_norm_grad": _batch_grad,
    "batch_norm_inference": _inference,
    "group_norm": _group,
    "group_norm_grad": _group_grad,
    "rms_norm": lambda x, w=None, *, axes, eps: F.rms_norm(x, x.shape[-axes:], w, eps),
}

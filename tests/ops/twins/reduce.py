"""Reductions in torch."""

from __future__ import annotations

import torch


def _prod(x, axes, keep):
    for d in reversed(axes):
        x = x.prod(d, keepdim=keep)
    return x


def _extreme(reduce, empty):
    def twin(x, axes, keep):
        if any(x.shape[d] == 0 for d in axes):  # torch refuses; ours is the identity
            shape = [1 if d in axes else n for d, n in enumerate(x.shape) if keep or d not in axes]
            return torch.full(shape, empty, dtype=x.dtype) + 0 * x.sum()
        return reduce(x, dim=axes, keepdim=keep) if axes else x

    return twin


def _norm(x, order, axes, keep):
    return torch.linalg.vector_norm(x, order, axes, keep) if x.numel() else x.sum(axes, keepdim=keep)


TWINS = {
    "reduce_sum": lambda x, axes, keep: x.sum(axes, keepdim=keep) if axes else x,
    "reduce_prod": _prod,
    "reduce_max": _extreme(torch.amax, float("-inf")),
    "reduce_min": _extreme(torch.amin, float("inf")),
    "reduce_any": lambda x, axes, keep: torch.any(x, axes, keep) if axes else x,
    "reduce_all": lambda x, axes, keep: torch.all(x, axes, keep) if axes else x,
    "cumsum": lambda x, axis: torch.cumsum(x, axis),
    "mean": lambda x, axes, keep: x.mean(axes, keepdim=keep),
    "variance": lambda x, axes, keep, correction: x.var(axes, correction=correction, keepdim=keep),
    "std": lambda x, axes, keep, correction: x.std(axes, correction=correction, keepdim=keep),
    "logsumexp": lambda x, axes, keep: torch.logsumexp(x, axes, keep),
    "norm": _norm,
    "arg_max": lambda x, axis, keep: torch.from_numpy(x.numpy().argmax(axis, keepdims=keep)),
    "arg_min": lambda x, axis, keep: torch.from_numpy(x.numpy().argmin(axis, keepdims=keep)),
}

"""Indexing in torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.ops.twins.elementwise import DTYPES


def gather(x, indices, axis):
    chosen = x.index_select(axis, indices.reshape(-1))
    return chosen.reshape(x.shape[:axis] + indices.shape + x.shape[axis + 1 :])


def scatter_add(base, indices, updates, axis):
    flat = updates.reshape((*base.shape[:axis], indices.numel(), *base.shape[axis + 1 :]))
    return base.index_add(axis, indices.reshape(-1), flat)


def scatter_elements(base, indices, updates, axis, reduction):
    """With reduction ``none`` torch does not say which of several updates stays: here the last does."""
    indices = indices.long()
    if reduction == "none":
        place = [p.reshape(-1) for p in torch.meshgrid(*(torch.arange(n) for n in indices.shape), indexing="ij")]
        place[axis] = indices.reshape(-1)
        done = base.clone()
        for i in range(indices.numel()):
            done[tuple(int(p[i]) for p in place)] = updates.reshape(-1)[i]
        return done
    how = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[reduction]
    return base.scatter_reduce(axis, indices, updates, how)


def top_k(x, k, axis, largest):
    """Torch's ``topk`` says nothing of ties: a stable sort does."""
    values, indices = torch.sort(x, dim=axis, descending=largest, stable=True)
    return values.narrow(axis, 0, k), indices.narrow(axis, 0, k)


TWINS = {
    "gather": gather,
    "scatter_add": scatter_add,
    "gather_elements": lambda x, indices, axis: torch.gather(x, axis, indices.long()),
    "scatter_elements": scatter_elements,
    "top_k": top_k,
    "sort": lambda x, axis, descending: tuple(torch.sort(x, dim=axis, descending=descending, stable=True)),
    "embedding": lambda weight, indices, padding_index: F.embedding(indices, weight, padding_index),
    "one_hot": lambda indices, classes, dtype: F.one_hot(indices.long(), classes).to(DTYPES[dtype]),
}

"""Matrix products in torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def _matmul(a, b, transpose_a, transpose_b, partials):
    return torch.matmul(a.mT if transpose_a else a, b.mT if transpose_b else b)


TWINS = {
    "matmul": _matmul,
    "linear": lambda x, w, b=None, partials="f32": F.linear(x, w, b),
}

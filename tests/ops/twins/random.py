"""What torch makes of the mask of a dropout; the numbers themselves have twins in the published answers of Philox."""

from __future__ import annotations

import numpy as np
import torch

from abele.ops.random.op import uniform


def numbers(key, shape):
    """The uniform numbers of a key, as ``random_uniform`` is checked to make them."""
    size = int(np.prod(shape))
    made = uniform(key.numpy().astype(np.uint32), 0, size, {"dtype": "f32", "low": 0.0, "high": 1.0})
    return torch.from_numpy(made.reshape(tuple(shape)).astype(np.float64))


def dropout(x, key, p):
    mask = numbers(key, x.shape) >= np.float32(p).item()
    return x * mask / (1.0 - p) if p < 1 else x * 0.0, mask


TWINS = {
    "dropout": dropout,
    "bernoulli": lambda p, key: (numbers(key, p.shape) < p).double(),
}

"""Helpers for tests of models."""

from __future__ import annotations

from typing import Any

import torch

from ._structure import flatten


def allclose(ref: Any, other: Any) -> bool:
    """Whether two results have the same structure and tensors that are equal but for rounding.

    Args:
        ref, other: tensors, or tuples, lists and dictionaries of them.
    """
    if isinstance(ref, torch.Tensor) or isinstance(other, torch.Tensor):
        both = isinstance(ref, torch.Tensor) and isinstance(other, torch.Tensor)
        return both and ref.shape == other.shape and torch.allclose(ref, other.to(ref.dtype))
    if isinstance(ref, (tuple, list)):
        same = isinstance(other, (tuple, list)) and len(ref) == len(other)
        return same and all(allclose(a, b) for a, b in zip(ref, other))
    if isinstance(ref, dict):
        same = isinstance(other, dict) and ref.keys() == other.keys()
        return same and all(allclose(ref[k], other[k]) for k in ref)
    tensors = flatten(ref), flatten(other)
    if tensors[0] or tensors[1]:
        return allclose(*tensors)
    return ref == other

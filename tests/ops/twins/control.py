"""Markers and collectives in torch, as one replica alone sees them."""

from __future__ import annotations

TWINS = {
    "all_reduce": lambda x, reduction: x,
    "checkpoint": lambda x: x,
    "print_tensor": lambda x, title: x,
}

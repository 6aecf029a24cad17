"""Pooling."""

from abele.ops.pooling import op

__all__ = ["op"]

"""Pooling."""

from abele.ops.pooling import op, plan

__all__ = ["op", "plan"]

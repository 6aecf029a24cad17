"""Convolutions."""

from abele.ops.conv import op, plan

__all__ = ["op", "plan"]

"""Scaled dot-product attention."""

from abele.ops.attention import op, plan

__all__ = ["op", "plan"]

"""Softmax."""

from abele.ops.softmax import op, plan

__all__ = ["op", "plan"]

"""Softmax."""

from abele.ops.softmax import op

__all__ = ["op"]

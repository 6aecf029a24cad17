"""Normalisation."""

from abele.ops.norm import op, plan

__all__ = ["op", "plan"]

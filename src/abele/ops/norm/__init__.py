"""Normalisation."""

from abele.ops.norm import op

__all__ = ["op"]

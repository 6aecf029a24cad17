"""A map over neighbours, as the compiler makes it of shifted slices: every element from those about its own place."""

from abele.ops.stencil import op, plan

__all__ = ["op", "plan"]

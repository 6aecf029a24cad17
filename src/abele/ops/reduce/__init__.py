"""Reductions, arg-reductions, running sums, and the statistics composed of them."""

from abele.ops.reduce import composites, op, plan

__all__ = ["composites", "op", "plan"]

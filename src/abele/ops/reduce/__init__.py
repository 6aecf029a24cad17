"""Reductions, arg-reductions, running sums, and the statistics composed of them."""

from abele.ops.reduce import op, composites, plan  # isort: skip  (composites are made of op's)

__all__ = ["composites", "op", "plan"]

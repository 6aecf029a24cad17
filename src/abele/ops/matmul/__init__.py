"""Matrix products."""

from abele.ops.matmul import op, plan

__all__ = ["op", "plan"]

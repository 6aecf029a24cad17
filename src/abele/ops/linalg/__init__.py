"""Linear algebra on batches of small matrices: factorisations, linear systems, determinants."""

from abele.ops.linalg import op, plan

__all__ = ["op", "plan"]

"""What replicas do together: all-reduce, reduce-scatter, all-gather, all-to-all, and the part that is one's own."""

from abele.ops.collectives import op, plan

__all__ = ["op", "plan"]

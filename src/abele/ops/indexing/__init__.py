"""Indexing: gather, scatter, top-k, sort, embedding, one-hot."""

from abele.ops.indexing import op, order, plan

__all__ = ["op", "order", "plan"]

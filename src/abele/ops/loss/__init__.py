"""Losses. All are composites that are expanded: they have no plans of their own."""

from abele.ops.loss import classes, op

__all__ = ["classes", "op"]

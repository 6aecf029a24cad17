"""Losses. All but CTC are composites that are expanded: they have no plans of their own."""

from abele.ops.loss import classes, ctc, op, plan

__all__ = ["classes", "ctc", "op", "plan"]

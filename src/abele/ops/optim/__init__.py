"""Optimisers: SGD with momentum, Adam, AdamW, RMSprop, LAMB."""

from abele.ops.optim import op, plan

__all__ = ["op", "plan"]

"""Random numbers: keys, uniform, normal, Bernoulli, dropout."""

from abele.ops.random import op, plan

__all__ = ["op", "plan"]

"""Streams to and from the host, and markers."""

from abele.ops.control import custom, op, plan

__all__ = ["custom", "op", "plan"]

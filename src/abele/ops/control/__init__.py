"""Streams to and from the host, and markers."""

from abele.ops.control import op, plan

__all__ = ["op", "plan"]

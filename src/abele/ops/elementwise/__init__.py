"""Elementwise operations: functions of one element, broadcasting, casts, constants, and the maps that fuse chains."""

from abele.ops.elementwise import composites, maps, op, plan, special

__all__ = ["composites", "maps", "op", "plan", "special"]

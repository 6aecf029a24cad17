"""Elementwise operations: functions of one element, broadcasting, casts, constants, and the maps that fuse chains."""

from abele.ops.elementwise import op, fuse, composites, plan  # isort: skip  (composites are made of op's)
from abele.ops.elementwise.functions import ELEMENTWISE

__all__ = ["ELEMENTWISE", "composites", "fuse", "op", "plan"]

"""Operations that move elements: views, transposes, slices, padding, joining."""

from abele.ops.shape import composites, op, plan

__all__ = ["composites", "op", "plan"]

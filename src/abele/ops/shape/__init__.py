"""Operations that move elements: views, transposes, slices, padding, joining."""

from abele.ops.shape import op, composites, plan  # isort: skip  (composites are made of op's)

__all__ = ["composites", "op", "plan"]

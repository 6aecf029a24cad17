"""A product, convolution or norm with a map behind it, as the compiler makes them."""

from abele.ops.fused import op, plan

__all__ = ["op", "plan"]

"""Stochastic rounding to half: up with a probability that is the part that is cut, so that the mean is exact."""

from __future__ import annotations

from dataclasses import dataclass, field

from abele.ir.builder import Builder
from abele.ir.graph import Port, Value
from abele.ir.types import DType, TensorType

SEED = "rounding_seed"
"""The state that holds the seed, ``u32[2]``: the same on all replicas, whose equal weights stay equal."""

_FIRST_KEY = 2**32
"""Keys are numbered from here, so that they are none of those that a model draws from the same seed."""
_UNIT = 2.0**-10
"""Spacing of half over the number, for a power of two."""
_LEAST, _MOST = 2.0**-24, 2.0**5
"""Spacing of the smallest and of the largest halves."""


@dataclass
class StochasticRounding:
    """Rounds floats to half, each with random numbers of its own.

    The hardware does this while it rounds, at no cost; here the numbers are drawn and compared, and charged.
    """

    builder: Builder
    seed: Value = field(init=False)
    count: int = 0

    def __post_init__(self) -> None:
        self.seed = self.builder.input(TensorType((2,), DType.U32), "state", SEED)

    def __call__(self, x: Value) -> Value:
        """A float tensor, rounded to half."""
        b = self.builder
        key = b.emit("random_key", [self.seed], {"index": _FIRST_KEY + self.count})[0]
        self.count += 1
        drawn = b.random_uniform(key, shape=x.shape, dtype="f32", low=0.0, high=1.0)
        size = b.abs(x)
        nearest = self._on_grid(size)
        over = b.gt(nearest, size)
        # more than half a spacing away, and less than one and a half: the next half, by whatever exponent
        down, up = (self._on_grid(b.mul(nearest, b.constant(1 + 0.6 * s * _UNIT, DType.F32))) for s in (-1, 1))
        least, most = (b.constant(limit, DType.F32) for limit in (_LEAST, _MOST))
        spacing = b.min(b.max(b.select(over, b.sub(nearest, down), b.sub(up, nearest)), least), most)
        lower = b.select(over, b.sub(nearest, spacing), nearest)
        goes_up = b.lt(b.mul(drawn, spacing), b.sub(size, lower))
        made = b.add(lower, b.select(goes_up, spacing, b.constant(0.0, DType.F32)))
        return b.cast_to(b.select(b.lt(x, b.constant(0.0, DType.F32)), b.neg(made), made), DType.F16)

    def _on_grid(self, x: Value) -> Value:
        return self.builder.cast_to(self.builder.cast_to(x, DType.F16), DType.F32)

    def following(self) -> tuple[Value, Port]:
        """The next value of the seed."""
        step = self.builder.iota(shape=(2,), axis=0, dtype=str(self.seed.dtype))
        return self.builder.add(self.seed, step), Port("state", SEED)

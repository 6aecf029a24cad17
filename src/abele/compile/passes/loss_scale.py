"""A loss scale that follows the gradients: halved when some of them come near the end of half's range, else doubled.

The loss is multiplied by the optimiser's own number times a factor, a state that starts at one. Autodiff counts, in
every micro-batch, the elements of half gradients that lie above an edge; the update compares their share with a
threshold and gives the factor its next value. Names and defaults are those of the vendor's session options
(graphcore/popart, ``sessionoptions.hpp``: ``AutomaticLossScalingSettings``); the scale's limits are our own choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from abele.ir.builder import Builder
from abele.ir.graph import Operation, Value
from abele.ir.operation import has
from abele.ir.rules import CONTROL
from abele.ir.types import DType

FACTOR = "optimiser.loss_scale_factor"
"""The state that multiplies the loss scale; it starts at one, which the host must write."""

WAITED = "optimiser.loss_scale_waited"
"""The state that counts the updates of weights since the factor's last, where it does not move at each."""

LARGE = "large_gradients"
"""The statistic: which share of the elements of half gradients is large."""

HALF_MAX = 65504.0
LARGEST, LEAST = 2.0**15, 2.0**-24
"""The scale itself stays between these, or half losses would overflow and vanish."""

_PRODUCTS = ("matmul", "linear", "conv", "conv_input_grad", "conv_weight_grad", "attention_grad")


@dataclass(frozen=True)
class AdaptiveScale:
    """When the scale moves.

    Attributes:
        edge: an element is large from this share of half's range on.
        threshold: the scale is halved when more than this share of the elements is large.
        period: the scale moves with every so many updates of the weights.
        products: only what convolutions and matrix products make is looked at, else all half gradients.
        weights: where not empty, only the gradients of these weights are looked at.
        anchor: name of the stream that the scale in use is sent to in every micro-batch, or empty.
    """

    edge: float = 0.0625
    threshold: float = 1e-7
    period: int = 1
    products: bool = False
    weights: tuple[str, ...] = ()
    anchor: str = ""

    def tracked(self, operations: Iterable[Operation]) -> list[tuple[Operation, Value]]:
        """The half gradients among what operations of the backward phase make."""
        return [
            (op, value)
            for op in operations
            if op.name not in CONTROL and not has(op.name, "view") and op.name not in ("fill", "expand")
            if not self.products or op.name in _PRODUCTS
            for value in op.results
            if value.dtype is DType.F16
        ]

    def counted(self, b: Builder, found: Sequence[tuple[Operation, Value]]) -> Value | None:
        """How many elements of these gradients are large, not a number included; emitted beside each of them."""
        total = None
        for op, value in found:
            with b.at(replace(op.origin, phase="backward")):
                small = b.le(b.abs(value), b.constant(self.edge * HALF_MAX, DType.F16))
                large = b.cast(b.logical_not(small), dtype=str(DType.F32))
                count = b.reduce_sum(large, axes=tuple(range(len(value.shape))))
                total = count if total is None else b.add(total, count)
        return total

    def scale(self, b: Builder, number: Value, factor: Value) -> Value:
        """What the loss is multiplied by."""
        return b.mul(number, factor)

    def following(self, b: Builder, number: Value, factor: Value, share: Value) -> Value:
        """The factor's next value."""

        def constant(value: float) -> Value:
            return b.constant(value, DType.F32)

        step = b.select(b.gt(share, constant(self.threshold)), constant(0.5), constant(2.0))
        most = b.max(constant(LARGEST), number)
        moved = b.min(b.mul(self.scale(b, number, factor), step), most)
        return b.div(b.max(moved, constant(LEAST)), number)

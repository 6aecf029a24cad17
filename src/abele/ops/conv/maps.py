"""A convolution or one of its gradients as a map: its axes, those that it sums over, and what a block of it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from abele.ir.types import DType, TensorType
from abele.ops.plans.halo import Halo
from abele.ops.plans.partials import partials_type
from abele.ops.plans.planning import Question
from abele.ops.plans.search import Dimension
from abele.ops.rules import extents
from abele.schedule.layout import Span


def picks_positions(question: Question) -> bool:
    """True where a strided kernel of one position skips whole positions of the input, so that they need not be read.

    The input is then viewed with every axis of the field in two, (rows, stride), of which index 0 is read: a map of
    stride 1. Padding and sizes that the stride does not divide have no such view; the gradient of the input writes
    the skipped positions too.
    """
    a: dict[str, Any] = dict(question.attributes)
    if question.operation == "conv_input_grad":
        return False
    x, w = question.operands[0 if question.operation == "conv" else 1], question.operands[1]
    kernel = w.shape[2:] if question.operation == "conv" else question.results[0].shape[2:]
    return (
        set(kernel) == {1}
        and max(a["strides"]) > 1
        and not any(map(sum, a["padding"]))
        and not any(size % stride for size, stride in zip(x.shape[2:], a["strides"], strict=True))
    )


@dataclass(frozen=True, slots=True)
class Map:
    """One of the three maps with its axes. ``summed`` are the axes that the result does not keep."""

    name: str
    dimensions: tuple[Dimension, ...]
    summed: tuple[str, ...]
    operands: tuple[Halo, Halo]
    result: Halo
    dtype: DType
    partials: DType
    kernel: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, question: Question) -> Map:
        a: dict[str, Any] = dict(question.attributes)
        name, chip = question.operation, question.chip
        first, second = question.operands
        (result,) = question.results
        x, w, y = {
            "conv": (first, second, result),
            "conv_input_grad": (result, second, first),
            "conv_weight_grad": (second, result, first),
        }[name]
        groups, spatial = a["groups"], x.rank - 2
        kernel, dtype = w.shape[2:], first.dtype
        partials = partials_type(dtype, a["partials"])
        n, ins, outs = x.shape[0], w.shape[1], w.shape[0] // groups
        plain = Span(0)
        at = range(spatial)
        field = tuple(f"f{i}" for i in at)
        spans = extents(kernel, a["dilation"])
        window = tuple(Span(0, s, -p[0], e) for s, p, e in zip(a["strides"], a["padding"], spans, strict=True))
        inverse = tuple(
            Span(0, 1, p[0] - e + 1, e, s) for s, p, e in zip(a["strides"], a["padding"], spans, strict=True)
        )
        none = (None,) * spatial
        taps = Halo((groups, outs, ins, *kernel), ("g", "o", "c", *none), (plain,) * (3 + spatial))

        def map_(channel: str, count: int, type_: TensorType, field_spans: Sequence[Span]) -> Halo:
            if picks and type_ is x:
                # rows of every stride positions, and of each the first
                sizes = (
                    n,
                    groups,
                    count,
                    *(z for s, d in zip(a["strides"], x.shape[2:], strict=True) for z in (d // s, s)),
                )
                twice = tuple(f for f in field for _ in (0, 1))
                return Halo(sizes, ("n", "g", channel, *twice), (*(plain,) * 3, *(plain, Span(0, 0)) * spatial))
            sizes = (n, groups, count, *type_.shape[2:])
            return Halo(sizes, ("n", "g", channel, *field), (plain,) * 3 + tuple(field_spans))

        here = (plain,) * spatial
        picks = picks_positions(question)
        if name == "conv":
            operands, made = (map_("c", ins, x, window), taps), map_("o", outs, y, here)
            summed, sizes = ("c",), y.shape[2:]
        elif name == "conv_input_grad":
            operands, made = (map_("o", outs, y, inverse), taps), map_("c", ins, x, here)
            summed, sizes = ("o",), x.shape[2:]
        else:
            operands, made = (map_("o", outs, y, here), map_("c", ins, x, window)), taps
            summed, sizes = ("n", *field), y.shape[2:]
        units, block = max(1, chip.amp_units(dtype, partials)), max(1, chip.amp_in_group(dtype))
        out_grain, in_grain = (block, units) if name == "conv_input_grad" else (units, block)
        narrow = ins == outs == 1
        dimensions = (
            Dimension("n", n),
            Dimension("g", groups, max(1, chip.data_path_bytes // dtype.bytes) if narrow else 1),
            Dimension("o", outs, out_grain),
            Dimension("c", ins, in_grain),
            *(Dimension(f, size) for f, size in zip(field, sizes, strict=True)),
        )
        strides = (1,) * spatial if picks else tuple(a["strides"])
        return cls(name, dimensions, summed, operands, made, dtype, partials, kernel, strides)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(d.name for d in self.dimensions)

    @property
    def channel(self) -> str:
        """The channels of the result, which are done in turns when memory is short."""
        return "c" if self.name == "conv_input_grad" else "o"

    def part(self, turns: int, turn: int | None = 0) -> Map:
        """The map of one of ``turns`` equal parts of its channels: the dimension comes apart in (turn, within).

        ``None`` for the turn leaves the whole. The axis of that name, of size 1, says which turn it is.
        """
        if turns == 1:
            return self
        here = Span() if turn is None else Span(0, offset=turn)

        def cut(halo: Halo) -> Halo:
            if self.channel not in halo.axes:
                return halo
            at = halo.axes.index(self.channel)
            return Halo(
                (*halo.sizes[:at], turns, halo.sizes[at] // turns, *halo.sizes[at + 1 :]),
                (*halo.axes[:at], None if turn is None else "turn", *halo.axes[at:]),
                (*halo.spans[:at], here, *halo.spans[at:]),
            )

        dimensions = [replace(d, size=d.size // turns) if d.name == self.channel else d for d in self.dimensions]
        return replace(
            self,
            dimensions=(*dimensions, Dimension("turn", 1, splits=False)),
            operands=(cut(self.operands[0]), cut(self.operands[1])),
            result=cut(self.result),
        )

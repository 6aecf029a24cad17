"""Summing partial results in stages: the vertex that adds up what the tiles of a split sum have left, and its costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.ir.graph import Attribute, Attributes
from abele.ir.types import DType, TensorType
from abele.machine.chip import Chip
from abele.machine.exchange import exchange_cycles
from abele.ops.plans.layouts import even, flat, fullest, refined, split_dims, view, whole
from abele.ops.plans.planning import Question
from abele.ops.plans.vertices import region_shape
from abele.schedule.geometry import shared_out
from abele.schedule.layout import Axis, Grid, Layout, Span
from abele.schedule.records import Access, ComputeSet
from abele.schedule.vertex import Block, VertexKind, Work, register_vertex


def partials_type(dtype: DType, partials: object) -> DType:
    """The type in which products of ``dtype`` are summed: half of 8-bit floats, and where the program asks for it."""
    return DType.F16 if dtype.is_float8 or (dtype is DType.F16 and partials == "f16") else DType.F32


def adds_fast(question: Question) -> bool:
    """Whether partial sums are added at twice the rate: for the planner ``best`` they lie in interleaved memory.

    An option of the vendor's library that it leaves off (graphcore/poplibs, poplin: enableFastReduce).
    """
    return question.options.planner == "best" and "ReducePartials" not in question.chip.vertex_costs


TWO_STAGES, THREE_STAGES = 16, 125
"""From so many partials on they are summed in two stages, and in three (graphcore/poplibs, poplin/ConvReducePlan)."""


def left_after(depth: Any) -> tuple[Any, Any]:
    """Partials that are left of ``depth`` after the first of three stages and after the second; 1 where there is none.

    A sum in s stages leaves about the same depth to each, so that a tile gets s·depth^(1/s) messages, not depth.
    """
    three, two = depth >= THREE_STAGES, depth >= TWO_STAGES
    first = np.where(three, np.rint(np.power(depth, 2 / 3)), 1)
    second = np.where(three, np.rint(np.power(depth, 1 / 3)), np.where(two, np.rint(np.sqrt(depth)), 1))
    return first.astype(np.int64), second.astype(np.int64)


def _compute(block: Block, pieces: Sequence[np.ndarray], attributes: Attributes) -> Sequence[np.ndarray]:
    return [pieces[0].sum(axis=0).reshape(region_shape(block.writes[0]))]


def _cycles(chip: Chip, work: Work) -> np.ndarray:
    outputs = np.maximum(work.writes[0], 1)
    return chip.estimate(
        "ReducePartials",
        outputs=outputs,
        depth=-(-work.reads[0] // outputs),
        dtype=str(work.read_types[0].dtype),
        out=str(work.write_types[0].dtype),
        **work.attributes,
    )


register_vertex(VertexKind("ReducePartials", _compute, _cycles, ("ReducePartials",)))


MOST_UNEVEN = 1.1
"""A sum that stays near its partials, or over the result's own dimensions, may cost so many times what a flat one does:
what comes next then aligns."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """The compute sets that sum the partials, what they keep between them, and where the result then lies."""

    sets: tuple[ComputeSet, ...]
    temporaries: tuple[TensorType, ...]
    home: Layout


def reduction(
    question: Question, temporary: int, depth: int, *, first: int = 0, made: Layout | None = None, spare: int = 1
) -> Reduction:
    """Sum ``depth`` partials of the first result, which lie in a temporary, into the result.

    The result stays where its partials are: shared out between the tiles that made them, so that each has one already,
    or in each block of ``made`` (its layout among those who make it) cut further; else it lies over its own dimensions,
    or in one flat row, whatever is clearly more even. The temporary's first
    dimension numbers the partials; the rest is the result, row-major. Sums that come between lie in temporaries from
    number ``spare`` on.
    """
    type, chip = question.results[0], question.chip
    partials = partials_type(type.dtype, question.attribute("partials"))
    fast = adds_fast(question)
    home, near = _home(chip, type, depth, partials, first, made, fast)
    sets: list[ComputeSet] = []
    temporaries: list[TensorType] = []
    name, have = f"tmp{temporary}", depth
    for count in (int(left) for left in left_after(depth) if left > 1):
        # each group of partials on tiles of its own
        part, group = refined(near, chip, type.dtype, tiles=chip.tiles // count), Axis("k", have, count)
        grid = Grid((group, *part.grid.axes), chip.tiles, first)
        spans = tuple(Span(None if span.axis is None else span.axis + 1) for span in part.spans)
        read = Layout(grid, (have, *part.shape), (Span(0), *spans))
        write = Layout(grid, (count, *part.shape), (Span.part_of(0, group), *spans))
        sets.append(sum_partials(Access(name, read), Access(f"tmp{spare + len(temporaries)}", write), fast))
        temporaries.append(TensorType((count, *part.shape), partials))
        name, have = sets[-1].writes[0].name, count
    last = Access(name, Layout(home.grid, (have, *home.shape), (Span(), *home.spans)))
    sets.append(sum_partials(last, Access("out0", home), fast))
    return Reduction(tuple(sets), tuple(temporaries), home)


def reduce_turn(question: Question, made: tuple[int, ...], at: int, turn: int, turns: int) -> tuple[ComputeSet, Layout]:
    """Sum the partials of one turn, temporary ``turn`` of shape ``made``, into its part of the first result.

    ``at``: the dimension of the result that the turns divide. Also where the result of all turns lies.
    """
    rows, columns = math.prod(made[1 : 1 + at]), math.prod(made[1 + at :])
    tiles = question.chip.tiles
    split = split_dims((rows, columns), tiles, names=("r", "c"))
    grid = Grid((*split.axes, Axis("turn", 1)), tiles)
    seen = (rows, turns, columns)
    write = Layout(grid, seen, (Span(0), Span(2, offset=turn), Span(1)))
    partial = Layout(grid, (made[0], rows, columns), (Span(), Span(0), Span(1)))
    summed = sum_partials(Access(f"tmp{turn}", partial), Access("out0", write), adds_fast(question))
    return summed, Layout(grid, seen, (Span(0), Span(), Span(1)))


def sum_partials(read: Access, write: Access, fast: bool) -> ComputeSet:
    """Add up partials, which the first dimensions number, where the sums lie; ``fast``: see ``adds_fast``."""
    return ComputeSet("ReducePartials", read.layout.grid, (read,), (write,), _how(fast))


def _how(fast: bool) -> dict[str, Attribute]:
    """How partials are added, for the vertex and its cycles. A chip's own costs are not asked about the rate."""
    return {"interleaved": True} if fast else {}


def _home(
    chip: Chip, result: TensorType, depth: int, partials: DType, first: int, made: Layout | None, fast: bool
) -> tuple[Layout, Layout]:
    """Where a sum of partials lies, and the blocks that it is cut from: near its partials, in its own dimensions, or
    flat."""
    row, own = flat(result, chip, first), even(result, chip, first)
    found = [(layout, whole(layout.shape, Grid((), chip.tiles, first))) for layout in (own, row)]
    there = 0
    if made is not None:
        found.insert(0, (refined(made, chip, result.dtype), made))
        shared = shared_out(made) if depth < TWO_STAGES else None
        if shared is not None:
            found.insert(0, (view(shared, result.shape) or shared, made))
            there = 1
    if not result.size:
        return found[-1]
    costs = [float(_summing(chip, result, fullest(layout), depth, partials, fast)) for layout, _ in found[there:]]
    if there:
        costs.insert(0, float(_summing(chip, result, fullest(found[0][0]), depth, partials, fast, there)))
    return next(pair for pair, cost in zip(found, costs, strict=True) if cost <= MOST_UNEVEN * min(costs))


def _summing(
    chip: Chip, result: TensorType, outputs: int, depth: Any, partials: DType, fast: bool, there: int = 0
) -> Any:
    """Cycles of the sum of ``depth`` partials of ``outputs`` elements on a tile, and of their exchange, in stages.
    ``there``: partials that lie on the tile of the sum, where it takes one stage."""

    def stage(have: Any, count: Any, out: DType) -> Any:
        each, outs = -(-have // count), np.maximum(1, outputs * count)
        types = {"dtype": str(partials), "out": str(out)}
        work = chip.estimate("ReducePartials", outputs=outs, depth=each, **types, **_how(fast))
        return work + exchange_cycles(chip, (each - there) * outs * partials.bytes)

    have, total = np.asarray(depth, np.int64), np.int64(0)
    for left in left_after(have):
        total = total + np.where(left > 1, set_cycles(chip) + stage(have, left, partials), 0)
        have = np.where(left > 1, left, have)
    return total + stage(have, np.int64(1), result.dtype)


def set_cycles(chip: Chip) -> int:
    """Cycles that every compute set costs beside its work: sync and start."""
    return chip.sync_cycles + chip.compute_set_cycles


def reduce_costs(
    chip: Chip, result: TensorType, depth: np.ndarray, partials: DType, fast: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Cycles of a reduction of ``depth`` partials with its exchange, and bytes received by the fullest tile; ``fast``:
    see ``adds_fast``."""
    outputs = max(1, fullest(flat(result, chip)) if result.size else 1)
    received = np.where(depth > 1, depth * outputs * partials.bytes, 0)
    return np.where(depth > 1, set_cycles(chip) + _summing(chip, result, outputs, depth, partials, fast), 0), received

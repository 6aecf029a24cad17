"""How reductions lie: in stages, each of which reduces on every tile what lies there.

A stage over a grid that splits reduced dimensions leaves one partial for each part; the next stage reduces the
partials. Where the operand has a home the first stage runs there and exchanges nothing; else the grid splits the
kept dimensions, and the reduced ones only when the kept ones are too few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from abele.ir.operation import Primitive, lookup
from abele.ir.types import DType, TensorType
from abele.machine.chip import Chip
from abele.ops.plans.layouts import LEAST_GAIN, covers, even, fullest, least_of, own, read_like, split_dims, view
from abele.ops.plans.planning import Question, plan_for
from abele.ops.plans.vertices import region_shape
from abele.ops.rules import Attributes
from abele.schedule.layout import Grid, Layout, Span
from abele.schedule.records import Access, ComputeSet, Plan
from abele.schedule.vertex import Block, VertexKind, Work, register_vertex

Pieces = Sequence[np.ndarray]

FEW = 64
"""Partials that one tile reduces alone; more are reduced in one more stage when tiles are idle."""


@dataclass(frozen=True)
class Stage:
    """One compute set of a reduction: how it reads, and the layout and shape (reduced dimensions hold partials)."""

    read: Layout
    write: Layout

    @property
    def shape(self) -> tuple[int, ...]:
        return self.write.shape


def stage(read: Layout, axes: Sequence[int]) -> Stage:
    """Reduce every block of ``read`` along ``axes``; a split axis leaves one partial for each of its parts."""
    shape, spans = list(read.shape), list(read.spans)
    for d in axes:
        axis = None if covers(read, d) else read.spans[d].axis
        shape[d] = 1 if axis is None else read.grid.axes[axis].parts
        spans[d] = Span() if axis is None else Span.part_of(axis, read.grid.axes[axis])
    return Stage(read, Layout(read.grid, tuple(shape), tuple(spans)))


def stages(question: Question, axes: Sequence[int]) -> list[Stage]:
    """The stages that reduce operand 0 along ``axes``; the last leaves one element for each kept position."""
    (operand, *_), chip, first = question.operands, question.chip, question.first
    done = [stage(_first_layout(question, axes), axes)]
    while any(done[-1].shape[d] > 1 for d in axes):
        shape = done[-1].shape
        kept = tuple(1 if d in axes else n for d, n in enumerate(shape))
        grid = split_dims(kept, chip.tiles, first=first, least=least_of(operand.dtype))
        depth = math.prod(shape[d] for d in axes)
        if depth > FEW and 2 * grid.blocks <= chip.tiles:
            budget = max(2, min(chip.tiles // grid.blocks, math.isqrt(depth - 1) + 1))
            partial = split_dims([n if d in axes else 1 for d, n in enumerate(shape)], budget)
            parts = zip(shape, grid.axes, partial.axes, strict=True)
            grid = Grid(
                tuple(replace(p if d in axes else k, size=n) for d, (n, k, p) in enumerate(parts)), chip.tiles, first
            )
            done.append(stage(own(grid, shape), axes))
            continue
        spans = tuple(Span() if d in axes else Span(d) for d in range(len(shape)))
        done.append(stage(Layout(grid, shape, spans), axes))
    return done


def _first_layout(question: Question, axes: Sequence[int]) -> Layout:
    """Where the first stage runs: at the operand's home, over the kept dimensions, or over all."""
    operand, chip = question.operands[0], question.chip
    everywhere = even(operand, chip, question.first)
    limit = LEAST_GAIN * max(fullest(everywhere), least_of(operand.dtype))
    home = question.homes[0]
    if home is not None and home.is_partition:
        seen = view(home, operand.shape)
        if seen is not None and fullest(seen) <= limit:
            return seen
    kept = even(operand, chip, question.first, keep=axes)
    return kept if fullest(kept) <= limit else everywhere


# Reductions


def _reduce(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    primitive = lookup(str(attributes["operation"]))
    assert isinstance(primitive, Primitive)
    shape = region_shape(block.writes[0])
    given = {"axes": attributes["axes"], "keep": True}
    (done,) = primitive.reference(pieces, given, [TensorType(shape, DType.F32)])
    return [np.asarray(done).reshape(shape)]


def depth_of(work: Work) -> np.ndarray:
    """Elements that go into one result."""
    return np.maximum(work.reads[0], 1) // np.maximum(work.writes[0], 1)


def _reduce_cycles(chip: Chip, work: Work) -> np.ndarray:
    axes, rank = work.attributes["axes"], work.attributes["rank"]
    assert isinstance(axes, tuple) and isinstance(rank, int)
    inner = bool(axes) and axes[-1] == rank - 1
    if not axes:
        return chip.estimate("Copy", bytes=work.writes[0] * work.write_types[0].dtype.bytes)
    return chip.estimate(
        "Reduce",
        outputs=work.writes[0],
        depth=depth_of(work),
        op=str(work.attributes["operation"]).removeprefix("reduce_"),
        dtype=str(work.read_types[0].dtype),
        out=str(work.write_types[0].dtype),
        layout="continuous" if inner and work.write_types[0].size > 1 else "auto",
    )


register_vertex(VertexKind("Reduce", _reduce, _reduce_cycles, ("Reduce",)))


@plan_for("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_any", "reduce_all")
def plan_reduce(question: Question) -> Plan:
    """Stages of partials; sums and products of half keep theirs in float."""
    operand, axes = question.operands[0], question.attribute("axes")
    exact = question.operation not in ("reduce_sum", "reduce_prod")
    partial = operand.dtype if exact or not operand.dtype.is_float else DType.F32
    attributes = {"operation": question.operation, "axes": axes, "rank": operand.rank}
    found, sets, temporaries = stages(question, axes), [], []
    for number, one in enumerate(found):
        source = Access(f"tmp{number - 1}", one.read) if number else read_like_whole(question, one.read)
        last = number == len(found) - 1
        if not last:
            temporaries.append(TensorType(one.shape, partial))
        write = Access("out0" if last else f"tmp{number}", one.write)
        sets.append(ComputeSet("Reduce", one.read.grid, (source,), (write,), attributes))
    return Plan(tuple(sets), tuple(temporaries), (found[-1].write,))


def read_like_whole(question: Question, layout: Layout) -> Access:
    """Operand 0 through ``layout``, resident where that is its home seen in its own shape."""
    access = read_like(question, 0, layout)
    return Access("in0", layout, access.resident)


# Arg-reductions


def _arg_reduce(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    axis, values = int(attributes["axis"]), pieces[0]
    find = np.argmax if attributes["operation"] == "arg_max" else np.argmin
    at = np.expand_dims(find(values, axis=axis), axis) if values.size else np.zeros(region_shape(block.writes[0]), int)
    places = np.take_along_axis(pieces[1], at, axis) if len(pieces) == 2 else at + block.reads[0][axis].start
    return [places] if attributes["last"] else [np.take_along_axis(values, at, axis), places]


def _arg_reduce_cycles(chip: Chip, work: Work) -> np.ndarray:
    rows = work.writes[0]
    return chip.estimate("ArgReduce", rows=rows, cols=depth_of(work), dtype=str(work.read_types[0].dtype))


register_vertex(VertexKind("ArgReduce", _arg_reduce, _arg_reduce_cycles, ("ArgReduce",)))


@plan_for("arg_max", "arg_min")
def plan_arg_reduce(question: Question) -> Plan:
    """Stages of partial extremes with their positions; the first of equals wins, as parts are in order."""
    operand, axis = question.operands[0], question.attribute("axis")
    found = stages(question, (axis,))
    sets, temporaries = [], []
    for number, one in enumerate(found):
        last = number == len(found) - 1
        if number == 0:
            sources = (read_like_whole(question, one.read),)
        else:
            sources = tuple(Access(f"tmp{2 * number - 2 + i}", one.read) for i in (0, 1))
        if last:
            writes = (Access("out0", one.write),)
        else:
            writes = tuple(Access(f"tmp{2 * number + i}", one.write) for i in (0, 1))
            temporaries += [TensorType(one.shape, operand.dtype), TensorType(one.shape, DType.I32)]
        attributes = {"operation": question.operation, "axis": axis, "last": last}
        sets.append(ComputeSet("ArgReduce", one.read.grid, sources, writes, attributes))
    return Plan(tuple(sets), tuple(temporaries), (found[-1].write,))


# Running sums


def _scan(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    axis, x = int(attributes["axis"]), pieces[0]
    done = np.cumsum(x, axis=axis, dtype=x.dtype)
    if len(pieces) == 2:
        parts, steps = int(attributes["parts"]), int(attributes["steps"])
        mine = -(-parts * block.writes[0][axis].start // steps)
        before = np.take(pieces[1], np.arange(mine), axis=axis)
        done = done + before.sum(axis=axis, keepdims=True, dtype=x.dtype)
    return [done]


def _scan_cycles(chip: Chip, work: Work) -> np.ndarray:
    """One add after another: no vector along the axis, so a whole vector's time for each element."""
    dtype = str(work.read_types[0].dtype)
    return chip.estimate("Elementwise", n=work.writes[0] * chip.vector_width(dtype), ops="add", dtype=dtype)


register_vertex(VertexKind("Scan", _scan, _scan_cycles, ("Elementwise",)))


@plan_for("cumsum")
def plan_cumsum(question: Question) -> Plan:
    """Whole rows on a tile; where rows are too few, the sum of each part, and then each part with what precedes it."""
    operand, axis, chip = question.operands[0], question.attribute("axis"), question.chip
    attributes = {"axis": axis}
    layout = even(operand, chip, question.first, keep=(axis,))
    everywhere = even(operand, chip, question.first)
    limit = LEAST_GAIN * max(fullest(everywhere), least_of(operand.dtype))
    home = question.homes[0]
    seen = view(home, operand.shape) if home is not None and home.is_partition else None
    if seen is not None and fullest(seen) <= limit and (covers(seen, axis) or seen.spans[axis].exact):
        layout = seen
    elif fullest(layout) > limit:
        layout = everywhere
    source, write = read_like_whole(question, layout), Access("out0", layout)
    if covers(layout, axis):
        return Plan((ComputeSet("Scan", layout.grid, (source,), (write,), attributes),), (), (layout,))
    one = stage(layout, (axis,))
    total = {"operation": "reduce_sum", "axes": (axis,), "rank": operand.rank}
    sums = ComputeSet("Reduce", layout.grid, (source,), (Access("tmp0", one.write),), total)
    spans = tuple(Span() if d == axis else span for d, span in enumerate(one.write.spans))
    split = layout.grid.axes[layout.spans[axis].axis or 0]
    # The vertex finds its part from where it writes, in the dimension's own elements.
    attributes |= {"parts": split.parts, "steps": split.units * split.grain * layout.spans[axis].stride}
    before = Access("tmp0", Layout(layout.grid, one.shape, spans))
    scan = ComputeSet("Scan", layout.grid, (source, before), (write,), attributes)
    dtype = DType.F32 if operand.dtype.is_float else operand.dtype
    return Plan((sums, scan), (TensorType(one.shape, dtype),), (layout,))

"""How indexing lies on the tiles.

The exchange is fixed before a program runs, so a tile cannot ask for the rows that its indices name: it must hold all
rows that they may name. Columns are therefore split first: a tile holds every row of its columns and needs nothing
else. Tiles that are left over split the indices (a short table is then sent to all of them) or the rows (a long table
stays where it lies; each tile gives the rows it has and zeros, and the pieces are summed).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from abele.ir.graph import Attributes
from abele.ir.types import DType, TensorType
from abele.machine.chip import Chip
from abele.ops.indexing.op import scatter_into
from abele.ops.plans.layouts import grain_of, own, read_like, split_dims, whole
from abele.ops.plans.planning import Question, plan_for, read
from abele.ops.plans.vertices import reference_vertex, region_shape
from abele.schedule.layout import Axis, Grid, Layout, Span
from abele.schedule.records import Access, ComputeSet, Plan
from abele.schedule.vertex import Block, VertexKind, Work, register_vertex

WORTH_SPLITTING = 4096
"""Bytes by which a tile's columns of the table must exceed its columns of the result before rows are split."""

Pieces = Sequence[np.ndarray]


def _columns(question: Question, outer: int, inner: int, dtype: DType) -> tuple[Axis, Axis, int]:
    """Axes that split the columns as far as the tiles go, and how many tiles there are for each block of them."""
    grid = split_dims(
        (outer, inner), question.chip.tiles, (1, grain_of(dtype, question.chip)), names=("outer", "inner")
    )
    return grid.axes[0], grid.axes[1], question.chip.tiles // grid.blocks


def _around(shape: Sequence[int], axis: int) -> tuple[int, int, int]:
    """Elements before, along and after one dimension."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def _rows(size: int, parts: int) -> Axis:
    """An axis of table rows in at most so many parts."""
    return Axis("row", size, max(1, min(parts, size)))


# gather


@plan_for("gather")
def plan_gather(question: Question) -> Plan:
    """One set over columns and indices, or two over columns and rows of the table."""
    x, indices = question.operands
    outer, size, inner = _around(x.shape, question.attribute("axis"))
    first, last, spare = _columns(question, outer, inner, x.dtype)
    column_bytes = -(-outer // first.parts) * -(-inner // last.parts) * x.dtype.bytes
    if spare > 1 and indices.size and (size - indices.size) * column_bytes > WORTH_SPLITTING:
        return _gather_by_rows(question, first, last, spare)
    index = Axis("index", indices.size, max(1, min(spare, indices.size)))
    grid = Grid((first, index, last), question.chip.tiles, question.first)
    table = Layout(grid, (outer, size, inner), (Span(0), Span(), Span(2)))
    out = own(grid, (outer, indices.size, inner))
    done = ComputeSet(
        "Gather",
        grid,
        (read_like(question, 0, table), read_like(question, 1, own(grid, (indices.size,), (1,)))),
        (Access("out0", out),),
    )
    return Plan((done,), homes=(out,))


def _gather_by_rows(question: Question, first: Axis, last: Axis, spare: int) -> Plan:
    x, indices = question.operands
    tiles, count = question.chip.tiles, indices.size
    row = _rows(x.shape[question.attribute("axis")], spare)
    grid = Grid((first, row, last), tiles, question.first)
    partial = TensorType((row.parts, first.size, count, last.size), x.dtype)
    which = Span.part_of(1, row)
    found = ComputeSet(
        "GatherRows",
        grid,
        (read_like(question, 0, own(grid, (first.size, row.size, last.size))), _all(question, 1, grid)),
        (Access("tmp0", Layout(grid, partial.shape, (which, Span(0), Span(), Span(2)))),),
        {"rows": row.size},
    )
    index = Axis("index", count, max(1, min(spare, count)))
    after = Grid((first, index, last), tiles, question.first)
    out = own(after, (first.size, count, last.size))
    pieces = Access("tmp0", Layout(after, partial.shape, (Span(), Span(0), Span(1), Span(2))))
    summed = ComputeSet("GatherSum", after, (pieces,), (Access("out0", out),))
    return Plan((found, summed), (partial,), (out,))


def _all(question: Question, operand: int, grid: Grid) -> Access:
    """A read of a whole operand by every block, as a row of elements."""
    return read_like(question, operand, whole((question.operands[operand].size,), grid))


def _gather(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    outer, _, inner = region_shape(block.writes[0])
    x, indices = pieces
    if not outer * inner:
        return [np.zeros(region_shape(block.writes[0]), x.dtype)]
    return [np.take(x.reshape(outer, -1, inner), indices.ravel(), axis=1)]


def _gather_cycles(chip: Chip, work: Work) -> np.ndarray:
    lengths = work.lengths
    rows = lengths["outer"] * lengths["index"]
    return chip.estimate("Gather", rows=rows, row_elements=lengths["inner"], dtype=str(work.read_types[0].dtype))


def _gather_rows(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    """The rows that lie here, zeros for those that do not."""
    x, indices = pieces
    start, stop = block.axes["row"]
    _, outer, count, inner = region_shape(block.writes[0])
    found = np.zeros((1, outer, count, inner), x.dtype)
    indices = indices.ravel()
    here = (indices >= start) & (indices < stop)
    found[0][:, here] = x.reshape(outer, stop - start, inner)[:, indices[here] - start]
    return [found]


def _gather_rows_cycles(chip: Chip, work: Work) -> np.ndarray:
    """Indices are taken to fall evenly on the rows."""
    lengths, dtype = work.lengths, str(work.read_types[0].dtype)
    mine = -(-work.reads[1] * lengths["row"] // int(work.attributes["rows"]))
    others = (work.reads[1] - mine) * lengths["outer"]
    rows = mine * lengths["outer"]
    copy = chip.estimate("Gather", rows=rows, row_elements=lengths["inner"], dtype=dtype, others=others)
    return chip.estimate("Fill", n=work.writes[0], dtype=dtype) + copy


def _gather_sum(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    return [pieces[0].sum(axis=0, dtype=pieces[0].dtype)]


def _gather_sum_cycles(chip: Chip, work: Work) -> np.ndarray:
    depth, dtype = work.read_types[0].shape[0], str(work.read_types[0].dtype)
    return chip.estimate("Reduce", outputs=work.writes[0], depth=depth, dtype=dtype, layout="strided")


register_vertex(VertexKind("Gather", _gather, _gather_cycles, ("Gather",)))
register_vertex(VertexKind("GatherRows", _gather_rows, _gather_rows_cycles, ("Gather", "Fill")))
register_vertex(VertexKind("GatherSum", _gather_sum, _gather_sum_cycles, ("Reduce",)))


# scatter_add


@plan_for("scatter_add")
def plan_scatter_add(question: Question) -> Plan:
    """Columns first, then rows of the table; a tile is sent all updates of its columns and takes those for its rows."""
    base, indices, _ = question.operands
    outer, size, inner = _around(base.shape, question.attribute("axis"))
    first, last, spare = _columns(question, outer, inner, base.dtype)
    grid = Grid((first, _rows(size, spare), last), question.chip.tiles, question.first)
    out = own(grid, (outer, size, inner))
    updates = Layout(grid, (outer, indices.size, inner), (Span(0), Span(), Span(2)))
    done = ComputeSet(
        "ScatterAdd",
        grid,
        (read_like(question, 0, out), _all(question, 1, grid), read_like(question, 2, updates)),
        (Access("out0", out),),
        {"rows": size},
    )
    return Plan((done,), homes=(out,))


def _scatter_add(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    base, indices, updates = pieces
    shape = region_shape(block.writes[0])
    outer, _, inner = shape
    total = base.reshape(shape).copy()
    if total.size and updates.size:
        start, stop = block.axes["row"]
        indices = indices.ravel()
        here = (indices >= start) & (indices < stop)
        chosen = updates.reshape(outer, -1, inner)[:, here]
        np.add.at(total.swapaxes(0, 1), indices[here] - start, chosen.swapaxes(0, 1))
    return [total]


def _scatter_add_cycles(chip: Chip, work: Work) -> np.ndarray:
    """Copy of the base, then the updates, which are taken to fall evenly on the rows."""
    lengths, dtype = work.lengths, work.write_types[0].dtype
    mine = -(-work.reads[1] * lengths["row"] // max(1, int(work.attributes["rows"])))
    others = (work.reads[1] - mine) * lengths["outer"]
    rows = mine * lengths["outer"]
    add = chip.estimate("ScatterAdd", rows=rows, row_elements=lengths["inner"], dtype=str(dtype), others=others)
    return chip.estimate("Copy", bytes=work.writes[0] * dtype.bytes) + add


register_vertex(VertexKind("ScatterAdd", _scatter_add, _scatter_add_cycles, ("ScatterAdd", "Copy")))


# By element


def _element_grid(question: Question, shape: Sequence[int], dtype: DType, axis: int) -> Grid:
    """Blocks of elements; the axis of the indices is split only when the other dimensions leave most tiles idle."""
    tiles, grains = question.chip.tiles, [1] * len(shape)
    grains[-1] = grain_of(dtype, question.chip) if axis != len(shape) - 1 else 1
    grid = split_dims(shape, tiles, grains, first=question.first, keep=(axis,))
    if 2 * grid.blocks <= min(tiles, math.prod(shape)):
        grid = split_dims(shape, tiles, grains, first=question.first)
    return grid


def _across(grid: Grid, shape: Sequence[int], axis: int) -> Layout:
    """A tensor that is whole along ``axis`` and follows the grid elsewhere, as far as it reaches."""
    return Layout(grid, tuple(shape), tuple(Span(None if i == axis else i) for i in range(len(shape))))


@plan_for("gather_elements")
def plan_gather_elements(question: Question) -> Plan:
    """Split over the elements of the result; a tile is sent the whole lines of the operand that cross its block."""
    x, indices = question.operands
    axis = question.attribute("axis")
    grid = _element_grid(question, indices.shape, x.dtype, axis)
    out = own(grid, indices.shape)
    done = ComputeSet(
        "GatherElements",
        grid,
        (read(question, 0, _across(grid, x.shape, axis)), read(question, 1, out)),
        (Access("out0", out),),
        {"axis": axis},
    )
    return Plan((done,), homes=(out,))


def _gather_elements_cycles(chip: Chip, work: Work) -> np.ndarray:
    return chip.estimate("Gather", rows=work.writes[0], row_elements=1, dtype=str(work.write_types[0].dtype))


register_vertex(VertexKind("GatherElements", reference_vertex("gather_elements"), _gather_elements_cycles, ("Gather",)))


@plan_for("scatter_elements")
def plan_scatter_elements(question: Question) -> Plan:
    """Split over the elements of the base; a tile is sent all updates of the lines that cross its block."""
    base, indices, updates = question.operands
    axis = question.attribute("axis")
    grid = _element_grid(question, base.shape, base.dtype, axis)
    out = own(grid, base.shape)
    done = ComputeSet(
        "ScatterElements",
        grid,
        (
            read(question, 0, out),
            read(question, 1, _across(grid, indices.shape, axis)),
            read(question, 2, _across(grid, updates.shape, axis)),
        ),
        (Access("out0", out),),
        {"axis": axis, "reduction": question.attribute("reduction"), "rows": base.shape[axis]},
    )
    return Plan((done,), homes=(out,))


def _scatter_elements(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    base, indices, updates = pieces
    axis = int(attributes["axis"])
    start, stop = block.axes[f"d{axis}"]
    total = np.ascontiguousarray(base).copy()
    here = (indices >= start) & (indices < stop)
    place = list(np.nonzero(here))
    place[axis] = indices[here] - start
    if len(place[axis]):
        scatter_into(total, tuple(place), updates[here], str(attributes["reduction"]))
    return [total]


def _scatter_elements_cycles(chip: Chip, work: Work) -> np.ndarray:
    """As ``scatter_add`` with rows of one element."""
    dtype, axis = work.write_types[0].dtype, work.attributes["axis"]
    mine = -(-work.reads[1] * work.lengths[f"d{axis}"] // max(1, int(work.attributes["rows"])))
    add = chip.estimate("ScatterAdd", rows=mine, row_elements=1, dtype=str(dtype), others=work.reads[1] - mine)
    return chip.estimate("Copy", bytes=work.writes[0] * dtype.bytes) + add


register_vertex(VertexKind("ScatterElements", _scatter_elements, _scatter_elements_cycles, ("ScatterAdd", "Copy")))


# Order


_ORDERS = {"top_k": "TopK", "sort": "Sort"}


@plan_for("top_k", "sort")
def plan_order(question: Question) -> Plan:
    """Split over lines: a line that is put in order lies on one tile."""
    (x,) = question.operands
    axis = question.attribute("axis")
    grid = split_dims(x.shape, question.chip.tiles, first=question.first, keep=(axis,))
    line = _across(grid, x.shape, axis)
    outs = tuple(_across(grid, t.shape, axis) for t in question.results)
    done = ComputeSet(
        _ORDERS[question.operation],
        grid,
        (read(question, 0, line),),
        tuple(Access(f"out{i}", out) for i, out in enumerate(outs)),
        dict(question.attributes),
    )
    return Plan((done,), homes=outs)


def _order_cycles(chip: Chip, work: Work) -> np.ndarray:
    (x,) = work.read_types
    n = x.shape[int(work.attributes["axis"])]
    k = int(work.attributes.get("k", n))
    if not n or not k:
        return np.zeros_like(work.reads[0])
    return chip.estimate("TopK", n=n, k=k, dtype=str(x.dtype), rows=work.reads[0] // n)


for _name, _kind in _ORDERS.items():
    register_vertex(VertexKind(_kind, reference_vertex(_name), _order_cycles, ("TopK",)))

"""How a stencil lies on the tiles: in blocks of its result, each of which reads what it already has and a halo.

A split is chosen by its cycles: short rows cost time, and a row that is cut must be put together with its neighbours'
ends; long ones make the halo large. Where an operand lies in such blocks already, the result follows it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.machine.chip import Chip
from abele.machine.exchange import exchange_cycles
from abele.ops.elementwise.expression import body_of, evaluate_body
from abele.ops.plans.chains import loop_dtype, loop_operations
from abele.ops.plans.layouts import align, even, grain_of, own, read_along, resized
from abele.ops.plans.partials import set_cycles
from abele.ops.plans.planning import PlanOptions, Question, plan_for, read
from abele.ops.plans.search import Dimension, Parts, search
from abele.ops.plans.vertices import like, region_shape
from abele.ops.rules import Attributes
from abele.ops.stencil.op import Tap, shifted, taps_of
from abele.schedule.layout import Grid, Layout, Span
from abele.schedule.records import Access, ComputeSet, Plan
from abele.schedule.vertex import Block, VertexKind, Work, register_vertex

Pieces = Sequence[np.ndarray]


@dataclass(frozen=True)
class _Loop:
    """What the taps say of the loop, however the result is split.

    Attributes:
        low, high: for each shifted operand, the least and the greatest start in every dimension.
        inner: the innermost dimension in which something is shifted: rows run along it and along what is behind.
        loads: what a turn of the loop loads; ``unaligned`` of it lies between two words.
        pointers: rows that are read and written at once.
    """

    low: Mapping[int, tuple[int, ...]]
    high: Mapping[int, tuple[int, ...]]
    inner: int
    loads: int
    unaligned: int
    pointers: int

    def reach(self, operand: int) -> tuple[int, ...]:
        """Elements by which the window of a block is longer than the block, in each dimension."""
        return tuple(b - a for a, b in zip(self.low[operand], self.high[operand], strict=True))

    def window(self, operand: int, lengths: Sequence[Any]) -> list[Any]:
        """Lengths of the window of a block."""
        return [n + reach for n, reach in zip(lengths, self.reach(operand), strict=True)]


def _loop_of(taps: Sequence[Tap], shape: Sequence[int], vector: int) -> _Loop:
    low: dict[int, tuple[int, ...]] = {}
    high: dict[int, tuple[int, ...]] = {}
    for operand, starts, _ in taps:
        if starts:
            low[operand] = tuple(map(min, low.get(operand, starts), starts))
            high[operand] = tuple(map(max, high.get(operand, starts), starts))
    inner = max((d for d in range(len(shape)) if any(low[i][d] or high[i][d] for i in low)), default=len(shape) - 1)
    behind = math.prod(shape[inner + 1 :])
    places = {(operand, starts) for operand, starts, _ in taps if starts}
    return _Loop(
        low,
        high,
        inner,
        len(places) + sum(not starts for _, starts, _ in taps),
        sum(starts[inner] * behind % vector != 0 for _, starts in places),
        len({(operand, starts[:inner]) for operand, starts in places}) + 1,
    )


def _cycles(chip: Chip, loop: _Loop, lengths: Sequence[Any], pieces: Any, body: Any, dtype: str, vector: int) -> Any:
    """Tile cycles of blocks of these lengths.

    The rows of a window are put together of so many ``pieces``, none where they lie as they are read.
    """
    rows, width = math.prod(lengths[: loop.inner]), math.prod(lengths[loop.inner :])
    ones = np.ones_like(width)
    cycles = chip.estimate(
        "Stencil",
        rows=ones * rows,
        width=np.maximum(width, 1),
        ops=loop_operations(body),
        loads=loop.loads,
        unaligned=loop.unaligned,
        pointers=loop.pointers,
        dtype=dtype,
        vector=vector,
    )
    for operand in loop.low:
        if any(loop.reach(operand)):
            rows, width = _windows_of_workers(chip, loop, operand, lengths)
            made = chip.estimate("Assemble", rows=ones * rows, width=width, pieces=np.maximum(pieces, 1), dtype=dtype)
            cycles = cycles + np.where(pieces, made, 0)
    return cycles


def _windows_of_workers(chip: Chip, loop: _Loop, operand: int, lengths: Sequence[Any]) -> tuple[Any, Any]:
    """Rows on a tile, and their width, when each worker has a window of its own about its share of a block.

    The workers share the longest dimension of rows, or the rows themselves where these are few.
    """
    reach, inner, workers = loop.reach(operand), loop.inner, chip.workers
    window = loop.window(operand, lengths)
    width = math.prod(window[inner:])
    if not inner:
        return workers, math.prod(lengths[1:]) * (-(-lengths[0] // workers) + reach[0])
    lead = np.stack(np.broadcast_arrays(*lengths[:inner]))
    longest = lead == lead.max(axis=0)
    longest &= np.cumsum(longest, axis=0) == 1
    shares = np.where(longest, -(-lead // workers), lead) + np.array(reach[:inner]).reshape(-1, *(1,) * (lead.ndim - 1))
    return workers * np.prod(shares, axis=0), width


@plan_for("stencil")
def plan_stencil(question: Question) -> Plan:
    """One compute set: every block computes its part of the result from a window of each shifted operand."""
    chip, (result,), operands = question.chip, question.results, question.operands
    attributes = dict(question.attributes)
    taps, body = taps_of(attributes), body_of(attributes)
    dtype = loop_dtype(body)
    vector = chip.vector_width(dtype) if question.options.vectorised else 1
    loop = _loop_of(taps, result.shape, vector)
    grain = grain_of(result.dtype, chip)
    last = result.rank - 1
    dimensions = [
        Dimension(f"d{d}", n, grain if d == last and n >= 4 * grain else 1) for d, n in enumerate(result.shape)
    ]

    def cost(parts: Parts) -> tuple[np.ndarray, np.ndarray]:
        counts = [parts[d.name] for d in dimensions]
        lengths = [np.maximum(d.length(count), 1) for d, count in zip(dimensions, counts, strict=True)]
        block, halo, held = math.prod(lengths), np.zeros_like(counts[0]), np.zeros_like(counts[0])
        for i in loop.low:
            window = math.prod(np.minimum(n, operands[i].shape[d]) for d, n in enumerate(loop.window(i, lengths)))
            halo = halo + np.maximum(window - block, 0) * operands[i].dtype.bytes
            held = held + window * operands[i].dtype.bytes
        pieces = _pieces(counts[loop.inner] > 1, question.options)
        cycles = _cycles(chip, loop, lengths, pieces, body, dtype, vector)
        allowed = question.options.memory_proportion * chip.tile_memory
        return cycles + exchange_cycles(chip, halo) + set_cycles(chip), held / allowed

    layout = even(result, chip, question.first)
    if result.size:
        parts, cycles = search(dimensions, chip.tiles, cost)
        first = question.first if 2 * math.prod(parts.values()) <= chip.tiles else 0
        layout = own(Grid(tuple(d.axis(parts[d.name]) for d in dimensions), chip.tiles, first), result.shape)
        for i in sorted(loop.low, key=lambda i: -operands[i].bytes):
            home = question.homes[i]
            seen = None if home is None else resized(home, operands[i].shape, result.shape)
            if seen is None:
                continue
            lies = {f"d{d}": np.array([_parts(seen, d)]) for d in range(result.rank)}
            moved = -(-result.size // chip.tiles) * operands[i].dtype.bytes
            if float(cost(lies)[0][0]) <= cycles + exchange_cycles(chip, moved):
                layout = seen
            break

    reads = []
    for i, operand in enumerate(operands):
        if i in loop.low:
            reads.append(read(question, i, _windows(layout, operand.shape, loop.low[i], loop.high[i])))
            continue
        aligned = align(layout, result.shape, operand.shape)
        assert aligned is not None
        reads.append(read_along(question, i, aligned, result.shape))
    given = {
        "taps": taps,
        "body": body,
        "shape": result.shape,
        "axes": tuple(-1 if span.axis is None else span.axis for span in layout.spans),
        "vector": vector,
        "pieces": int(_pieces(_parts(layout, loop.inner) > 1, question.options)),
    }
    done = ComputeSet("Stencil", layout.grid, tuple(reads), (Access("out0", layout),), given)
    return Plan((done,), (), (layout,))


def _pieces(cut: Any, options: PlanOptions) -> Any:
    """Pieces that the rows of a window are put together of: the own and the neighbours' where rows are cut."""
    return np.where(cut, 3, 1 if options.contiguous else 0)


def _parts(layout: Layout, dimension: int) -> int:
    axis = layout.spans[dimension].axis
    return 1 if axis is None else layout.grid.axes[axis].parts


def _windows(layout: Layout, shape: Sequence[int], low: Sequence[int], high: Sequence[int]) -> Layout:
    """How an operand is read from ``low`` to ``high`` about the blocks of ``layout``."""
    spans = tuple(
        span if span.axis is None else Span(span.axis, 1, a, b - a + 1)
        for span, a, b in zip(layout.spans, low, high, strict=True)
    )
    return Layout(layout.grid, tuple(shape), spans)


# The vertex


def _compute(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    written = block.writes[0]
    shape = region_shape(written)
    seen = []
    for operand, starts, outside in taps_of(attributes):
        if not starts:
            seen.append(like(pieces[operand], shape))
            continue
        places = [w.start + s - r.start for w, s, r in zip(written, starts, block.reads[operand], strict=True)]
        seen.append(shifted(pieces[operand], places, outside, shape))
    return [np.broadcast_to(evaluate_body(body_of(attributes), seen), shape)]


def _lengths(work: Work) -> list[np.ndarray]:
    """Lengths of the blocks in every dimension of the result."""
    shape: Any = work.attributes["shape"]
    axes: Any = work.attributes["axes"]
    columns = list(work.lengths.values())
    one = np.ones_like(work.writes[0])
    return [one * n if axis < 0 else columns[axis] for n, axis in zip(shape, axes, strict=True)]


def _vertex_cycles(chip: Chip, work: Work) -> np.ndarray:
    a: Any = work.attributes
    body, vector = body_of(a), int(a["vector"])
    loop = _loop_of(taps_of(a), a["shape"], vector)
    return _cycles(chip, loop, _lengths(work), int(a["pieces"]), body, loop_dtype(body), vector)


def _scratch(work: Work) -> np.ndarray:
    """The windows whose rows are put together."""
    a: Any = work.attributes
    loop = _loop_of(taps_of(a), a["shape"], int(a["vector"]))
    total = np.zeros_like(work.writes[0])
    for operand in loop.low:
        if a["pieces"] and any(loop.reach(operand)):
            total = total + work.reads[operand] * work.read_types[operand].dtype.bytes
    return total


register_vertex(VertexKind("Stencil", _compute, _vertex_cycles, ("Stencil", "Assemble"), _scratch))

"""How attention lies on the tiles: split over leading dimensions (batch, heads), the rows of the queries and the keys.

A tile is sent the keys and values of its heads and keeps the scores of its rows to itself, in float. Where there are
many tiles for each row, keys are split too: a tile then makes the sums over its keys and the largest score of each row,
and a second set brings the pieces to one scale and adds them. The gradients have no plan
of their own: they are expanded to matrix products, which may split their sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from abele.ir.graph import Attributes
from abele.ir.types import DType, TensorType
from abele.machine.chip import Chip
from abele.machine.exchange import exchange_cycles
from abele.ops.plans.layouts import own, split_dims
from abele.ops.plans.partials import set_cycles
from abele.ops.plans.planning import Question, plan_for, read
from abele.ops.plans.products import product_cycles
from abele.ops.plans.search import DOES_NOT_FIT, few_part_counts
from abele.ops.rules import LOWEST
from abele.schedule.layout import Axis, Grid, Layout, Span
from abele.schedule.records import Access, ComputeSet, Plan
from abele.schedule.vertex import Block, VertexKind, Work, register_vertex

Pieces = Sequence[np.ndarray]


@dataclass(frozen=True)
class _Sizes:
    """What a tile does: heads, query rows, keys, width of keys and of values (integers or arrays), types, masks."""

    heads: np.ndarray | int
    rows: np.ndarray
    keys: np.ndarray | int
    width: int
    values: int
    dtype: DType
    masked: bool
    causal: bool

    def cycles(self, chip: Chip) -> np.ndarray:
        """Scores in the operands' type with float partials; softmax and the sum over values in float."""
        heads, rows, keys, dtype = self.heads, self.rows, self.keys, str(self.dtype)
        lines = heads * rows
        scaling = ("mul", "add") if self.masked else ("mul",)
        cycles = product_cycles(chip, heads, rows, keys, self.width, dtype)
        cycles = cycles + chip.estimate("Elementwise", n=lines * keys, ops=scaling, dtype="f32", operands=len(scaling))
        if self.causal:
            cycles = cycles + chip.estimate("Select", n=lines * keys, dtype="f32")
        cycles = cycles + chip.estimate("Softmax", rows=lines, cols=keys, dtype="f32")
        cycles = cycles + product_cycles(chip, heads, rows, self.values, keys, "f32")
        if self.dtype is not DType.F32:
            cycles = cycles + chip.estimate("Cast", n=heads * keys * self.values, source=dtype, to="f32")
            cycles = cycles + chip.estimate("Cast", n=lines * self.values, source="f32", to=dtype)
        return cycles

    def scratch(self) -> np.ndarray:
        """Bytes of the scores of one head after another, and in half of its values and results as float."""
        wide = 0 if self.dtype is DType.F32 else 4 * self.values * (self.keys + self.rows)
        return 4 * self.rows * self.keys + wide

    def received(self) -> np.ndarray:
        """Bytes of queries, keys and values."""
        return self.heads * (self.rows * self.width + self.keys * (self.width + self.values)) * self.dtype.bytes


@plan_for("attention")
def plan_attention(question: Question) -> Plan:
    """One set, or two where keys are split."""
    q, k, v, *masks = question.operands
    lead = len(q.shape) - 2
    grid = _grid(question)
    rows, keys = (*range(lead + 1), None), (*range(lead), lead + 1, None)
    reads = [
        read(question, 0, own(grid, q.shape, rows)),
        read(question, 1, own(grid, k.shape, keys)),
        read(question, 2, own(grid, v.shape, keys)),
    ]
    if masks:
        reads.append(read(question, 3, _mask(grid, masks[0].shape)))
    (result,), attributes = question.results, dict(question.attributes)
    parts = grid.axes[-1]
    if parts.parts == 1:
        out = own(grid, result.shape, rows)
        done = ComputeSet("Attention", grid, tuple(reads), (Access("out0", out),), attributes)
        return Plan((done,), homes=(out,))
    piece = Span.part_of(lead + 1, parts)
    sums, stats = (TensorType((parts.parts, *q.shape[:-1], n), DType.F32) for n in (v.shape[-1], 2))
    spans = (piece, *(Span(i) for i in range(lead + 1)), Span())
    writes = tuple(Access(f"tmp{i}", Layout(grid, t.shape, spans)) for i, t in enumerate((sums, stats)))
    first = ComputeSet("AttentionPart", grid, tuple(reads), writes, attributes)
    after = split_dims(q.shape[:-1], question.chip.tiles, first=question.first, names=_names(lead))
    gathered = tuple(
        Access(f"tmp{i}", Layout(after, t.shape, (Span(), *(Span(j) for j in range(lead + 1)), Span())))
        for i, t in enumerate((sums, stats))
    )
    out = own(after, result.shape, rows)
    second = ComputeSet("AttentionJoin", after, gathered, (Access("out0", out),))
    return Plan((first, second), (sums, stats), (out,))


def _names(lead: int) -> tuple[str, ...]:
    return (*(f"b{i}" for i in range(lead)), "row")


def _grid(question: Question) -> Grid:
    """Heads as far as the tiles go; then rows and keys by the cycles of exchange, vertex and joining."""
    q, k, v, *masks = question.operands
    chip, lead = question.chip, q.shape[:-2]
    heads = split_dims(lead, chip.tiles, names=_names(len(lead))[:-1])
    each = math.prod(max(1, -(-axis.size // axis.parts)) for axis in heads.axes)
    counts = [few_part_counts(n, 32) for n in (q.shape[-2], k.shape[-2])]
    pr, pk = (x.ravel() for x in np.meshgrid(*counts, indexing="ij"))
    fits = pr * pk <= chip.tiles // heads.blocks
    pr, pk = pr[fits], pk[fits]
    causal = bool(question.attribute("causal"))
    rows, keys = -(-q.shape[-2] // pr), -(-k.shape[-2] // pk)
    sizes = _Sizes(each, rows, keys, q.shape[-1], v.shape[-1], q.dtype, bool(masks), causal)
    lines = -(-math.prod(q.shape[:-1]) // chip.tiles)
    joining = set_cycles(chip) + _join_cycles(chip, lines, v.shape[-1], pk)
    joining = joining + exchange_cycles(chip, lines * pk * (v.shape[-1] + 2) * 4)
    cycles = exchange_cycles(chip, sizes.received()) + sizes.cycles(chip) + np.where(pk > 1, joining, 0)
    held = sizes.received() + sizes.scratch()
    limit = question.options.memory_proportion * chip.tile_memory
    best = np.lexsort((pr * pk, np.where(held <= limit, cycles, DOES_NOT_FIT + held)))[0]
    axes = (Axis("row", q.shape[-2], int(pr[best])), Axis("key", k.shape[-2], int(pk[best])))
    return Grid((*heads.axes, *axes), chip.tiles, question.first)


def _mask(grid: Grid, shape: Sequence[int]) -> Layout:
    """A mask that broadcasts to [..., L, S]: its dimensions of size 1 are whole."""
    axes = range(len(grid.axes))[len(grid.axes) - len(shape) :]
    spans = (Span(None if n == 1 else axis) for n, axis in zip(shape, axes, strict=True))
    return Layout(grid, tuple(shape), tuple(spans))


def _scores(block: Block, pieces: Pieces, attributes: Attributes) -> np.ndarray:
    q, k, _, *masks = pieces
    scores = float(attributes["scale"]) * (q @ k.swapaxes(-1, -2))
    if masks:
        scores = scores + masks[0]
    if attributes["causal"]:
        row, key = (np.arange(*block.axes[name]) for name in ("row", "key"))
        scores = np.where(row[:, None] >= key, scores, -np.inf)
    return scores


def _attention(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    scores = _scores(block, pieces, attributes)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=LOWEST))
    return [e / np.maximum(e.sum(axis=-1, keepdims=True), 1) @ pieces[2]]


def _part(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    """Over the block's keys: the sum of values by ``exp(score - largest)``; the largest and the sum of the weights."""
    scores = _scores(block, pieces, attributes)
    largest = scores.max(axis=-1, keepdims=True, initial=LOWEST)  # finite, though a row may see none of these keys
    e = np.exp(scores - largest)
    stats = np.concatenate([largest, e.sum(axis=-1, keepdims=True)], axis=-1)
    return [(e @ pieces[2])[None], stats[None]]


def _join(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    sums, stats = pieces
    largest, weight = stats[..., :1], stats[..., 1:]
    scale = np.exp(largest - largest.max(axis=0))
    return [(sums * scale).sum(axis=0) / np.maximum((weight * scale).sum(axis=0), 1)]


def _sizes(work: Work) -> _Sizes:
    q, _, v = work.read_types[:3]
    lengths = [n for name, n in work.lengths.items() if name not in ("row", "key")]
    heads = math.prod(lengths, start=np.ones_like(work.reads[0]))
    masked, causal = len(work.reads) > 3, bool(work.attributes["causal"])
    return _Sizes(heads, work.lengths["row"], work.lengths["key"], q.shape[-1], v.shape[-1], q.dtype, masked, causal)


def _join_cycles(chip: Chip, lines, values: int, parts) -> np.ndarray:
    """The scales of the pieces, the scaled pieces and their sum, and one division for each element."""
    n = lines * values
    scales = chip.estimate("Elementwise", n=lines * parts, ops=("sub", "exp"), dtype="f32", operands=2)
    scaled = chip.estimate("Elementwise", n=n * parts, ops="mul", dtype="f32", broadcast="outer", rows=lines * parts)
    summed = chip.estimate("Reduce", outputs=n, depth=parts, dtype="f32", layout="strided")
    return scales + scaled + summed + chip.estimate("Elementwise", n=n, ops="div", dtype="f32")


_CODE = ("Amp1x1", "Hmac", "Elementwise", "Select", "Softmax", "Cast")

for _name, _compute in (("Attention", _attention), ("AttentionPart", _part)):
    register_vertex(
        VertexKind(
            _name,
            _compute,
            lambda chip, work: _sizes(work).cycles(chip),
            _CODE,
            lambda work: _sizes(work).scratch(),
        )
    )


def _joined(chip: Chip, work: Work) -> np.ndarray:
    values = max(1, work.write_types[0].shape[-1])
    return _join_cycles(chip, work.writes[0] // values, values, work.read_types[0].shape[0])


register_vertex(VertexKind("AttentionJoin", _join, _joined, ("Elementwise", "Reduce")))

"""How attention lies on the tiles: split over the leading dimensions (batch, heads) and the rows of the queries.

A tile is sent the keys and values of its heads and keeps the scores of its rows to itself, in float. The gradients
have no plan of their own: they are expanded to matrix products, which may split their sums.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from abele.ir.graph import Attribute
from abele.machine.chip import Chip
from abele.ops.layouts import own, split_dims
from abele.ops.planning import Question, plan_for, read
from abele.ops.products import product_cycles
from abele.schedule.layout import Grid, Layout, Span
from abele.schedule.records import Access, ComputeSet, Plan
from abele.schedule.vertex import Block, VertexKind, Work, register_vertex


@plan_for("attention")
def plan_attention(question: Question) -> Plan:
    """One set: scores, softmax and the weighted sum of a block of query rows."""
    q, k, v, *masks = question.operands
    lead = len(q.shape) - 2
    names = (*(f"b{i}" for i in range(lead)), "row")
    grid = split_dims(q.shape[:-1], question.chip.tiles, first=question.first, names=names)
    rows, keys = (*range(lead + 1), None), (*range(lead), None, None)
    out = own(grid, question.results[0].shape, rows)
    reads = [
        read(question, 0, own(grid, q.shape, rows)),
        read(question, 1, own(grid, k.shape, keys)),
        read(question, 2, own(grid, v.shape, keys)),
    ]
    if masks:
        reads.append(read(question, 3, _mask(grid, masks[0].shape)))
    done = ComputeSet("Attention", grid, tuple(reads), (Access("out0", out),), dict(question.attributes))
    return Plan((done,), homes=(out,))


def _mask(grid: Grid, shape: Sequence[int]) -> Layout:
    """A mask that broadcasts to [..., L, S]: its dimensions of size 1 and the keys are whole."""
    axes = (*range(len(grid.axes)), None)[-len(shape) :] if shape else ()
    spans = (Span(None if n == 1 else axis) for n, axis in zip(shape, axes, strict=True))
    return Layout(grid, tuple(shape), tuple(spans))


def _attention(block: Block, pieces: Sequence[np.ndarray], attributes: Mapping[str, Attribute]) -> Sequence[np.ndarray]:
    q, k, v, *masks = pieces
    scores = float(attributes["scale"]) * (q @ k.swapaxes(-1, -2))  # type: ignore[arg-type]
    if masks:
        scores = scores + masks[0]
    if attributes["causal"]:
        row = np.arange(*block.axes["row"])[:, None]
        scores = np.where(row >= np.arange(scores.shape[-1]), scores, -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return [e / e.sum(axis=-1, keepdims=True) @ v]


def _sizes(work: Work) -> tuple[np.ndarray, np.ndarray, int, int, int]:
    """Heads and query rows of a tile; keys, width of keys, width of values."""
    q, k, v = work.read_types[:3]
    heads = math.prod((work.lengths[name] for name in work.lengths if name != "row"), start=np.ones_like(work.reads[0]))
    return heads, work.lengths["row"], k.shape[-2], q.shape[-1], v.shape[-1]


def _attention_cycles(chip: Chip, work: Work) -> np.ndarray:
    """Scores in the operands' type with float partials; softmax and the sum over values in float."""
    heads, rows, keys, width, values = _sizes(work)
    dtype, lines = str(work.read_types[0].dtype), heads * rows
    cycles = product_cycles(chip, heads, rows, keys, width, dtype)
    scaling = ("mul", *(("add",) if len(work.reads) > 3 else ()))
    cycles = cycles + chip.estimate("Elementwise", n=lines * keys, ops=scaling, dtype="f32", operands=len(scaling))
    if work.attributes["causal"]:
        cycles = cycles + chip.estimate("Select", n=lines * keys, dtype="f32")
    cycles = cycles + chip.estimate("Softmax", rows=lines, cols=keys, dtype="f32")
    cycles = cycles + product_cycles(chip, heads, rows, values, keys, "f32")
    if dtype != "f32":
        cycles = cycles + chip.estimate("Cast", n=heads * keys * values, source=dtype, to="f32")
        cycles = cycles + chip.estimate("Cast", n=lines * values, source="f32", to=dtype)
    return cycles


def _attention_bytes(work: Work) -> np.ndarray:
    """The scores of one head after another, and in half its values and results as float."""
    _, rows, keys, _, values = _sizes(work)
    wide = 0 if str(work.read_types[0].dtype) == "f32" else 4 * values * (keys + rows)
    return 4 * rows * keys + wide


register_vertex(
    VertexKind(
        "Attention",
        _attention,
        _attention_cycles,
        ("Amp1x1", "Hmac", "Elementwise", "Select", "Softmax", "Cast"),
        _attention_bytes,
    )
)

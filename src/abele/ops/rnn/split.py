"""Steps of a recurrent layer whose sums are split over the tiles, for few batch rows.

A step that leaves each hidden unit to one tile sends the whole output of the step before to all of them, and one tile
sums over all of it. Here a step is two compute sets: tiles that each hold a piece of the recurrent weights, split over
the summed dimension too, make partial sums; then the tiles that hold the cells, fewer of them, add these up and do the
cell. A tile is sent the part that it sums over, from few others, and all tiles work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from abele.ir.graph import Attributes
from abele.ir.types import DType, TensorType
from abele.machine.chip import Chip
from abele.machine.exchange import exchange_cycles
from abele.ops.plans.partials import set_cycles
from abele.ops.plans.products import product_cycles
from abele.ops.plans.search import DOES_NOT_FIT, few_part_counts
from abele.ops.plans.vertices import region_shape
from abele.ops.rnn.cells import cell_grad, gru_cell, lstm_cell
from abele.ops.rnn.layers import Layer
from abele.schedule.layout import Axis, Grid, Layout, Span
from abele.schedule.records import Access, ComputeSet
from abele.schedule.vertex import Block, VertexKind, Work, register_vertex

Pieces = Sequence[np.ndarray]

GRAIN = 4
"""Parts of the summed dimension are multiples of it where it is: the dot products then load whole words."""


@dataclass(frozen=True)
class Split:
    """A layer whose steps are split so.

    Attributes:
        layer: its grid is that of the cells.
        grid: of the partial sums: axes ``t`` (one step), ``b``, ``k`` (summed) and ``h``.
        backward: whether the gates' gradients are summed, or the output before.
    """

    layer: Layer
    grid: Grid
    backward: bool

    @classmethod
    def of(cls, layer: Layer) -> Split | None:
        """The split with the least cycles; ``None`` where the layer's own steps take fewer."""
        if not layer.batch or not layer.hidden:
            return None
        backward = layer.question.operation.endswith("_grad")
        chip, hidden, batch = layer.question.chip, layer.hidden, layer.batch
        # summed over: the gradients of all gates, in float, or the output before, for each gate
        kinds, made, dtype = (layer.gates, 1, DType.F32) if backward else (1, layer.gates, layer.type("x").dtype)
        grain = GRAIN if hidden % GRAIN == 0 else 1
        counts = [few_part_counts(n, 16) for n in (batch, hidden // grain, hidden, hidden)]
        pb, pk, ph, pc = (x.ravel() for x in np.meshgrid(*counts, indexing="ij"))
        fits = (pb * pk * ph <= chip.tiles) & (pb * pc <= chip.tiles)
        pb, pk, ph, pc = (x[fits] for x in (pb, pk, ph, pc))
        b, k, h, own = -(-batch // pb), grain * -(-(hidden // grain) // pk), -(-hidden // ph), -(-hidden // pc)
        sent = exchange_cycles(chip, b * kinds * k * dtype.bytes, messages=b * -(-k // own)) + product_cycles(
            chip, 1, b, made * h, kinds * k, str(dtype)
        )
        outputs = b * own * made
        joined = exchange_cycles(chip, pk * outputs * 4, messages=pk * (1 + own // h)) + _cell_cycles(
            chip, layer.cell, b * own, outputs, pk, backward
        )
        weights = layer.gates * hidden * -(-hidden // (pk * ph)) * layer.type("w_hh").dtype.bytes
        held = weights + b * kinds * k * dtype.bytes + layer.steps * (b * h * made + outputs) * 4
        cycles = (
            2 * set_cycles(chip) + sent + joined + np.where(pb > 1, exchange_cycles(chip, weights), 0) / layer.steps
        )
        limit = layer.question.options.memory_proportion * chip.tile_memory
        score = np.where(held <= limit, cycles, DOES_NOT_FIT + held)
        best = np.lexsort((pb * pk * ph, score))[0]
        whole = [axis.classes()[0][0] for axis in layer.grid.axes[1:]]
        if score[best] >= set_cycles(chip) + int(layer.cost(*whole, counted=True)[0]):
            return None
        axes = (Axis("t", 1), Axis("b", batch, int(pb[best])))
        tiles, first = chip.tiles, layer.question.first
        cells = Grid((*axes, Axis("h", hidden, int(pc[best]))), tiles, first)
        sums = (Axis("k", hidden, int(pk[best]), grain), Axis("h", hidden, int(ph[best])))
        return cls(replace(layer, grid=cells), Grid((*axes, *sums), tiles, first), backward)

    @property
    def parts(self) -> int:
        return self.grid.axes[2].parts

    @property
    def weights(self) -> Layout:
        """The piece of the recurrent weights that a tile holds."""
        gates, hidden = self.layer.gates, self.layer.hidden
        spans = (Span(2), Span(3)) if self.backward else (Span(3), Span(2))
        return Layout(self.grid, (gates, hidden, hidden), (Span(), *spans))

    @property
    def partial(self) -> TensorType:
        """The partial sums of all steps: ``[T, parts, B, H]``, and of each gate forward."""
        kinds = () if self.backward else (self.layer.gates,)
        return TensorType((self.layer.steps, self.parts, self.layer.batch, self.layer.hidden, *kinds), DType.F32)

    def _kinds(self) -> tuple[Span, ...]:
        return () if self.backward else (Span(),)

    def made(self, t: int) -> Layout:
        """The partial sums of step ``t`` as they are made."""
        part = Span.part_of(2, self.grid.axes[2])
        return Layout(self.grid, self.partial.shape, (Span(0, offset=t), part, Span(1), Span(3), *self._kinds()))

    def gathered(self, t: int) -> Layout:
        """The partial sums of step ``t`` as the cells read them."""
        return Layout(
            self.layer.grid, self.partial.shape, (Span(0, offset=t), Span(), Span(1), Span(2), *self._kinds())
        )

    def step(self, t: int, weights: Access, partial: str) -> tuple[ComputeSet, ComputeSet]:
        """A time step forward: what the output before adds to the gates, in parts; their sum and the cell."""
        layer, results = self.layer, len(self.layer.question.results)
        if t == 0:
            before = layer.read("h0", Layout(self.grid, (layer.batch, layer.hidden), (Span(1), Span(2))))
        else:
            spans = (Span(0, offset=t - 1), Span(1), Span(2))
            before = Access("out0", Layout(self.grid, (layer.steps, layer.batch, layer.hidden), spans))
        first = ComputeSet("RnnPartial", self.grid, (weights, before), (Access(partial, self.made(t)),))
        reads = [Access("tmp0", layer.kinds(layer.gates, t)), Access(partial, self.gathered(t))]
        if layer.cell == "lstm":
            cells = layer.kinds(layer.reserved, t - 1, 4)
            reads.append(layer.read("c0", layer.state()) if t == 0 else Access("out3", cells, True))
        else:
            reads.append(layer.read("b_hh", Layout(layer.grid, (layer.gates, layer.hidden), (Span(), Span(2)))))
            reads.append(layer.read("h0", layer.state()) if t == 0 else Access("out0", layer.own(t - 1), True))
        writes = [Access("out0", layer.own(t)), Access(f"out{results - 1}", layer.kinds(layer.reserved, t))]
        if t == layer.steps - 1:
            writes += [Access(f"out{i}", layer.state()) for i in range(1, results - 1)]
        return first, ComputeSet("RnnJoin", layer.grid, tuple(reads), tuple(writes), {"cell": layer.cell})

    def through(self, t: int, weights: Access, partial: str) -> ComputeSet:
        """The gradients of the gates of step ``t``, back through the recurrent weights, in parts."""
        layer = self.layer
        shape = (layer.steps, layer.batch, layer.gates, layer.hidden)
        gates = Access("tmp0", Layout(self.grid, shape, (Span(0, offset=t), Span(1), Span(), Span(2))))
        return ComputeSet("RnnPartialGrad", self.grid, (gates, weights), (Access(partial, self.made(t)),))

    def came(self, t: int, partial: str) -> tuple[Access, Access]:
        """What the cells read of the step after ``t - 1``: the parts, and what passed by the gates."""
        return Access(partial, self.gathered(t)), Access("tmp1", self.layer.own(t), True)


def _cell_cycles(chip: Chip, cell: str, units, outputs, parts, backward: bool):
    """Adding up the parts, and the cell; the gradient of a cell has about twice the operations of the cell."""
    summed = chip.estimate("ReducePartials", outputs=outputs, depth=parts, dtype="f32", out="f32")
    return summed + (2 if backward else 1) * chip.estimate("Rnn", n=units, cell=cell, dtype="f32")


def _partial(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    w, before = pieces
    w = w.reshape(w.shape[-3:])
    sums = np.einsum("bk,ghk->bhg", before.reshape(-1, before.shape[-1]), w)
    return [sums.reshape(region_shape(block.writes[0]))]


def _partial_cycles(chip: Chip, work: Work) -> np.ndarray:
    weights = work.read_types[0]
    gates = work.write_types[0].shape[-1]
    b, k, h = (work.lengths[axis] for axis in "bkh")
    return product_cycles(chip, 1, b, gates * h, k, str(weights.dtype))


def _partial_grad(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    gates, w = pieces
    sums = np.einsum("bgk,gkh->bh", gates[0], w.reshape(w.shape[-3:]))
    return [sums.reshape(region_shape(block.writes[0]))]


def _partial_grad_cycles(chip: Chip, work: Work) -> np.ndarray:
    """Gradients of gates are float: so is the product."""
    gates = work.read_types[0].shape[-2]
    b, k, h = (work.lengths[axis] for axis in "bkh")
    return product_cycles(chip, 1, b, h, gates * k, "f32")


def _join(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    """The last reads are the cell (LSTM), or the recurrent bias and the output before (GRU)."""
    given, parts, *last = pieces
    from_h = np.moveaxis(parts[0].sum(axis=0), -1, 1)
    shape = from_h[:, 0].shape
    if attributes["cell"] == "lstm":
        h, kept = lstm_cell(given[0] + from_h, last[0].reshape(shape))
        states = [h, kept[:, 4]]
    else:
        h, kept = gru_cell(given[0], from_h + last[0], last[1].reshape(shape))
        states = [h]
    return [h[None], kept[None], *states][: len(block.writes)]


def _join_cycles(chip: Chip, work: Work) -> np.ndarray:
    partial, units = work.read_types[1], work.lengths["b"] * work.lengths["h"]
    outputs = units * partial.shape[-1]
    return _cell_cycles(chip, str(work.attributes["cell"]), units, outputs, partial.shape[1], False)


def _join_grad(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    dy, reserve, before, parts, passed = pieces
    cell, dh = str(attributes["cell"]), dy[0] + parts[0].sum(axis=0)
    if cell == "gru":
        return cell_grad(cell, dh + passed[0], None, reserve[0], before.reshape(dh.shape))
    return cell_grad(cell, dh, passed[0], reserve[0], before.reshape(dh.shape))


def _state_join(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    parts, passed = pieces
    dh = parts[0].sum(axis=0)
    return [dh, passed[0]] if attributes["cell"] == "lstm" else [dh + passed[0]]


def _join_grad_cycles(chip: Chip, work: Work, at: int, cell: bool) -> np.ndarray:
    units, parts = work.lengths["b"] * work.lengths["h"], work.read_types[at].shape[1]
    if not cell:
        return chip.estimate("ReducePartials", outputs=units, depth=parts, dtype="f32", out="f32")
    return _cell_cycles(chip, str(work.attributes["cell"]), units, units, parts, True)


_PRODUCT = ("Amp1x1", "Hmac")
register_vertex(VertexKind("RnnPartial", _partial, _partial_cycles, _PRODUCT))
register_vertex(VertexKind("RnnJoin", _join, _join_cycles, ("ReducePartials", "Rnn")))
register_vertex(VertexKind("RnnPartialGrad", _partial_grad, _partial_grad_cycles, _PRODUCT))
register_vertex(
    VertexKind(
        "RnnJoinGrad", _join_grad, lambda chip, work: _join_grad_cycles(chip, work, 3, True), ("ReducePartials", "Rnn")
    )
)
register_vertex(
    VertexKind(
        "RnnStateJoin", _state_join, lambda chip, work: _join_grad_cycles(chip, work, 0, False), ("ReducePartials",)
    )
)

"""How recurrent layers lie on the tiles.

Forward: the input's part of all gates in one product over steps, batch and hidden units; then one compute set for each
time step, split over batch and hidden units. A tile holds the recurrent weights of its hidden units, and is sent the
output of the step before for its batch rows. Backward: one set for each step in reverse, then the products that give
the gradients of input, weights and biases.

For few batch rows the planner ``best`` splits the sums of a step too, which makes it two compute sets (``split.py``).

Where the weights do not lie as the steps want them, they are laid so once, before the first step. Compute sets grow
with the time steps, whatever the number of tiles.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.ir.graph import Attributes
from abele.ir.types import DType, TensorType
from abele.machine.chip import Chip
from abele.machine.exchange import exchange_cycles
from abele.ops.plans.planning import Question, plan_for
from abele.ops.plans.products import product_cycles
from abele.ops.rnn.cells import cell_grad, fed_back, gru_cell, lstm_cell, weight_gradient
from abele.ops.rnn.layers import Layer, choose_grid
from abele.ops.rnn.split import Split
from abele.schedule.layout import Axis, Grid, Layout, Span
from abele.schedule.records import Access, ComputeSet, Plan
from abele.schedule.vertex import Block, VertexKind, Work, register_vertex

Pieces = Sequence[np.ndarray]


def _weights(layer: Layer, layout: Layout, name: str) -> tuple[Access, tuple[ComputeSet, ...], tuple[TensorType, ...]]:
    """The recurrent weights as the steps read them, and what lays them so: nothing when they lie so already."""
    direct = layer.read("w_hh", layout)
    if direct.resident or not layer.batch:
        return direct, (), ()
    rows = layout.grid.axes[1]
    copies = (rows.parts, *layout.shape)
    laid = Layout(layout.grid, copies, (Span.part_of(1, rows), *layout.spans))
    spread = ComputeSet("RnnSpread", layout.grid, (direct,), (Access(name, laid),))
    return Access(name, laid, True), (spread,), (TensorType(copies, layer.type("w_hh").dtype),)


# Forward


@plan_for("lstm", "gru")
def plan_forward(question: Question) -> Plan:
    """The input's part of the gates, the weights laid out, and the steps."""
    layer = Layer.of(question)
    gates, hidden = layer.gates, layer.hidden
    temporaries = [TensorType((layer.steps * layer.batch, gates, hidden), DType.F32)]
    split = _split(layer)
    if split is None:
        view = Layout(layer.grid, (gates, hidden, hidden), (Span(), Span(2), Span()))
        weights, spread, copies = _weights(layer, view, "tmp1")
        steps = [_step(layer, t, weights) for t in range(layer.steps)]
    else:
        layer = split.layer
        temporaries.append(split.partial)
        weights, spread, copies = _weights(layer, split.weights, "tmp2")
        steps = [done for t in range(layer.steps) for done in split.step(t, weights, "tmp1")]
    sets = (_input_set(layer), *spread, *steps)
    homes = (layer.every(), *(layer.state() for _ in question.results[1:-1]), layer.kinds(layer.reserved, None))
    return Plan(sets, (*temporaries, *copies), homes)


def _split(layer: Layer) -> Split | None:
    """How the planner ``best`` splits the sums of a step, where that pays."""
    return Split.of(layer) if layer.question.options.planner == "best" else None


def _input_set(layer: Layer) -> ComputeSet:
    """``x W_ihᵀ + b`` for all steps, in float, split over rows (steps and batch) and hidden units."""
    rows, inputs, hidden, gates = layer.steps * layer.batch, layer.inputs, layer.hidden, layer.gates
    chip, dtype = layer.question.chip, layer.type("x").dtype

    def cost(n: np.ndarray, h: np.ndarray, parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        received = (n + gates * h) * inputs * dtype.bytes
        work = product_cycles(chip, 1, n, gates * h, inputs, str(dtype))
        return exchange_cycles(chip, received) + work, received + n * gates * h * 4

    grid = choose_grid(layer.question, ("row", "h"), (rows, hidden), cost)
    reads = (
        layer.read("x", Layout(grid, (rows, inputs), (Span(0), Span()))),
        layer.read("w_ih", Layout(grid, (gates, hidden, inputs), (Span(), Span(1), Span()))),
        layer.read("b" if layer.cell == "lstm" else "b_ih", Layout(grid, (gates, hidden), (Span(), Span(1)))),
    )
    made = Layout(grid, (rows, gates, hidden), (Span(0), Span(), Span(1)))
    return ComputeSet("RnnInput", grid, reads, (Access("tmp0", made),), {"gates": gates})


def _step(layer: Layer, t: int, weights: Access) -> ComputeSet:
    """One time step: what the output before adds to the gates, and the cell."""
    before = layer.read("h0", layer.state_row()) if t == 0 else Access("out0", layer.row(t - 1))
    reads = [Access("tmp0", layer.kinds(layer.gates, t)), weights, before]
    writes = [
        Access("out0", layer.own(t)),
        Access(f"out{len(layer.question.results) - 1}", layer.kinds(layer.reserved, t)),
    ]
    if layer.cell == "lstm":
        cells = layer.kinds(layer.reserved, t - 1, 4)
        reads.append(layer.read("c0", layer.state()) if t == 0 else Access("out3", cells, True))
    else:
        bias = Layout(layer.grid, (layer.gates, layer.hidden), (Span(), Span(2)))
        reads.append(layer.read("b_hh", bias))
    if t == layer.steps - 1:
        writes += [Access(f"out{i}", layer.state()) for i in range(1, len(layer.question.results) - 1)]
    return ComputeSet("RnnStep", layer.grid, tuple(reads), tuple(writes), {"cell": layer.cell})


def _spread(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    return [pieces[0][None]]


def _spread_cycles(chip: Chip, work: Work) -> np.ndarray:
    return chip.estimate("Copy", bytes=work.writes[0] * work.write_types[0].dtype.bytes)


def _input(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    x, w, b = pieces
    return [np.einsum("ni,ghi->ngh", x, w) + b]


def _input_cycles(chip: Chip, work: Work) -> np.ndarray:
    x, gates = work.read_types[0], int(work.attributes["gates"])
    n, h = work.lengths["row"], work.lengths["h"]
    bias = chip.estimate("Elementwise", n=work.writes[0], ops="add", dtype="f32", broadcast="inner", rows=n)
    return product_cycles(chip, 1, n, gates * h, x.shape[-1], str(x.dtype)) + bias


def _step_vertex(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    """The last read is the cell (LSTM) or the recurrent bias (GRU)."""
    given, w, before, last = pieces
    h0, h1 = block.axes["h"]
    given, before = given[0], before.reshape(given.shape[1], before.shape[-1])
    from_h = np.einsum("bk,ghk->bgh", before, w.reshape(w.shape[-3:]))
    if attributes["cell"] == "lstm":
        h, kept = lstm_cell(given + from_h, last.reshape(before.shape[0], h1 - h0))
        states = [h, kept[:, 4]]
    else:
        h, kept = gru_cell(given, from_h + last, before[:, h0:h1])
        states = [h]
    return [h[None], kept[None], *states][: len(block.writes)]


def _step_cycles(chip: Chip, work: Work) -> np.ndarray:
    weights, cell = work.read_types[1], str(work.attributes["cell"])
    b, h, hidden = work.lengths["b"], work.lengths["h"], work.write_types[0].shape[-1]
    gates = weights.shape[0] // hidden if weights.rank == 2 else weights.shape[-3]
    product = product_cycles(chip, 1, b, gates * h, hidden, str(weights.dtype))
    return product + chip.estimate("Rnn", n=b * h, cell=cell, dtype="f32")


register_vertex(VertexKind("RnnSpread", _spread, _spread_cycles, ("Copy",)))
register_vertex(VertexKind("RnnInput", _input, _input_cycles, ("Amp1x1", "Hmac", "Elementwise")))
register_vertex(VertexKind("RnnStep", _step_vertex, _step_cycles, ("Amp1x1", "Hmac", "Rnn")))


# Backward: tmp0 is the gradient of what the output brought to the gates, tmp1 what passes by the gates to the step
# before, tmp2 (GRU) the gradient of what the input brought.


@plan_for("lstm_grad", "gru_grad")
def plan_backward(question: Question) -> Plan:
    """The steps from last to first, the initial state, then input, weights and biases."""
    layer = Layer.of(question)
    gates, hidden = layer.gates, layer.hidden
    of_gates = TensorType((layer.steps, layer.batch, gates, hidden), DType.F32)
    temporaries = [of_gates, TensorType((layer.steps, layer.batch, hidden), DType.F32)]
    lstm = layer.cell == "lstm"
    if not lstm:
        temporaries.append(of_gates)
    split = _split(layer)
    partial = f"tmp{len(temporaries)}"
    if split is None:
        view = Layout(layer.grid, (gates * hidden, hidden), (Span(), Span(2)))
    else:
        layer, view = split.layer, split.weights
        temporaries.append(split.partial)
    weights, spread, copies = _weights(layer, view, f"tmp{len(temporaries)}")
    steps: list[ComputeSet] = []
    for t in reversed(range(-1, layer.steps)):
        came: tuple[Access, ...] = ()
        if t < layer.steps - 1:
            if split is not None:
                steps.append(split.through(t + 1, weights, partial))
                came = split.came(t + 1, partial)
            else:
                came = (Access("tmp0", layer.kinds_row(layer.gates, t + 1)), weights)
                came += (Access("tmp1", layer.own(t + 1), True),)
        steps.append(_step_grad(layer, t, came) if t >= 0 else _state_grad(layer, came))
    from_x = "tmp0" if lstm else "tmp2"
    at = 3 if lstm else 2  # results before the gradient of w_ih
    products = [
        _product(layer, "x", from_x, "out0"),
        _product(layer, "w_ih", from_x, f"out{at}"),
        _product(layer, "w_hh", "tmp0", f"out{at + 1}"),
        *(_bias_set(layer, source, f"out{at + 2 + i}") for i, source in enumerate(dict.fromkeys((from_x, "tmp0")))),
    ]
    homes = [layer.state()] * len(question.results)
    for done in products:
        homes[int(done.writes[0].name[3:])] = done.writes[0].layout
    return Plan((*spread, *steps, *products), (*temporaries, *copies), tuple(homes))


def _step_grad(layer: Layer, t: int, came: tuple[Access, ...]) -> ComputeSet:
    """Reads: dy, reserve, the cell (LSTM) or output (GRU) before; then the gradients of the last state, or what
    ``came`` from the step after: its gates' gradients and the weights, or their product in parts; and what passed by
    its gates."""
    lstm = layer.cell == "lstm"
    reads = [layer.read("dy", layer.own(t)), layer.read("reserve", layer.kinds(layer.reserved, t))]
    if t == 0:
        reads.append(layer.read("c0" if lstm else "h0", layer.state()))
    elif lstm:
        reads.append(layer.read("reserve", layer.kinds(layer.reserved, t - 1, 4)))
    else:
        reads.append(layer.read("y", layer.own(t - 1)))
    last = t == layer.steps - 1
    if last:
        reads += [layer.read(name, layer.state()) for name in (("dhT", "dcT") if lstm else ("dhT",))]
    else:
        reads += came
    writes = [Access("tmp0", layer.kinds(layer.gates, t)), Access("tmp1", layer.own(t))]
    if not lstm:
        writes.append(Access("tmp2", layer.kinds(layer.gates, t)))
    vertex = "RnnLastGrad" if last else "RnnJoinGrad" if len(came) == 2 else "RnnStepGrad"
    return ComputeSet(vertex, layer.grid, tuple(reads), tuple(writes), {"cell": layer.cell})


def _state_grad(layer: Layer, came: tuple[Access, ...]) -> ComputeSet:
    results = (1, 2) if layer.cell == "lstm" else (1,)
    writes = tuple(Access(f"out{i}", layer.state()) for i in results)
    vertex = "RnnStateJoin" if len(came) == 2 else "RnnStateGrad"
    return ComputeSet(vertex, layer.grid, came, writes, {"cell": layer.cell})


def _product(layer: Layer, of: str, gates: str, out: str) -> ComputeSet:
    """The gradient of the input (rows × inputs) or of a weight matrix (gates × inputs or hidden units)."""
    rows, wide, chip = layer.steps * layer.batch, layer.gates * layer.hidden, layer.question.chip
    dtype, other = layer.type("x").dtype, layer.hidden if of == "w_hh" else layer.inputs
    m, k = (rows, wide) if of == "x" else (wide, rows)

    def cost(a: np.ndarray, b: np.ndarray, parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        received = k * (a * 4 + b * dtype.bytes)
        return exchange_cycles(chip, received) + product_cycles(chip, 1, a, b, k, "f32"), received

    grid = choose_grid(layer.question, ("m", "n"), (m, other), cost)
    made = Access(out, Layout(grid, (m, other), (Span(0), Span(1))))
    if of == "x":
        reads = [
            Access(gates, Layout(grid, (rows, wide), (Span(0), Span()))),
            layer.read("w_ih", Layout(grid, (wide, other), (Span(), Span(1)))),
        ]
    else:
        reads = [Access(gates, Layout(grid, (layer.steps, layer.batch, wide), (Span(), Span(), Span(0))))]
        sequence = Layout(grid, (layer.steps, layer.batch, other), (Span(), Span(), Span(1)))
        if of == "w_ih":
            reads.append(layer.read("x", sequence))
        else:
            start = Layout(grid, (layer.batch, other), (Span(), Span(1)))
            reads += [layer.read("y", sequence), layer.read("h0", start)]
    vertex = "RnnInputGrad" if of == "x" else "RnnWeightGrad"
    return ComputeSet(vertex, grid, tuple(reads), (made,), {"depth": k})


def _bias_set(layer: Layer, gates: str, out: str) -> ComputeSet:
    wide = layer.gates * layer.hidden
    grid = Grid((Axis("n", wide, max(1, min(wide, layer.question.chip.tiles))),), layer.question.chip.tiles)
    rows = layer.steps * layer.batch
    read = Access(gates, Layout(grid, (rows, wide), (Span(), Span(0))))
    return ComputeSet("RnnBiasGrad", grid, (read,), (Access(out, Layout(grid, (wide,), (Span(0),))),), {"depth": rows})


def _last_grad(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    dy, reserve, before, dh, *dc = pieces
    shape = dh.shape
    return cell_grad(
        str(attributes["cell"]), dy.reshape(shape) + dh, dc[0] if dc else None, reserve[0], before.reshape(shape)
    )


def _through(gates: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The gradient of an output through the gates of the step after."""
    w = w.reshape(w.shape[-2:])
    return gates.reshape(gates.shape[1], len(w)) @ w


def _step_grad_vertex(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    dy, reserve, before, gates, w, passed = pieces
    cell, shape = str(attributes["cell"]), dy.shape[1:]
    dh, passed = dy[0] + _through(gates, w), passed[0]
    if cell == "gru":
        return cell_grad(cell, dh + passed, None, reserve[0], before.reshape(shape))
    return cell_grad(cell, dh, passed, reserve[0], before.reshape(shape))


def _state_grad_vertex(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    gates, w, passed = pieces
    dh = _through(gates, w)
    return [dh, passed[0]] if attributes["cell"] == "lstm" else [dh + passed[0]]


def _cell_cycles(chip: Chip, work: Work) -> np.ndarray:
    """The gradient of a cell has about twice the operations of the cell."""
    n = work.lengths["b"] * work.lengths["h"]
    return 2 * chip.estimate("Rnn", n=n, cell=str(work.attributes["cell"]), dtype="f32")


def _through_cycles(chip: Chip, work: Work, at: int) -> np.ndarray:
    """Gradients of gates are float: so is the product."""
    gates = work.read_types[at]
    depth = gates.shape[-2] * gates.shape[-1]
    return product_cycles(chip, 1, work.lengths["b"], work.lengths["h"], depth, "f32")


def _input_grad(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    return [pieces[0] @ pieces[1]]


def _weight_grad(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    gates, given, *start = pieces
    return [weight_gradient(gates, fed_back(start[0], given) if start else given)]


def _product_cycles(chip: Chip, work: Work) -> np.ndarray:
    depth = int(work.attributes["depth"])
    return product_cycles(chip, 1, work.lengths["m"], work.lengths["n"], depth, "f32")


def _bias_cycles(chip: Chip, work: Work) -> np.ndarray:
    depth = max(1, int(work.attributes["depth"]))
    return chip.estimate("Reduce", outputs=work.writes[0], depth=depth, dtype="f32", layout="strided")


_PRODUCT = ("Amp1x1", "Hmac")

register_vertex(VertexKind("RnnLastGrad", _last_grad, _cell_cycles, ("Rnn",)))
register_vertex(
    VertexKind(
        "RnnStepGrad",
        _step_grad_vertex,
        lambda chip, work: _cell_cycles(chip, work) + _through_cycles(chip, work, 3),
        ("Rnn", *_PRODUCT),
    )
)
register_vertex(
    VertexKind("RnnStateGrad", _state_grad_vertex, lambda chip, work: _through_cycles(chip, work, 0), _PRODUCT)
)
register_vertex(VertexKind("RnnInputGrad", _input_grad, _product_cycles, _PRODUCT))
register_vertex(VertexKind("RnnWeightGrad", _weight_grad, _product_cycles, _PRODUCT))
register_vertex(
    VertexKind("RnnBiasGrad", lambda block, pieces, attributes: [pieces[0].sum(axis=0)], _bias_cycles, ("Reduce",))
)

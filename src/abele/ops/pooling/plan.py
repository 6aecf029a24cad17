"""How pooling and its gradients lie on the tiles: split over batch, channels and field; windows with their halo."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from abele.ir.graph import Attribute
from abele.machine.chip import Chip
from abele.machine.exchange import exchange_cycles
from abele.ops.plans.halo import Halo
from abele.ops.plans.partials import set_cycles
from abele.ops.plans.planning import Question, plan_for, read
from abele.ops.plans.search import Dimension, Parts, search
from abele.ops.pooling.op import divisors, pool, spread_first_maximum, spread_sum
from abele.ops.rules import extents
from abele.schedule.layout import Grid, Span
from abele.schedule.records import Access, ComputeSet, Plan
from abele.schedule.vertex import Block, VertexKind, Work, register_vertex


def _operands(question: Question) -> tuple[list[Halo], Halo]:
    """The operands with their windows, and the result."""
    a: dict[str, Any] = dict(question.attributes)
    kernel = a["kernel"]
    spans = extents(kernel, a.get("dilation") or (1,) * len(kernel))
    names = ("n", "c", *(f"f{i}" for i in range(len(kernel))))
    plain = (Span(0),) * len(names)
    places = list(zip(a["strides"], a["padding"], spans, strict=True))
    # windows of outputs; windows that meet an input; all that those windows meet
    window = (*plain[:2], *(Span(0, s, -p[0], e) for s, p, e in places))
    inverse = (*plain[:2], *(Span(0, 1, p[0] - e + 1, e, s) for s, p, e in places))
    around = (*plain[:2], *(Span(0, 1, 1 - e, 2 * e - 1) for _, _, e in places))
    used = {
        "max_pool": (window,),
        "avg_pool": (window,),
        "max_pool_grad": (around, inverse, inverse),
        "avg_pool_grad": (inverse,),
    }[question.operation]
    reads = [Halo(t.shape, names, s) for t, s in zip(question.operands, used, strict=True)]
    return reads, Halo(question.results[0].shape, names, plain)


def _pool_cycles(chip: Chip, lengths: Mapping[str, Any], operation: str, kernel: Sequence[int], dtype: str) -> Any:
    lengths = {key: np.maximum(value, 1) for key, value in lengths.items()}
    rows = [lengths[key] for key in lengths if key.startswith("f")]
    kind, grad = operation[:3], operation.endswith("_grad")
    field = math.prod(rows, start=lengths["n"])
    return chip.estimate(
        "Pool",
        field=field,
        channels=lengths["c"],
        kernel=math.prod(kernel),
        kind=kind,
        dtype=dtype,
        row=rows[-1],
        grad=grad,
    )


@plan_for("max_pool", "max_pool_grad", "avg_pool", "avg_pool_grad")
def plan_pool(question: Question) -> Plan:
    """One compute set: every block pools, or gathers the gradients of, its part of the result."""
    chip, (result,) = question.chip, question.results
    reads, made = _operands(question)
    grain = max(1, chip.data_path_bytes // result.dtype.bytes)
    sizes = zip(made.axes, result.shape, (1, grain, *(1,) * (result.rank - 2)), strict=True)
    dimensions = [Dimension(str(name), size, step) for name, size, step in sizes]
    names = [d.name for d in dimensions]
    kernel: Any = question.attribute("kernel")
    allowed = question.options.memory_proportion * chip.tile_memory

    def cost(parts: Parts) -> tuple[np.ndarray, np.ndarray]:
        lengths = {d.name: np.maximum(d.length(parts[d.name]), 1) for d in dimensions}
        received: Any = np.zeros_like(lengths["n"])
        for operand, home in zip(reads, question.homes, strict=True):
            size = operand.elements(parts, lengths) * result.dtype.bytes
            here = operand.lies_once(parts, names) if home is None else False
            received = received + np.where(here, 0, size)
        work = _pool_cycles(chip, lengths, question.operation, kernel, str(result.dtype))
        return set_cycles(chip) + exchange_cycles(chip, received) + work, received / allowed

    parts, _ = search(dimensions, chip.tiles, cost)
    first = question.first if 2 * math.prod(parts.values()) <= chip.tiles else 0
    grid = Grid(tuple(d.axis(parts[d.name]) for d in dimensions), chip.tiles, first)
    home = made.layout(grid)
    attributes: dict[str, Attribute] = dict(question.attributes) | {"input": question.operands[0].shape[2:]}
    accesses = tuple(read(question, i, operand.layout(grid)) for i, operand in enumerate(reads))
    kind = _KINDS[question.operation]
    return Plan((ComputeSet(kind, grid, accesses, (Access("out0", home),), attributes),), (), (home,))


# The vertices


def _field(block: Block) -> list[tuple[int, int]]:
    return [bounds for name, bounds in block.axes.items() if name.startswith("f")]


def _dilation(a: Mapping[str, Any]) -> tuple[int, ...]:
    return a.get("dilation") or (1,) * len(a["kernel"])


def _pooled(block: Block, piece: np.ndarray, kind: str, a: Mapping[str, Any]) -> np.ndarray:
    field, region = _field(block), block.reads[0][2:]
    starts = [b[0] * s - p[0] - r.start for b, s, p, r in zip(field, a["strides"], a["padding"], region, strict=True)]
    return pool(piece, kind, a["kernel"], [e - b for b, e in field], starts, a["strides"], _dilation(a))


def _max(block: Block, pieces: Sequence[np.ndarray], a: Mapping[str, Any]) -> Sequence[np.ndarray]:
    return [_pooled(block, pieces[0], "max", a)]


def _avg(block: Block, pieces: Sequence[np.ndarray], a: Mapping[str, Any]) -> Sequence[np.ndarray]:
    return [_pooled(block, pieces[0], "sum", a) / divisors(_field(block), a["input"], a)]


def _max_grad(block: Block, pieces: Sequence[np.ndarray], a: Mapping[str, Any]) -> Sequence[np.ndarray]:
    """The piece of ``x`` holds whole windows, so that the first maximum of each is found; only its own part counts."""
    region, outs = block.reads[0][2:], block.reads[1][2:]
    starts = [o.start * s - p[0] - r.start for o, s, p, r in zip(outs, a["strides"], a["padding"], region, strict=True)]
    dx = spread_first_maximum(*pieces, a["kernel"], starts, a["strides"], a["dilation"])  # type: ignore[call-arg]
    own = tuple(slice(b - r.start, e - r.start) for (b, e), r in zip(_field(block), region, strict=True))
    return [dx[(..., *own)]]


def _avg_grad(block: Block, pieces: Sequence[np.ndarray], a: Mapping[str, Any]) -> Sequence[np.ndarray]:
    field, outs = _field(block), block.reads[0][2:]
    share = pieces[0] / divisors([(o.start, o.stop) for o in outs], a["input_shape"][2:], a)
    starts = [o.start * s - p[0] - b for o, s, p, (b, _) in zip(outs, a["strides"], a["padding"], field, strict=True)]
    return [spread_sum(share, [e - b for b, e in field], a["kernel"], starts, a["strides"])]


def _cycles(operation: str):
    def cycles(chip: Chip, work: Work) -> np.ndarray:
        kernel: Any = work.attributes["kernel"]
        return _pool_cycles(chip, work.lengths, operation, kernel, str(work.read_types[0].dtype))

    return cycles


_KINDS = {
    "max_pool": "MaxPool",
    "avg_pool": "AvgPool",
    "max_pool_grad": "MaxPoolGrad",
    "avg_pool_grad": "AvgPoolGrad",
}
_COMPUTE = {"max_pool": _max, "avg_pool": _avg, "max_pool_grad": _max_grad, "avg_pool_grad": _avg_grad}
for _operation, _kind in _KINDS.items():
    register_vertex(VertexKind(_kind, _COMPUTE[_operation], _cycles(_operation), ("Pool",)))

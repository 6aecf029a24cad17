"""How elementwise work lies on the tiles: where its largest operand lies, or evenly; one vertex a tile, one loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.ir.operation import Primitive, lookup
from abele.ir.types import DType, TensorType
from abele.machine.chip import Chip
from abele.ops.elementwise.activations import last_activation
from abele.ops.elementwise.functions import FUNCTIONS
from abele.ops.elementwise.op import convert, count
from abele.ops.plans.chains import map_vertex
from abele.ops.plans.layouts import align, even, flat, pointwise, read_along
from abele.ops.plans.planning import Question, plan_for
from abele.ops.plans.vertices import like, region_shape
from abele.ops.rules import Attributes
from abele.schedule.records import Access, ComputeSet, Plan
from abele.schedule.vertex import Block, VertexKind, Work, register_vertex

Pieces = Sequence[np.ndarray]


def pointwise_set(question: Question, vertex: str, attributes: Attributes) -> Plan:
    """One compute set that computes the first result from operands that broadcast to it."""
    result = question.results[0]
    layout = pointwise(question, result)
    reads = []
    for i, operand in enumerate(question.operands):
        aligned = align(layout, result.shape, operand.shape)
        assert aligned is not None
        reads.append(read_along(question, i, aligned, result.shape))
    done = ComputeSet(vertex, layout.grid, tuple(reads), (Access("out0", layout),), dict(attributes))
    return Plan((done,), (), (layout,))


# One function


def _apply(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    shape = region_shape(block.writes[0])
    name = str(attributes["operation"])
    primitive = lookup(name)
    assert isinstance(primitive, Primitive)
    result = TensorType(shape, DType.F32)
    return [np.asarray(primitive.reference([like(p, shape) for p in pieces], {}, [result])[0])]


def _broadcast(work: Work, own: TensorType) -> dict:
    """How the smaller operand of a binary function meets the larger: the cases that the cycle table knows."""
    small = min(work.read_types, key=lambda t: t.size)
    if len(work.read_types) < 2 or small.size == own.size:
        return {}
    if small.size == 1:
        return {"broadcast": "scalar"}
    elements = np.maximum(work.writes[0], 1)
    touched = np.maximum(work.reads[work.read_types.index(small)], 1)
    if small.shape[-1] == own.shape[-1]:
        return {"broadcast": "inner", "rows": np.maximum(elements // touched, 1)}
    return {"broadcast": "outer", "rows": np.minimum(touched, elements)}


def _apply_cycles(chip: Chip, work: Work) -> np.ndarray:
    name, dtype = str(work.attributes["operation"]), str(work.read_types[0].dtype)
    return chip.estimate(
        "Elementwise", n=work.writes[0], ops=name, dtype=dtype, **_broadcast(work, work.write_types[0])
    )


register_vertex(VertexKind("Elementwise", _apply, _apply_cycles, ("Elementwise",)))


@plan_for(*FUNCTIONS)
def plan_function(question: Question) -> Plan:
    """One loop for one function."""
    body = (
        (question.operation, str(question.results[0].dtype), tuple(range(-1, -1 - len(question.operands), -1)), ()),
    )
    if last_activation(body)[1]:
        return pointwise_set(question, *map_vertex(body))
    return pointwise_set(question, "Elementwise", {"operation": question.operation})


# Chains


@plan_for("map")
def plan_map(question: Question) -> Plan:
    """One loop for the whole chain."""
    return pointwise_set(question, *map_vertex(question.attribute("body")))


# select and cast


def _select(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    shape = region_shape(block.writes[0])
    return [np.where(*(like(p, shape) for p in pieces))]


def _select_cycles(chip: Chip, work: Work) -> np.ndarray:
    return chip.estimate("Select", n=work.writes[0], dtype=str(work.write_types[0].dtype))


register_vertex(VertexKind("Select", _select, _select_cycles, ("Select",)))


@plan_for("select")
def plan_select(question: Question) -> Plan:
    """A choice at each element."""
    return pointwise_set(question, "Select", {})


def _cast(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    return [convert(like(pieces[0], region_shape(block.writes[0])), DType(str(attributes["dtype"])))]


def _cast_cycles(chip: Chip, work: Work) -> np.ndarray:
    source, to = work.read_types[0].dtype, work.write_types[0].dtype
    return chip.estimate("Cast", n=work.writes[0], source=str(source), to=str(to))


register_vertex(VertexKind("Cast", _cast, _cast_cycles, ("Cast",)))


@plan_for("cast")
def plan_cast(question: Question) -> Plan:
    """A conversion where the operand lies."""
    return pointwise_set(question, "Cast", dict(question.attributes))


# fill and iota


def _fill(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    return [np.full(region_shape(block.writes[0]), attributes["value"])]


def _fill_cycles(chip: Chip, work: Work) -> np.ndarray:
    return chip.estimate("Fill", n=work.writes[0], dtype=str(work.write_types[0].dtype))


register_vertex(VertexKind("Fill", _fill, _fill_cycles, ("Fill",)))


@plan_for("fill")
def plan_fill(question: Question) -> Plan:
    """Each tile sets its own elements."""
    layout = flat(question.results[0], question.chip, question.first)
    attributes = {"value": question.attribute("value")}
    return Plan((ComputeSet("Fill", layout.grid, (), (Access("out0", layout),), attributes),), (), (layout,))


def _iota(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    region = block.writes[0]
    shape, axis = region_shape(region), int(attributes["axis"])
    numbers = count(shape[axis], region[axis].start, attributes)
    return [np.broadcast_to(numbers.reshape((-1,) + (1,) * (len(shape) - axis - 1)), shape)]


def _iota_cycles(chip: Chip, work: Work) -> np.ndarray:
    return chip.estimate("Elementwise", n=work.writes[0], ops="add", dtype=str(work.write_types[0].dtype), operands=1)


register_vertex(VertexKind("Iota", _iota, _iota_cycles, ("Elementwise",)))


@plan_for("iota")
def plan_iota(question: Question) -> Plan:
    """Each tile counts from its own index."""
    layout = even(question.results[0], question.chip, question.first)
    attributes = {key: question.attribute(key) for key in ("axis", "start", "step")}
    return Plan((ComputeSet("Iota", layout.grid, (), (Access("out0", layout),), attributes),), (), (layout,))

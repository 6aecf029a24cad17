"""How elementwise work lies on the tiles: where its largest operand lies, or evenly; one vertex a tile, one loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.ir.operation import Primitive, lookup
from abele.ir.types import DType, TensorType
from abele.machine.chip import Chip
from abele.machine.cycles import ELEMENTWISE_OPS
from abele.ops.elementwise.expression import evaluate_body
from abele.ops.elementwise.functions import FUNCTIONS
from abele.ops.elementwise.fuse import body_of, root_of, root_types
from abele.ops.elementwise.op import convert, count
from abele.ops.layouts import align, even, flat, pointwise, read_like
from abele.ops.planning import Question, make_plan, plan_for
from abele.ops.rules import Attributes
from abele.ops.vertices import like, region_shape
from abele.schedule.records import Access, ComputeSet, Plan
from abele.schedule.vertex import Block, VertexKind, Work, register_vertex

Pieces = Sequence[np.ndarray]


def estimated_name(fn: str) -> str:
    """The name of an elementwise primitive in the machine's table of cycles."""
    function = FUNCTIONS.get(fn)
    name = function.vertex if function and function.vertex else fn
    assert name in ELEMENTWISE_OPS, name
    return name


def pointwise_set(question: Question, vertex: str, attributes: Attributes) -> Plan:
    """One compute set that computes the first result from operands that broadcast to it."""
    result = question.results[0]
    layout = pointwise(question, result)
    reads = []
    for i, operand in enumerate(question.operands):
        aligned = align(layout, result.shape, operand.shape)
        assert aligned is not None
        reads.append(read_like(question, i, aligned))
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
    name = estimated_name(str(work.attributes["operation"]))
    dtype = str(work.read_types[0].dtype)
    return chip.estimate(
        "Elementwise", n=work.writes[0], ops=name, dtype=dtype, **_broadcast(work, work.write_types[0])
    )


register_vertex(VertexKind("Elementwise", _apply, _apply_cycles, ("Elementwise",)))


@plan_for(*FUNCTIONS)
def plan_function(question: Question) -> Plan:
    """One loop for one function."""
    return pointwise_set(question, "Elementwise", {"operation": question.operation})


# Chains


def _map(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    shape = region_shape(block.writes[0])
    done = evaluate_body(body_of(attributes), [like(p, shape) for p in pieces])
    return [np.broadcast_to(done, shape)]


def chain_cycles(chip: Chip, n: np.ndarray, body: Sequence, operands: int) -> np.ndarray:
    """Tile cycles of a fused chain over ``n`` elements.

    One loop in the widest float type that the body uses; constants cost nothing, casts a move between registers.
    """
    names = [estimated_name(fn) for fn, *_ in body if fn != "constant"]
    dtypes = [node[1] for node in body]
    dtype = "f32" if "f32" in dtypes else "f16" if "f16" in dtypes else next((d for d in dtypes if d != "bool"), "bool")
    return chip.estimate("Elementwise", n=n, ops=tuple(names) or "copy", dtype=dtype, operands=operands)


def _map_cycles(chip: Chip, work: Work) -> np.ndarray:
    return chain_cycles(chip, work.writes[0], body_of(work.attributes), len(work.reads))


register_vertex(VertexKind("Map", _map, _map_cycles, ("Elementwise",)))


@plan_for("map")
def plan_map(question: Question) -> Plan:
    """One loop for the whole chain."""
    return pointwise_set(question, "Map", dict(question.attributes))


@plan_for("fused")
def plan_fused(question: Question) -> Plan:
    """The plan of the root, and then the map where its result lies.

    The root's result is a temporary: nobody else sees it.
    """
    attributes = dict(question.attributes)
    name, given, number = root_of(attributes)
    first, *others = root_types(question.operands, attributes)
    root = make_plan(
        Question(
            name,
            tuple(given.items()),
            question.operands[:number],
            (first, *others),
            question.homes[:number],
            question.chip,
            question.first,
            question.options,
        )
    )
    inner = f"tmp{len(root.temporaries)}"
    sets = tuple(_renamed(s, "out0", inner) for s in root.sets)
    home, result = root.homes[0], question.results[0]
    reads, layout = [Access(inner, home, True)], home
    for i in range(number, len(question.operands)):
        aligned = align(home, result.shape, question.operands[i].shape)
        if aligned is None:
            layout = even(result, question.chip, question.first)
            break
        reads.append(read_like(question, i, aligned))
    if layout is not home:
        again = [align(layout, result.shape, question.operands[i].shape) for i in range(number, len(question.operands))]
        reads = [Access(inner, layout)] + [
            read_like(question, i, found) for i, found in enumerate(again, number) if found is not None
        ]
    write = Access("out0", layout)
    mapped = ComputeSet("Map", layout.grid, tuple(reads), (write,), {"body": attributes["body"]})
    return Plan((*sets, mapped), (*root.temporaries, first), (layout, *root.homes[1:]))


def _renamed(s: ComputeSet, old: str, new: str) -> ComputeSet:
    """The compute set with one tensor called otherwise."""

    def rename(a: Access) -> Access:
        return Access(new, a.layout, a.resident) if a.name == old else a

    reads, writes = tuple(map(rename, s.reads)), tuple(map(rename, s.writes))
    return ComputeSet(s.vertex, s.grid, reads, writes, s.attributes)


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

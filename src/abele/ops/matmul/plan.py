"""How a matrix product lies on the tiles, as it was chosen: transposes, partial products, their reduction; vertices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from abele.ir.graph import Attribute, Attributes
from abele.ir.types import DType, TensorType
from abele.machine.chip import Chip
from abele.ops.matmul.choose import (
    Arranged,
    Product,
    arranging,
    choose,
    operand_layout,
    transposing,
    turned_operands,
    view_of,
)
from abele.ops.matmul.op import matmul_reference
from abele.ops.plans.layouts import read_like
from abele.ops.plans.partials import reduce_turn, reduction
from abele.ops.plans.planning import Question, plan_for, read
from abele.ops.plans.products import vertex_cycles
from abele.ops.plans.vertices import region_shape
from abele.schedule.layout import Axis, Grid, Layout, Span
from abele.schedule.records import Access, ComputeSet, Plan
from abele.schedule.vertex import Block, VertexKind, Work, register_vertex


@plan_for("matmul")
def plan_matmul(question: Question) -> Plan:
    """Partial products and, where the sum is split, their reduction; both once for every turn."""
    product = Product.of(question)
    choice = choose(question, product)
    grid, axis, turns = choice.grid, choice.axis, choice.turns
    if turns > 1:
        grid = Grid((*grid.axes, Axis("turn", 1)), grid.tiles, grid.first)
    out = [*product.names, "m", "n"]
    before = _arrangements(question, product, grid, axis, turns)
    turned = tuple(turn and i not in before for i, turn in enumerate(turned_operands(question, product)))
    attributes: dict[str, Attribute] = {
        "batch": tuple((in_a, in_b) for _, in_a, in_b in product.batch),
        "transpose_a": product.transposed[0],
        "transpose_b": product.transposed[1],
        "method": choice.method,
        "partials": str(product.partials),
        "turned": turned,
        "turns": turns,
        "axis": axis,
    }
    k = grid.axes[grid.axis("k")]
    sets: list[ComputeSet] = []
    temporaries: list[TensorType] = []
    names: dict[int, str] = {}
    for i, how in before.items():
        names[i] = f"tmp{(turns if k.parts > 1 else 0) + len(names)}"
        read_ = Access(f"in{i}", how.layout, how.resident)
        if how.resident:
            read_ = read_like(question, i, how.layout)
        sets.append(ComputeSet("MatmulArrange", how.layout.grid, (read_,), (Access(names[i], how.layout),)))
    home, one = view_of(grid, out, axis, turns, None), view_of(grid, out, "", 1, None)
    for turn in range(turns):
        layouts = [operand_layout(product, grid, i, axis, turns, turn) for i in (0, 1)]
        reads = tuple(
            Access(names[i], layout) if i in names else read(question, i, layout) for i, layout in enumerate(layouts)
        )
        if k.parts == 1:
            writes = (Access("out0", view_of(grid, out, axis, turns, turn)),)
            sets.append(ComputeSet(_KINDS[choice.method], grid, reads, writes, attributes))
            continue
        made = Layout(grid, (k.parts, *one.shape), (Span.part_of(grid.axis("k"), k), *one.spans))
        writes = (Access(f"tmp{turn}", made),)
        sets.append(ComputeSet(_KINDS[choice.method], grid, reads, writes, attributes))
        temporaries.append(TensorType(made.shape, product.partials))
        if turns > 1:
            summed, home = reduce_turn(question.chip, made.shape, out.index(axis), turn, turns)
            sets.append(summed)
    temporaries += [question.operands[i] for i in before]
    if turns == 1 and k.parts > 1:
        done = reduction(question, 0, k.parts, first=grid.first, made=one, spare=len(temporaries))
        sets.extend(done.sets)
        temporaries.extend(done.temporaries)
        home = done.home
    return Plan(tuple(sets), tuple(temporaries), (home,))


def _arrangements(question: Question, product: Product, grid: Grid, axis: str, turns: int) -> dict[int, Arranged]:
    """The operands that are better transposed once than by every tile that reads them, as the costs have it."""
    largest = {a.name: max(1, a.classes()[0][0]) for a in grid.axes}
    groups = math.prod(largest[name] for name in product.names)
    found = {}
    for i, turn in enumerate(turned_operands(question, product)):
        if not turn or question.homes[i] == operand_layout(product, grid, i, axis, turns):
            continue
        how = Arranged.of(question, product, i)
        if how.cycles < turns * int(transposing(question.chip, product, i, groups, largest)):
            found[i] = how
    return found


# The vertices


def _compute(block: Block, pieces: Sequence[np.ndarray], attributes: Attributes) -> Sequence[np.ndarray]:
    """The product of two blocks; batch groups that an operand lacks broadcast, a dimension of one turn goes."""
    batch: tuple[tuple[bool, bool], ...] = attributes["batch"]
    wide = []
    for position, piece in enumerate(pieces):
        if attributes["turns"] != 1 and "mn"[position] == attributes["axis"]:
            outer_first = attributes["transpose_b"] if position else not attributes["transpose_a"]
            piece = piece.squeeze(-3 if outer_first else -2)
        sizes = iter(piece.shape[:-2])
        wide.append(piece.reshape(*(next(sizes) if group[position] else 1 for group in batch), *piece.shape[-2:]))
    (y,) = matmul_reference(wide, attributes)
    return [y.reshape(region_shape(block.writes[0]))]


def _arrange_compute(block: Block, pieces: Sequence[np.ndarray], attributes: Attributes) -> Sequence[np.ndarray]:
    """The same elements in another order within the tile."""
    return [pieces[0].reshape(region_shape(block.writes[0]))]


def _arrange_cycles(chip: Chip, work: Work) -> np.ndarray:
    return arranging(chip, np.maximum(work.writes[0], 1), work.write_types[0].dtype)


register_vertex(VertexKind("MatmulArrange", _arrange_compute, _arrange_cycles, ("Transpose",)))


def _cycles(chip: Chip, work: Work) -> np.ndarray:
    lengths = work.lengths
    groups = math.prod((lengths[name] for name in lengths if name.startswith("b")), start=np.int64(1))
    dtype, partials = str(work.read_types[0].dtype), str(work.attributes["partials"])
    cycles = vertex_cycles(
        chip,
        str(work.attributes["method"]),
        groups,
        lengths["m"],
        lengths["n"],
        lengths["k"],
        dtype,
        partials,
        work.attributes["turned"],
    )
    out = str(work.write_types[0].dtype)
    if out != partials:
        cycles = cycles + chip.estimate(
            "ReducePartials", outputs=np.maximum(work.writes[0], 1), depth=1, dtype=partials, out=out
        )
    return cycles


def _scratch(work: Work) -> np.ndarray:
    """Sums in a wider type than the result's, before they are rounded into it."""
    partials = DType(str(work.attributes["partials"]))
    return work.writes[0] * (partials.bytes if partials is not work.write_types[0].dtype else 0)


_KINDS = {
    "amp": "MatmulAmp",
    "amp_swapped": "MatmulAmp",
    "hmac": "MatmulHmac",
    "hmac_swapped": "MatmulHmac",
    "outer": "MatmulOuter",
}
for _name, _code in (("MatmulAmp", "Amp1x1"), ("MatmulHmac", "Hmac"), ("MatmulOuter", "OuterProduct")):
    register_vertex(VertexKind(_name, _compute, _cycles, (_code,), _scratch))

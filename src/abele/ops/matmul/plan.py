"""How a matrix product lies on the tiles, as it was chosen: transposes, partial products, their reduction; vertices.

There are two plans. The first moves the operands of whole blocks and sums afterwards; the second (``stationary``) keeps
sums where they are made, and is for the planner ``best`` alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

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
from abele.ops.matmul.stationary import Stationary, multiply, place, stationary
from abele.ops.plans.layouts import read_like
from abele.ops.plans.partials import reduce_turn, reduction, sum_partials
from abele.ops.plans.planning import Question, make_plan, plan_for, read
from abele.ops.plans.products import loads_wide, vertex_cycles
from abele.ops.plans.vertices import region_shape
from abele.schedule.layout import Axis, Grid, Layout, Span
from abele.schedule.records import Access, ComputeSet, Plan
from abele.schedule.vertex import Block, VertexKind, Work, register_vertex


@plan_for("matmul", choices=2)
def plan_matmul(question: Question) -> Plan:
    """The plan of the choice that is asked for; where there is no second one, the first."""
    product = Product.of(question)
    if not question.choice:
        return _plan_blocks(question, product)
    found = stationary(question, product)
    return make_plan(replace(question, choice=0)) if found is None else plan_stationary(question, found)


def _plan_blocks(question: Question, product: Product) -> Plan:
    """Partial products and, where the sum is split, their reduction; both once for every turn."""
    choice = choose(question, product)
    grid, axis, turns = choice.grid, choice.axis, choice.turns
    if turns > 1:
        grid = Grid((*grid.axes, Axis("turn", 1)), grid.tiles, grid.first)
    out = [*product.names, "m", "n"]
    largest = {a.name: max(1, a.classes()[0][0]) for a in grid.axes}
    first_reads = [operand_layout(product, grid, i, axis, turns) for i in (0, 1)]
    before = _arrangements(question, product, largest, first_reads, turns)
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
    if loads_wide(question):
        attributes["wide"] = True
    k = grid.axes[grid.axis("k")]
    sets: list[ComputeSet] = []
    temporaries: list[TensorType] = []
    names: dict[int, str] = {}
    for i, how in before.items():
        names[i] = f"tmp{(turns if k.parts > 1 else 0) + len(names)}"
        sets.append(_arrange(question, i, how, names[i]))
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
            summed, home = reduce_turn(question, made.shape, out.index(axis), turn, turns)
            sets.append(summed)
    temporaries += [question.operands[i] for i in before]
    if turns == 1 and k.parts > 1:
        done = reduction(question, 0, k.parts, first=grid.first, made=one, spare=len(temporaries))
        sets.extend(done.sets)
        temporaries.extend(done.temporaries)
        home = done.home
    return Plan(tuple(sets), tuple(temporaries), (home,))


def plan_stationary(question: Question, found: Stationary) -> Plan:
    """Turns over the summed dimension that add to what is there, and the sum over the tiles that share it."""
    product, chip, result = found.product, question.chip, question.results[0]
    grid = found.grid(chip.tiles)
    x = found.names[0]
    largest = {a.name: max(1, a.classes()[0][0]) * (found.k if a.name == x else 1) for a in grid.axes}
    before = _arrangements(question, product, largest, [found.operand(grid, i, 0) for i in (0, 1)], found.turns)
    apart = found.k > 1 or product.partials is not result.dtype
    sums, temporaries = "out0", list[TensorType]()
    made = found.result(grid, split=False)
    if apart:
        sums, made = "tmp0", found.sums(grid, split=False)
        temporaries.append(TensorType(made.shape, product.partials))
    sets: list[ComputeSet] = []
    names: dict[int, str] = {}
    for i, how in before.items():
        names[i] = f"tmp{len(temporaries)}"
        sets.append(_arrange(question, i, how, names[i]))
        temporaries.append(question.operands[i])
    attributes: dict[str, Attribute] = {
        "batch": tuple((in_a, in_b) for _, in_a, in_b in product.batch),
        "transpose_a": product.transposed[0],
        "transpose_b": product.transposed[1],
        "partials": str(product.partials),
        "turned": tuple(turn and i not in before for i, turn in enumerate(turned_operands(question, product))),
        "swapped": found.swapped,
        "cut": found.k,
        "places": found.rounds * found.room if found.rounds > 1 else 0,
    }
    for turn in range(found.turns):
        layouts = [found.operand(grid, i, turn) for i in (0, 1)]
        reads = tuple(
            Access(names[i], layout) if i in names else read(question, i, layout) for i, layout in enumerate(layouts)
        )
        if not turn:
            sets.append(ComputeSet("MatmulTurn", grid, reads, (Access(sums, made),), attributes))
            continue
        again = Access(sums, made, over=sums)
        sets.append(ComputeSet("MatmulTurn", grid, (*reads, Access(sums, made, True)), (again,), attributes))
    home = made
    if apart:
        placing = found.grid(chip.tiles, summing=True)
        home = found.result(placing, split=True)
        if found.rounds == 1:
            read_ = Access("tmp0", found.sums(placing, split=True))
            sets.append(sum_partials(read_, Access("out0", home, over="tmp0"), fast=True))
        else:
            summing = found.grid(chip.tiles, summing=True, parts=True)
            name = f"tmp{len(temporaries)}"
            for round in range(found.rounds):
                read_ = Access("tmp0", found.sums(summing, split=True, round=round))
                sets.append(sum_partials(read_, Access(name, found.parts(summing, round), over="tmp0"), fast=True))
            here = Access(name, found.parts(placing), True)
            given = {name: attributes[name] for name in ("swapped", "places")}
            sets.append(ComputeSet("MatmulPlace", placing, (here,), (Access("out0", home, over=name),), given))
            temporaries.append(TensorType(here.layout.shape, result.dtype))
    rests = tuple(found.at_rest(grid, i) if home is None else None for i, home in enumerate(question.homes))
    return Plan(tuple(sets), tuple(temporaries), (home,), rests)


def _arrange(question: Question, operand: int, how: Arranged, name: str) -> ComputeSet:
    """Transpose an operand within its tiles, into a temporary."""
    access = Access(f"in{operand}", how.layout, how.resident)
    if how.resident:
        access = read_like(question, operand, how.layout)
    return ComputeSet("MatmulArrange", how.layout.grid, (access,), (Access(name, how.layout),))


def _arrangements(
    question: Question, product: Product, largest: Mapping[str, int], reads: Sequence[Layout], turns: int
) -> dict[int, Arranged]:
    """The operands that are better transposed once than by every tile that reads them, as the costs have it.

    ``largest``: the longest part of every axis; ``reads``: how the operands are read in the first turn.
    """
    groups = math.prod(largest[name] for name in product.names)
    found = {}
    for i, turn in enumerate(turned_operands(question, product)):
        if not turn or question.homes[i] == reads[i]:
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


def _turn_compute(block: Block, pieces: Sequence[np.ndarray], attributes: Attributes) -> Sequence[np.ndarray]:
    """The product of two slices, added to what the third piece holds. Every part of x has ``places`` where given."""
    sizes = {name: stop - start for name, (start, stop) in block.axes.items()}
    sizes["n" if attributes["swapped"] else "m"] *= int(attributes["cut"])
    batch: tuple[tuple[bool, bool], ...] = attributes["batch"]
    operands = []
    for i, piece in enumerate(pieces[:2]):
        groups = (sizes[f"b{j}"] if inside[i] else 1 for j, inside in enumerate(batch))
        inner = [sizes["mn"[i]], sizes["k"]]
        k_first = bool(attributes["transpose_b" if i else "transpose_a"]) == (i == 0)
        operands.append(piece.reshape(*groups, *(inner[::-1] if k_first else inner)))
    (y,) = matmul_reference(operands, attributes)
    if attributes["places"]:
        at, cut = (-1 if attributes["swapped"] else -2), int(attributes["cut"])
        y = np.moveaxis(y, at, -1)
        y = y.reshape(*y.shape[:-1], cut, -1)
        spare = int(attributes["places"]) - y.shape[-1]
        y = np.pad(y, [(0, 0)] * (y.ndim - 1) + [(0, spare)])
        y = np.moveaxis(y.reshape(*y.shape[:-2], -1), -1, at)
    y = y.reshape(region_shape(block.writes[0]))
    return [y + pieces[2] if len(pieces) > 2 else y]


def _place_compute(block: Block, pieces: Sequence[np.ndarray], attributes: Attributes) -> Sequence[np.ndarray]:
    """What was added up, without the places to spare behind each part."""
    shape = region_shape(block.writes[0])
    start, stop = block.axes["n" if attributes["swapped"] else "m"]
    inner = 1 if attributes["swapped"] else shape[-1]
    rows = pieces[0].reshape(-1, int(attributes["places"]), inner)
    return [rows[:, : stop - start].reshape(shape)]


def _place_cycles(chip: Chip, work: Work) -> np.ndarray:
    groups = math.prod((work.lengths[name] for name in work.lengths if name.startswith("b")), start=np.int64(1))
    return place(chip, groups, work.writes[0] * work.write_types[0].dtype.bytes)


register_vertex(VertexKind("MatmulPlace", _place_compute, _place_cycles, ("Copy",)))


def _turn_cycles(chip: Chip, work: Work) -> np.ndarray:
    given, dtype = work.attributes, work.read_types[0].dtype
    lengths = {name: np.maximum(length, 1) for name, length in work.lengths.items()}
    x, y = ("n", "m") if given["swapped"] else ("m", "n")
    lengths[x] = lengths[x] * int(given["cut"])
    groups = math.prod((lengths[name] for name in lengths if name.startswith("b")), start=np.int64(1))
    types = str(dtype), str(given["partials"])
    sizes = {"field": lengths[x], "in_chans": lengths["k"], "out_chans": lengths[y], "groups": groups}
    cycles = multiply(chip, *types, adds=len(work.reads) > 2, **sizes)
    for turn, rows in zip(given["turned"], ("m", "n"), strict=True):
        if turn:
            fields = {"rows": lengths[rows], "cols": lengths["k"], "blocks": groups}
            cycles = cycles + chip.estimate("Transpose", **fields, dtype=str(dtype))
    return cycles


register_vertex(VertexKind("MatmulTurn", _turn_compute, _turn_cycles, ("Amp1x1",)))


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
        bool(work.attributes.get("wide")),
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

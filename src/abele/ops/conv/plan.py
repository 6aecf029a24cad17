"""How convolutions and their gradients lie on the tiles: split over batch, groups, channels and field.

The three maps are planned alike. Each has axes that its result keeps and axes that it sums over; a split of the
latter leaves partials, which further compute sets add up. What does not fit the memory that an operation may take is
done in turns, a part of the result's channels each. A block of the field reads its window with the halo;
the gradient of the input reads the inverse window. Costs counted: exchange of what does not lie at home, the
cheapest vertex (matrix unit, Slic, Vmac, Hmac), transposes within the tile, exchange and sum of partials.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.ir.graph import Attribute, Attributes
from abele.ir.types import DType, TensorType
from abele.machine.chip import Chip
from abele.ops.conv.maps import Map, picks_positions
from abele.ops.conv.memory import temporary_bytes
from abele.ops.conv.methods import dots_together, vertex_cycles
from abele.ops.conv.op import convolve, padded, spread_gradient, weight_gradient
from abele.ops.plans.partials import adds_fast, reduce_costs, reduce_turn, reduction, set_cycles
from abele.ops.plans.planning import Question, plan_for, read
from abele.ops.plans.products import float8_methods, loads_wide
from abele.ops.plans.search import DOES_NOT_FIT, Parts, score_of, search
from abele.ops.plans.sharing import aligned_first, ordered, shared_exchange
from abele.ops.plans.vertices import region_shape
from abele.ops.rules import extents
from abele.schedule.layout import Grid, Layout, Span
from abele.schedule.records import Access, ComputeSet, Plan
from abele.schedule.vertex import Block, VertexKind, Work, register_vertex

AMP_OUTPUTS = 8
"""With so many channels on both sides a block of weights fills the matrix unit, and dot products are not tried."""


def methods_of(chip: Chip, it: Map) -> tuple[str, ...]:
    """The vertices that can do a map with so many channels in a group."""
    sizes = {d.name: d.size for d in it.dimensions}
    o, c, taps = sizes["o"], sizes["c"], math.prod(it.kernel)
    amp = ("amp",) if chip.amp_units(it.dtype, it.partials) else ()
    if it.name == "conv_weight_grad":
        return (*amp, "amp_swapped", "hmac") if amp else ("hmac",)
    if it.dtype.is_float8:
        return float8_methods(chip, it.name, amp)
    # dot products of whole words do 4 products a cycle, the matrix unit at least 16
    found = (*amp, "hmac") if not amp or c < chip.amp_in_group(it.dtype) or o < AMP_OUTPUTS else amp
    if o == c == 1 and taps > 1:
        found += ("vmac",)
    if o == c and o <= 4 and taps > 1 and it.dtype is DType.F16 and max(it.strides) <= 2 and chip.slic_chains_f16:
        found += ("slic",)
    return found


def _turned(question: Question) -> tuple[bool, bool]:
    """Operands that the tile transposes: a gradient's that lie somewhere in the order of the forward map."""
    decided = tuple(home is not None for home in question.homes)
    if question.operation == "conv":
        return (False, False)
    return (question.operation == "conv_weight_grad" and decided[0], decided[1])


def _costs(question: Question, it: Map, methods: Sequence[str], turns: int, bound: _Bound):
    """The objective: cycles of ``turns`` such maps, and how full the fullest tile gets."""
    chip, turned, wide, fast = question.chip, _turned(question), loads_wide(question), adds_fast(question)
    dots = dots_together(question, it.partials)
    free = tuple(home is None and turns == 1 for home in question.homes)
    (result,) = question.results
    result = result.with_shape((math.prod(result.shape) // turns,))

    followed = [frozenset(name for name in operand.axes if name) for operand in it.operands]

    def order(parts: Mapping[str, int]) -> list[str]:
        """The axes in the order in which neighbours share the operand that costs most."""
        column = {name: np.array([count]) for name, count in parts.items()}
        lengths = {d.name: np.maximum(d.length(column[d.name]), 1) for d in it.dimensions}
        each = [operand.elements(column, lengths) for operand in it.operands]
        each = [
            np.where(may_lie & operand.lies_once(column, it.names), 0, size * it.dtype.bytes)
            for operand, may_lie, size in zip(it.operands, free, each, strict=True)
        ]
        chosen = int(shared_exchange(chip, it.names, column, each, followed)[1][0])
        return ordered(it.names, followed[chosen] if chosen >= 0 else None)

    def cost(parts: Parts, kept: tuple[bool, ...] = (False, False)) -> tuple[np.ndarray, np.ndarray]:
        lengths = {d.name: np.maximum(d.length(parts[d.name]), 1) for d in it.dimensions}
        each: list[Any] = []
        for_good: Any = 0
        for operand, may_lie, stays in zip(it.operands, free, kept, strict=True):
            size = operand.elements(parts, lengths) * it.dtype.bytes
            here = operand.lies_once(parts, it.names) if may_lie and not stays else stays
            each.append(np.where(here, 0, size))
            for_good = for_good + np.where(here, size, 0)
        received = each[0] + each[1]
        sums = (lengths, it.kernel, it.strides, str(it.dtype), str(it.partials), turned)
        each_work = [vertex_cycles(chip, it.name, method, *sums, wide, dots) for method in methods]
        made = it.result.elements(parts, lengths)
        depth: Any = math.prod((parts[name] for name in it.summed), start=np.int64(1))
        split = depth > 1
        cast: Any = 0
        if it.partials is not result.dtype:
            types = {"dtype": str(it.partials), "out": str(result.dtype)}
            cast = np.where(split, 0, chip.estimate("ReducePartials", outputs=made, depth=1, **types))
        summing, gathered = reduce_costs(chip, result, depth, it.partials, fast)
        left = np.where(split | (it.partials is not result.dtype), made * it.partials.bytes, 0)
        around = set_cycles(chip) + shared_exchange(chip, it.names, parts, each, followed)[0] + cast + summing
        temporary = np.maximum(received + left, left + gathered)
        stays_here = for_good + np.where(split, result.size / chip.tiles, made) * result.dtype.bytes * turns
        full = (temporary + stays_here) / chip.tile_memory
        if question.options.planner != "poplibs":
            work = np.minimum.reduce(each_work)
            return (around + work) * turns, np.maximum(temporary / chip.tile_memory / bound.proportion, full)
        padding = question.attribute("padding")
        found = []
        for method, work in zip(methods, each_work, strict=True):
            needs = temporary_bytes(chip, it, method, parts, lengths, padding, turns) / chip.tile_memory
            found.append(bound.judge((around + work) * turns, needs, full))
        return _better(found)

    return cost, order


def _better(found: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Of cycles and fullness by several methods those of the best one, split by split."""
    best = np.argmin([score_of(*pair) for pair in found], axis=0)
    cycles, full = (np.choose(best, [np.broadcast_to(pair[i], best.shape) for pair in found]) for i in (0, 1))
    return cycles, full


@dataclass(frozen=True, slots=True)
class _Bound:
    """How much memory plans may take.

    Attributes:
        proportion: of tile memory, for temporaries.
        least: look for the least temporary memory instead, and among equal ones for the fewest cycles.
    """

    proportion: float
    least: bool = False

    def judge(self, cycles: np.ndarray, needs: np.ndarray, full: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Cycles (or what stands for them) and fullness of splits that need so much of a tile's memory."""
        if self.least:
            return np.minimum(needs, 1.0) * _MEMORY_FIRST + np.minimum(cycles, _MEMORY_FIRST / 1e6), full
        return cycles, np.maximum(needs / self.proportion, full)


_MEMORY_FIRST = DOES_NOT_FIT / 4
"""A tile's memory in cycles, where memory is to be saved first: a byte outweighs all cycles of any convolution."""


@dataclass(frozen=True, slots=True)
class _Choice:
    """A split: the grid, the method, and in how many turns the channels of the result are done."""

    score: float
    grid: Grid
    method: str
    turns: int = 1


MOST_TURNS = 32
"""More turns than this are not looked for: a convolution that still does not fit is reported."""


def _choose(question: Question, it: Map) -> _Choice:
    """The least cycles that fit; what does not fit at once is done in turns.

    The planner ``poplibs`` goes on as the vendor's when nothing keeps to the proportion: see ``PlanOptions.short``.
    """
    options = question.options
    best = _in_turns(question, it, _Bound(options.memory_proportion))
    if best.score < DOES_NOT_FIT or options.planner != "poplibs":
        return best
    if options.short == "least":
        return _in_turns(question, it, _Bound(1.0, least=True))
    proportion = options.memory_proportion
    while best.score >= DOES_NOT_FIT and proportion < MOST_MEMORY:
        proportion *= 2
        best = _in_turns(question, it, _Bound(proportion))
    return best


MOST_MEMORY = 2.0
"""Up to so many times a tile's memory the vendor's planner doubles what temporaries may take (graphcore/poplibs,
poplin/ConvPlan.cpp)."""


def _in_turns(question: Question, it: Map, bound: _Bound) -> _Choice:
    """The best choice in one turn or, where it does not fit or memory is to be saved, in several."""
    best = _best_of(question, it, 1, bound)
    turns, channels = 2, next(d.size for d in it.dimensions if d.name == it.channel)
    while (best.score >= DOES_NOT_FIT or bound.least) and turns <= MOST_TURNS and channels % turns == 0:
        start = {axis.name: axis.parts for axis in best.grid.axes}
        best = min(best, _best_of(question, it.part(turns), turns, bound, start), key=lambda choice: choice.score)
        turns *= 2
    return best


def _best_of(question: Question, it: Map, turns: int, bound: _Bound, start: Mapping[str, int] | None = None) -> _Choice:
    """The grid and the method with the least cycles that fit, in so many turns; ``start``: as for ``search``."""
    chip = question.chip
    sizes = {d.name: d.size for d in it.dimensions}
    methods = methods_of(chip, it)
    cost, order = _costs(question, it, methods, turns, bound)
    parts, score = search(it.dimensions, chip.tiles, cost, start)
    blocks = math.prod(parts.values())
    first = aligned_first(chip, question.first) if 2 * blocks <= chip.tiles else 0
    axes = {d.name: d.axis(parts[d.name]) for d in it.dimensions}
    grid = Grid(tuple(axes[name] for name in order(parts)), chip.tiles, first)
    for home in question.homes if turns == 1 else ():
        # an operand that already lies as such a map would read it: the same weights once more
        if home is None or {a.name: a.size for a in home.grid.axes} != sizes:
            continue
        kept = tuple(o.layout(home.grid) == h for o, h in zip(it.operands, question.homes, strict=True))
        if any(kept):
            value = float(score_of(*cost({a.name: np.array([a.parts]) for a in home.grid.axes}, kept))[0])
            if value < score:
                grid, score = home.grid, value
    lengths = {a.name: a.classes()[0][0] for a in grid.axes}
    column = {a.name: np.array([a.parts]) for a in grid.axes}

    def cycles(method: str) -> float:
        if question.options.planner == "poplibs":
            return float(score_of(*_costs(question, it, (method,), turns, bound)[0](column))[0])
        types = (str(it.dtype), str(it.partials), (False, False), loads_wide(question))
        return float(vertex_cycles(chip, it.name, method, lengths, it.kernel, it.strides, *types))

    return _Choice(score, grid, min(methods, key=cycles), turns)


@plan_for("conv", "conv_input_grad", "conv_weight_grad")
def plan_conv(question: Question) -> Plan:
    """Partial results and, where a summed axis is split, their reduction; both once for every turn."""
    it = Map.of(question)
    choice = _choose(question, it)
    grid, turns = choice.grid, choice.turns
    given = dict(question.attributes)
    attributes: dict[str, Attribute] = {
        "strides": it.strides,
        "picks": picks_positions(question),
        "padding": given["padding"],
        "dilation": given["dilation"],
        "kernel": it.kernel,
        "method": choice.method,
        "partials": str(it.partials),
        "turned": _turned(question),
        "turns": tuple(o.axes.index("turn") if "turn" in o.axes else -1 for o in it.part(turns).operands),
    }
    if loads_wide(question):
        attributes["wide"] = True
    if choice.method == "hmac" and (together := dots_together(question, it.partials)):
        attributes["out_group"] = together
    kind = _kind(it.name, choice.method)
    split = [grid.axis(name) for name in it.summed if grid.axes[grid.axis(name)].parts > 1]
    counts = tuple(grid.axes[i].parts for i in split)
    spans = tuple(Span.part_of(i, grid.axes[i]) for i in split)
    depth = math.prod(counts)
    sets: list[ComputeSet] = []
    temporaries: list[TensorType] = []
    home = it.part(turns, None).result.layout(grid)
    for turn in range(turns):
        now = it.part(turns, turn)
        reads = tuple(read(question, i, operand.layout(grid)) for i, operand in enumerate(now.operands))
        here = now.result.layout(grid)
        if not split:
            sets.append(ComputeSet(kind, grid, reads, (Access("out0", here),), attributes))
            continue
        # a partial result has no turns: it is the part of one
        at = now.result.axes.index("turn") if turns > 1 else len(here.shape)
        shape, own = (*here.shape[:at], *here.shape[at + 1 :]), (*here.spans[:at], *here.spans[at + 1 :])
        made = Layout(grid, (*counts, *shape), (*spans, *own))
        sets.append(ComputeSet(kind, grid, reads, (Access(f"tmp{turn}", made),), attributes))
        temporaries.append(TensorType((depth, *shape), it.partials))
        if turns > 1:
            summed, home = reduce_turn(question, (depth, *shape), at, turn, turns)
            sets.append(summed)
    if split and turns == 1:
        done = reduction(question, 0, depth, made=home)
        sets.extend(done.sets)
        temporaries.extend(done.temporaries)
        home = done.home
    return Plan(tuple(sets), tuple(temporaries), (home,))


# The vertices


def _window(block: Block, read_: int, attributes: Attributes, piece: np.ndarray) -> np.ndarray:
    """The input of a block as its windows see it: padded where they hang over, cut where it reads more."""
    field = [bounds for name, bounds in block.axes.items() if name.startswith("f")]
    region = block.reads[read_][3:]
    if attributes["picks"]:
        region = region[::2]
        piece = piece.reshape(*piece.shape[:3], *piece.shape[3::2])
    kernel: Any = attributes["kernel"]
    starts, sizes = [], []
    spans = extents(kernel, attributes["dilation"])
    for (a, b), s, p, e, r in zip(field, attributes["strides"], attributes["padding"], spans, region, strict=True):
        starts.append(r.start - (a * s - p[0]))
        sizes.append(max(0, (b - a - 1) * s + e))
    return padded(piece, starts, sizes)


def _whole(pieces: Sequence[np.ndarray], attributes: Mapping[str, Any]) -> list[np.ndarray]:
    """Pieces without the dimension that says whose turn it is."""
    return [p if at < 0 else p.squeeze(at) for p, at in zip(pieces, attributes["turns"], strict=True)]


def _conv(block: Block, pieces: Sequence[np.ndarray], attributes: Mapping[str, Any]) -> Sequence[np.ndarray]:
    pieces = _whole(pieces, attributes)
    y = convolve(_window(block, 0, attributes, pieces[0]), pieces[1], attributes["strides"], attributes["dilation"])
    return [y.reshape(region_shape(block.writes[0]))]


def _input_grad(block: Block, pieces: Sequence[np.ndarray], attributes: Mapping[str, Any]) -> Sequence[np.ndarray]:
    field = [bounds for name, bounds in block.axes.items() if name.startswith("f")]
    region = block.reads[0][3:]
    starts = [
        r.start * s - p[0] - a
        for (a, _), s, p, r in zip(field, attributes["strides"], attributes["padding"], region, strict=True)
    ]
    sizes = [b - a for a, b in field]
    pieces = _whole(pieces, attributes)
    dx = spread_gradient(pieces[0], pieces[1], attributes["strides"], attributes["dilation"], starts, sizes)
    return [dx.reshape(region_shape(block.writes[0]))]


def _weight_grad(block: Block, pieces: Sequence[np.ndarray], attributes: Mapping[str, Any]) -> Sequence[np.ndarray]:
    pieces = _whole(pieces, attributes)
    dy, x = pieces[0], _window(block, 1, attributes, pieces[1])
    dw = weight_gradient(dy, x, attributes["kernel"], attributes["strides"], attributes["dilation"])
    return [dw.reshape(region_shape(block.writes[0]))]


def _cycles(name: str):
    def cycles(chip: Chip, work: Work) -> np.ndarray:
        a: Mapping[str, Any] = work.attributes
        dtype, partials, out = str(work.read_types[0].dtype), a["partials"], str(work.write_types[0].dtype)
        total = vertex_cycles(
            chip,
            name,
            a["method"],
            work.lengths,
            a["kernel"],
            a["strides"],
            dtype,
            partials,
            a["turned"],
            bool(a.get("wide")),
            int(a.get("out_group", 0)),
        )
        if out != partials:
            total = total + chip.estimate(
                "ReducePartials", outputs=np.maximum(work.writes[0], 1), depth=1, dtype=partials, out=out
            )
        return total

    return cycles


def _scratch(work: Work) -> np.ndarray:
    """Sums in a wider type than the result's, before they are rounded into it."""
    partials = DType(str(work.attributes["partials"]))
    return work.writes[0] * (partials.bytes if partials is not work.write_types[0].dtype else 0)


_NAMES = {"conv": "Conv", "conv_input_grad": "ConvInputGrad", "conv_weight_grad": "ConvWeightGrad"}
_COMPUTE = {"conv": _conv, "conv_input_grad": _input_grad, "conv_weight_grad": _weight_grad}
_CODE = {
    "Amp": ("Amp1x1", "AmpNx1", "Rearrange"),
    "Hmac": ("Hmac",),
    "Slic": ("Slic", "Rearrange"),
    "Vmac": ("Vmac",),
}


def _kind(name: str, method: str) -> str:
    return _NAMES[name] + method.removesuffix("_swapped").capitalize()


for _operation, _meaning in _COMPUTE.items():
    for _unit, _estimates in _CODE.items():
        if _operation == "conv_weight_grad":
            if _unit in ("Slic", "Vmac"):
                continue
            _estimates = _estimates[:1]
        register_vertex(VertexKind(_NAMES[_operation] + _unit, _meaning, _cycles(_operation), _estimates, _scratch))

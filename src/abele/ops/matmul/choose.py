"""Choosing how a matrix product is split over batch, rows, columns and the summed dimension.

Every split is charged with the exchange of what its operands do not have at home, the vertices by the cheapest method
(matrix unit, either operand as its weights; dot products on the vector unit; outer product), transposes within
the tile, and, where the sum is split, the exchange and sum of the partials. An operand that lies nowhere yet will be
shared out between the blocks that read it, so that each receives what the others hold (graphcore/poplibs, ConvModel).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from abele.ir.types import DType, TensorType
from abele.machine.chip import Chip
from abele.machine.exchange import exchange_cycles
from abele.ops.matmul.op import product_sizes
from abele.ops.plans.layouts import covers, fullest, own, split_dims, view
from abele.ops.plans.partials import adds_fast, partials_type, reduce_costs, set_cycles
from abele.ops.plans.planning import Question
from abele.ops.plans.products import METHODS, float8_methods, loads_wide, vertex_cycles
from abele.ops.plans.search import DOES_NOT_FIT, Dimension, Parts, score_of, search
from abele.ops.plans.sharing import aligned_first, shared_exchange
from abele.schedule.geometry import kept
from abele.schedule.layout import Axis, Grid, Layout, Span


@dataclass(frozen=True, slots=True)
class Product:
    """A product in its simplest form: batch groups (size, is it in a, is it in b), then M, N, K."""

    batch: tuple[tuple[int, bool, bool], ...]
    m: int
    n: int
    k: int
    transposed: tuple[bool, bool]
    dtype: DType
    partials: DType

    @classmethod
    def of(cls, question: Question) -> Product:
        """Batch dimensions with the same broadcast are one; a batch of the left operand alone is rows."""
        a, b = question.operands
        attributes = dict(question.attributes)
        batch, m, n, k = product_sizes(question.operands, attributes)
        transposed = (bool(attributes["transpose_a"]), bool(attributes["transpose_b"]))
        groups: list[tuple[int, bool, bool]] = []
        for i, size in enumerate(batch):
            ja, jb = i - len(batch) + a.rank - 2, i - len(batch) + b.rank - 2
            where = (ja >= 0 and a.shape[ja] == size, jb >= 0 and b.shape[jb] == size)
            if size == 1:
                continue
            if groups and groups[-1][1:] == where:
                groups[-1] = (groups[-1][0] * size, *where)
            else:
                groups.append((size, *where))
        if groups and groups[-1][1:] == (True, False) and not transposed[0]:
            m *= groups.pop()[0]
        return cls(tuple(groups), m, n, k, transposed, a.dtype, partials_type(a.dtype, attributes["partials"]))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"b{i}" for i in range(len(self.batch)))

    def dimensions(self, chip: Chip, swapped: bool) -> list[Dimension]:
        """The axes to split; parts of the summed and the weights' dimension fill the matrix unit."""
        units = max(1, chip.amp_units(self.dtype, self.partials))
        block = max(1, chip.amp_in_group(self.dtype))
        return [
            *(Dimension(name, size) for name, (size, _, _) in zip(self.names, self.batch, strict=True)),
            Dimension("m", self.m, units if swapped else 1),
            Dimension("n", self.n, 1 if swapped else units),
            Dimension("k", self.k, block),
        ]


def methods_of(chip: Chip, product: Product) -> tuple[str, ...]:
    """The methods that the chip has for this product."""
    amp = METHODS[:2] if chip.amp_units(product.dtype, product.partials) else ()
    if product.dtype.is_float8:
        return float8_methods(chip, "matmul", amp)
    return (*amp, *METHODS[2:4], *(METHODS[4:] if product.k <= 1 else ()))


def turned_operands(question: Question, product: Product) -> tuple[bool, bool]:
    """Operands that the tile transposes: those that lie somewhere with the summed dimension outside."""
    a, b = question.homes
    return (a is not None and product.transposed[0], b is not None and not product.transposed[1])


@dataclass(frozen=True, slots=True)
class Arranged:
    """An operand that is transposed once, before the product, where it lies or spread evenly."""

    layout: Layout
    resident: bool
    cycles: int

    @classmethod
    def of(cls, question: Question, product: Product, operand: int) -> Arranged:
        """Squares of the matrix unit's input group must be whole on a tile; its second last dimension is summed."""
        chip, type_, home = question.chip, question.operands[operand], question.homes[operand]
        group = max(1, chip.amp_in_group(product.dtype))
        grains = (*(1,) * (type_.rank - 2), group, SQUARE)
        layout = own(split_dims(type_.shape, chip.tiles, grains), type_.shape)
        seen = view(home, type_.shape) if home is not None and home.is_partition else None
        resident = (
            seen is not None
            and fullest(seen) <= 2 * fullest(layout)
            and all(_whole_groups(seen, type_.rank - 2 + i, grain) for i, grain in enumerate((group, SQUARE)))
        )
        layout = seen if seen is not None and resident else layout
        most = fullest(layout)
        moving = 0 if resident else int(exchange_cycles(chip, most * product.dtype.bytes))
        return cls(layout, resident, set_cycles(chip) + moving + int(arranging(chip, most, product.dtype)))


SQUARE = 4
"""Rows and columns of the squares in which a tile transposes (see the estimate of ``Transpose``)."""


def arranging(chip: Chip, elements, dtype: DType):
    """Tile cycles to transpose so many elements."""
    blocks = -(-elements // SQUARE**2)
    return chip.estimate("Transpose", rows=SQUARE, cols=SQUARE, blocks=blocks, dtype=str(dtype))


def _whole_groups(layout: Layout, dimension: int, group: int) -> bool:
    """True when every block has a dimension in whole groups."""
    span = layout.spans[dimension]
    if covers(layout, dimension):
        return True
    return span.axis is not None and span.exact and layout.grid.axes[span.axis].grain * span.stride % group == 0


def transposing(chip: Chip, product: Product, operand: int, groups, lengths):
    """Tile cycles to transpose what a block reads of an operand."""
    rows = lengths["mn"[operand]]
    return chip.estimate("Transpose", rows=rows, cols=lengths["k"], dtype=str(product.dtype), blocks=groups)


@dataclass(frozen=True, slots=True)
class _Terms:
    """All that the cost of a split depends on.

    Attributes:
        swapped: the left operand is taken as weights.
        turns: equal products that are done one after another.
        free: operands that lie nowhere yet.
        arranged: cycles in which an operand is transposed at once, ``None`` where it need not be.
        result: the type of one product's result, flat.
        wide, fast: see ``loads_wide`` and ``adds_fast``.
    """

    chip: Chip
    product: Product
    swapped: bool
    turns: int
    free: tuple[bool, bool]
    arranged: tuple[int | None, int | None]
    result: TensorType
    proportion: float
    wide: bool
    fast: bool

    @classmethod
    def of(cls, question: Question, product: Product, swapped: bool, turns: int) -> _Terms:
        first, second = question.homes
        turned = turned_operands(question, product)
        arranged = tuple(Arranged.of(question, product, i).cycles if turned[i] else None for i in (0, 1))
        result = question.results[0].with_shape((math.prod(question.results[0].shape) // turns,))
        free = (first is None and turns == 1, second is None and turns == 1)
        proportion = question.options.memory_proportion
        more = (arranged[0], arranged[1]), result, proportion, loads_wide(question), adds_fast(question)
        return cls(question.chip, product, swapped, turns, free, *more)

    @property
    def methods(self) -> list[str]:
        return [m for m in methods_of(self.chip, self.product) if m.endswith("_swapped") == self.swapped]

    @property
    def dimensions(self) -> list[Dimension]:
        return self.product.dimensions(self.chip, self.swapped)


@lru_cache(maxsize=4096)
def _split(terms: _Terms) -> tuple[tuple[Axis, ...], float]:
    """The axes of the best split, in the order in which neighbours share most, and its score."""
    cost, order = _costs(terms)
    parts, score = search(terms.dimensions, terms.chip.tiles, cost)
    axes = {d.name: d.axis(parts[d.name]) for d in terms.dimensions}
    return tuple(axes[name] for name in order(parts)), score


def _costs(terms: _Terms):
    """The objective: cycles of ``turns`` equal products, and how full the fullest tile gets."""
    chip, product, turns, free, result = terms.chip, terms.product, terms.turns, terms.free, terms.result
    methods, dimensions, dtype = terms.methods, terms.dimensions, product.dtype

    names = [d.name for d in dimensions]
    followed = [_followed(product, i) for i in (0, 1)]

    def receive(parts: Parts, known: tuple[int, ...] = (0, 0)):
        """Bytes of both operands, and what of them is exchanged. ``known``: bytes that lie there."""
        lengths = {d.name: d.length(parts[d.name]) for d in dimensions}
        m, n, k = lengths["m"], lengths["n"], lengths["k"]
        held, alike = [np.ones_like(m)] * 2, [parts["n"], parts["m"]]
        for name, (_, *inside) in zip(product.names, product.batch, strict=True):
            held = [h * (lengths[name] if here else 1) for h, here in zip(held, inside, strict=True)]
            alike = [a * (1 if here else parts[name]) for a, here in zip(alike, inside, strict=True)]
        sizes = (held[0] * m * k * dtype.bytes, held[1] * n * k * dtype.bytes)
        received = [
            np.maximum(0, size - here) if here else size - size // blocks if may_lie else size
            for size, may_lie, blocks, here in zip(sizes, free, alike, known, strict=True)
        ]
        return sizes, received

    def order(parts: Mapping[str, int]) -> list[str]:
        """The axes in the order in which neighbours share the operand that costs most."""
        column = {name: np.array([count]) for name, count in parts.items()}
        chosen = int(shared_exchange(chip, names, column, receive(column)[1], followed)[1][0])
        # the summed dimension comes behind one that the result follows: the blocks of a sum then share it out
        cut = followed[chosen] if chosen >= 0 else frozenset(names)
        outer, inner = ([name for name in (*names[:-3], "m", "n") if (name in cut) == whole] for whole in (True, False))
        return [*outer, "k", *inner]

    def cost(parts: Parts, known: tuple[int, ...] = (0, 0)) -> tuple[np.ndarray, np.ndarray]:
        lengths = {d.name: d.length(parts[d.name]) for d in dimensions}
        m, n, k = lengths["m"], lengths["n"], lengths["k"]
        groups = math.prod((lengths[name] for name in product.names), start=np.ones_like(m))
        sizes, each = receive(parts, known)
        received = each[0] + each[1]
        sums = (groups, m, n, k, str(dtype), str(product.partials))
        work = np.minimum.reduce([vertex_cycles(chip, method, *sums, wide=terms.wide) for method in methods])
        for i, at_once in enumerate(terms.arranged):
            if at_once is not None:
                each_turn = transposing(chip, product, i, groups, lengths)
                work = work + (each_turn if known[i] else np.minimum(each_turn, at_once // turns))
        made = groups * m * n
        split = parts["k"] > 1
        if product.partials is not result.dtype:
            types = {"dtype": str(product.partials), "out": str(result.dtype)}
            cast = chip.estimate("ReducePartials", outputs=made, depth=1, **types)
            work = work + np.where(split, 0, cast)
        summing, gathered = reduce_costs(chip, result, parts["k"], product.partials, terms.fast)
        left = np.where(split | (product.partials is not result.dtype), made * product.partials.bytes, 0)
        cycles = set_cycles(chip) + shared_exchange(chip, names, parts, each, followed)[0] + work + summing
        temporary = np.maximum(received + left, left + gathered)
        kept_result = np.where(split, result.size / chip.tiles, made) * result.dtype.bytes * turns
        for_good = sizes[0] + sizes[1] - received + kept_result
        allowed = terms.proportion * chip.tile_memory
        return cycles * turns, np.maximum(temporary / allowed, (temporary + for_good) / chip.tile_memory)

    return cost, order


def _followed(product: Product, operand: int) -> frozenset[str]:
    """The axes that cut an operand."""
    groups = (name for name, group in zip(product.names, product.batch, strict=True) if group[1 + operand])
    return frozenset((*groups, "mn"[operand], "k"))


@dataclass(frozen=True, slots=True)
class Choice:
    """A split: the grid, the method, and the axis that is taken in ``turns`` equal parts one after another."""

    score: float
    grid: Grid
    method: str
    axis: str = "n"
    turns: int = 1


def choose(question: Question, product: Product) -> Choice:
    """The least cycles that fit; what does not fit at once is done in turns, by columns or by rows."""
    best = _best_of(question, product, "n", 1)
    if best.score < DOES_NOT_FIT:
        return best
    for axis, size in (("n", product.n), ("m", product.m)):
        for turns in range(2, min(size, MOST_TURNS) + 1):
            if size % turns:
                continue
            part = replace(product, n=size // turns) if axis == "n" else replace(product, m=size // turns)
            found = _best_of(question, part, axis, turns)
            best = min(best, found, key=lambda choice: choice.score)
            if found.score < DOES_NOT_FIT:
                break
    return best


MOST_TURNS = 32
"""More turns than this are not looked for: a product that still does not fit is reported."""


def _best_of(question: Question, product: Product, axis: str, turns: int) -> Choice:
    found: list[Choice] = []
    for swapped in (False, True):
        terms = _Terms.of(question, product, swapped, turns)
        axes, score = _split(terms)
        grid = Grid(axes, question.chip.tiles, _first(question, axes))
        found.append(Choice(score, grid, _cheapest(terms, grid), axis, turns))
        cost = _costs(terms)[0]
        for other in _homes(question, product, terms) if turns == 1 else ():
            known = _kept(question, product, other)
            if any(known):
                score = float(score_of(*cost({a.name: np.array([a.parts]) for a in other.axes}, known))[0])
                found.append(Choice(score, other, _cheapest(terms, other), axis, turns))
    return min(found, key=lambda choice: choice.score)


def _first(question: Question, axes: Sequence[Axis]) -> int:
    """A product that fills the chip starts at tile 0, so that equal ones lie alike."""
    small = 2 * math.prod(axis.parts for axis in axes) <= question.chip.tiles
    return aligned_first(question.chip, question.first) if small else 0


def _homes(question: Question, product: Product, terms: _Terms) -> Iterator[Grid]:
    """Grids in which an operand may have been laid for such a product before: its own home's, where that has the
    product's axes, and the split that would be chosen if it lay nowhere."""
    sizes = {d.name: d.size for d in terms.dimensions}
    for i, home in enumerate(question.homes):
        if home is None:
            continue
        if {axis.name: axis.size for axis in home.grid.axes} == sizes:
            yield home.grid
        if terms.arranged[i] is None and {axis.name for axis in home.grid.axes} == sizes.keys():
            free = (i == 0 or terms.free[0], i == 1 or terms.free[1])
            axes = _split(replace(terms, free=free))[0]
            yield Grid(axes, question.chip.tiles, home.grid.first)


def _kept(question: Question, product: Product, grid: Grid) -> tuple[int, ...]:
    """Bytes of each operand that need not be exchanged on the tile that receives most of it. One that is transposed
    elsewhere first keeps nothing."""
    found = []
    for i, (home, turned) in enumerate(zip(question.homes, turned_operands(question, product), strict=True)):
        layout = operand_layout(product, grid, i)
        if home is None or (turned and home != layout):
            found.append(0)
            continue
        elements = layout.elements()
        found.append(int(elements.max() - (elements - kept(layout, [home])).max()) * product.dtype.bytes)
    return tuple(found)


def _cheapest(terms: _Terms, grid: Grid) -> str:
    """The method with the least cycles on the largest block."""
    product = terms.product
    largest = {axis.name: max(1, axis.classes()[0][0]) for axis in grid.axes}
    groups = math.prod(largest[name] for name in product.names)
    sizes = (groups, largest["m"], largest["n"], largest["k"], str(product.dtype), str(product.partials))
    return min(terms.methods, key=lambda method: int(vertex_cycles(terms.chip, method, *sizes, wide=terms.wide)))


def view_of(grid: Grid, names: Sequence[str], axis: str, turns: int, turn: int | None) -> Layout:
    """A tensor whose dimensions are these axes. With several turns the one axis comes apart in (turn, within):
    ``turn`` picks one, ``None`` is all of them. The grid's last axis, of size 1, says which."""
    shape, spans = [], []
    for name in names:
        if name == axis and turns > 1:
            shape.append(turns)
            spans.append(Span() if turn is None else Span(len(grid.axes) - 1, offset=turn))
        shape.append(grid.axes[grid.axis(name)].size)
        spans.append(Span(grid.axis(name)))
    return Layout(grid, tuple(shape), tuple(spans))


def operand_layout(
    product: Product, grid: Grid, operand: int, axis: str = "n", turns: int = 1, turn: int = 0
) -> Layout:
    """How operand 0 or 1 is read."""
    outer = "mn"[operand]
    names = [name for name, group in zip(product.names, product.batch, strict=True) if group[1 + operand]]
    inner = [outer, "k"] if operand == 0 else ["k", outer]
    names += inner[::-1] if product.transposed[operand] else inner
    return view_of(grid, names, axis, turns, turn)

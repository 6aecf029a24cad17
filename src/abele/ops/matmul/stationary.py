"""Large products whose sums stay where they are made, while the operands pass by.

The summed dimension is shared out between few tiles and, on each, done in turns: a tile receives a slice of both of its
operands, multiplies, and adds to what it has. So what a tile must hold of operands is a slice, its memory is for
sums, and the blocks are large: a block of m × n sums takes (m + n) · k elements of operands for m · n · k products.

- Every operand lies spread over the tiles that read it (``at_rest``), so that each has a part of it already. Slices
  are sent to all readers at once: nothing is passed on from neighbour to neighbour, and a tile holds no more than one.
- Neighbours read the same rows, at the rate of a shared bus.
- Sums of several tiles are added up where one of them lies, and the result is written over them.

The grid is (batch, k, x, y): x is the dimension of the matrix unit's field, y that of its weights. The result is cut
between the tiles of a sum in x, which comes apart in (k, within). Where the partial sums of all these tiles do not fit
at once, they are added up in ``rounds``, each over a part of x.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from abele.ir.types import DType
from abele.machine.chip import Chip
from abele.machine.exchange import exchange_cycles_two_rates
from abele.ops.matmul.choose import Arranged, Product, transposing, turned_operands
from abele.ops.plans.partials import TWO_STAGES, set_cycles
from abele.ops.plans.planning import Question
from abele.ops.plans.search import Dimension, few_part_counts, part_counts
from abele.schedule.layout import Axis, Grid, Layout, Span

LEAST_CYCLES = 4000
"""Products that the matrix units would do in less time are not worth turns: each costs a sync and an exchange."""

MOST_TURNS = 512
"""More turns than this are not looked for: slices get so thin that syncs outweigh what larger blocks gain."""

ROUNDS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
"""In so many rounds the sums of several tiles are received and added up, where they do not fit at once."""

MARGIN = 0.97
"""Of a tile's memory: the rest is for code and stacks."""


@dataclass(frozen=True, slots=True)
class Stationary:
    """A split whose sums stay.

    Attributes:
        product: what is split.
        swapped: the left operand is taken as weights: x is n and y is m; else x is m and y is n.
        batch: parts of the batch axes; ``k``, ``x``, ``y`` those of the others.
        turns: slices of the summed dimension.
        rounds: of summing.
        cycles: of all of it.
        units, group: of the matrix unit: parts of y and k are whole ones of them.
    """

    product: Product
    swapped: bool
    batch: tuple[int, ...]
    k: int
    x: int
    y: int
    turns: int
    rounds: int
    cycles: float
    units: int
    group: int

    @property
    def names(self) -> tuple[str, str]:
        """The axes that are x and y."""
        return ("n", "m") if self.swapped else ("m", "n")

    @property
    def room(self) -> int:
        """Places for what a tile adds up of x in a round: its part of the result comes apart in (round, room)."""
        return _parted(_parted(self._size(self.names[0]) // self.k, self.x), self.rounds)

    def _size(self, axis: str) -> int:
        return self.product.m if axis == "m" else self.product.n

    def grid(self, tiles: int, *, summing: bool = False, parts: bool = False) -> Grid:
        """Of the products; ``summing``: of their sum, where the k axis says which part of the result, and the steps of
        the x axis may be its ``parts``."""
        p, (x, y) = self.product, self.names
        batch = zip(p.names, p.batch, self.batch, strict=True)
        k = Axis("k", self.k, self.k) if summing else Axis("k", p.k // self.turns, self.k, self.group)
        xs = Axis(x, self.x if parts else self._size(x) // self.k, self.x)
        axes = (k, xs, Axis(y, self._size(y), self.y, self.units), Axis("turn", 1))
        return Grid((*(Axis(name, size, parts) for name, (size, _, _), parts in batch), *axes), tiles)

    def operand(self, grid: Grid, operand: int, turn: int | None) -> Layout:
        """How operand 0 or 1 is read in a turn; ``None``: in all of them."""
        p, outer = self.product, "mn"[operand]
        batch = [name for name, group in zip(p.names, p.batch, strict=True) if group[1 + operand]]
        inner = [outer, "k"] if (operand == 0) != p.transposed[operand] else ["k", outer]
        parts: list[tuple[int, Span]] = []
        for name in (*batch, *inner):
            at = grid.axis(name)
            if name == "k" and self.turns > 1:
                which = Span() if turn is None else Span(grid.axis("turn"), offset=turn)
                parts.append((self.turns, which))
            elif name == self.names[0] and self.k > 1:
                parts.append((self.k, Span()))
            parts.append((grid.axes[at].size, Span(at)))
        return Layout(grid, tuple(size for size, _ in parts), tuple(span for _, span in parts))

    def result(self, grid: Grid, *, split: bool) -> Layout:
        """The result in its blocks; ``split``: on a grid that cuts it between the tiles of a sum."""
        x = grid.axis(self.names[0])
        return self._laid(grid, [(self.k, self._share(grid, split)), (grid.axes[x].size, Span(x))])

    def sums(self, grid: Grid, *, split: bool, round: int | None = None) -> Layout:
        """All sums, which the first dimension numbers; ``split``: as they are added up, by ``round``."""
        k = grid.axis("k")
        first = (self.k, Span() if split else Span.part_of(k, grid.axes[k]))
        share = (self.k, self._share(grid, split))
        if self.rounds == 1:
            x = grid.axis(self.names[0])
            return self._laid(grid, [share, (grid.axes[x].size, Span(x))], [first])
        return self._laid(grid, [share, *self._places(grid, round)], [first])

    def parts(self, grid: Grid, round: int | None = None) -> Layout:
        """The result as it is added up in rounds: every tile's part of x with places to spare."""
        return self._laid(grid, [(self.k, self._share(grid, True)), *self._places(grid, round)])

    def _share(self, grid: Grid, split: bool) -> Span:
        return Span(grid.axis("k")) if split else Span()

    def _places(self, grid: Grid, round: int | None) -> list[tuple[int, Span]]:
        x = grid.axis(self.names[0])
        which = Span() if round is None else Span(grid.axis("turn"), offset=round)
        return [(self.x, Span.part_of(x, grid.axes[x])), (self.rounds, which), (self.room, Span())]

    def _laid(self, grid: Grid, xs: list[tuple[int, Span]], first: Sequence[tuple[int, Span]] = ()) -> Layout:
        """Dimensions of the result, of which x comes apart so; dimensions of one element are left out."""
        parts = [*first]
        for name in (*self.product.names, "m", "n"):
            at = grid.axis(name)
            whole = [(grid.axes[at].size, Span(at))]
            parts += ([part for part in xs if part != (1, Span())]) if name == self.names[0] else whole
        return Layout(grid, tuple(size for size, _ in parts), tuple(span for _, span in parts))

    def at_rest(self, grid: Grid, operand: int) -> Layout | None:
        """Where an operand lies that nobody has laid yet: what several tiles read is shared out between them.

        The tiles that read the same differ in one axis. Factors of its parts cut the axis before it in the grid finer,
        deal out the parts of x outside its axis, and deal out turns. The most even of these is taken; turns are dealt
        out so that several tiles send a slice, since neighbours receive it at twice the rate of a sender.
        """
        seen, alike = self.operand(grid, operand, None), grid.axis("mn"[1 - operand])
        of_x, count = self.names[0] == "mn"[operand], grid.axes[alike].parts
        before = {grid.axes[s.axis].name: d - 1 for d, s in enumerate(seen.spans) if s.axis is not None}
        dealt: dict[int | None, int] = {None: 1}
        if of_x and self.k > 1:
            dealt[before[self.names[0]]] = self.k
        if self.turns > 1:
            dealt[before["k"]] = self.turns
        found: list[tuple[bool, int, Layout]] = []
        for finer, *shares in _factors(count):
            host = _finer(grid.axes[alike - 1], finer)
            for dimensions in itertools.permutations([*dealt, None], 2):
                given = list(zip(dimensions, shares, strict=True))
                if host is None or any(share > dealt[d] for d, share in given):
                    continue
                layout = _shared(seen, alike, host, [(d, Axis(f"a{i}", dealt[d], n)) for i, (d, n) in enumerate(given)])
                if layout.is_partition:
                    at_once = count // (dict(given).get(before["k"], 1) if self.turns > 1 else 1)
                    few = of_x and at_once < min(count, LEAST_SENDERS)
                    found.append((few, layout.most_elements(), layout))
        return min(found, key=lambda f: f[:2], default=(False, 0, None))[2]


def _factors(count: int) -> Iterator[tuple[int, int, int]]:
    """Three numbers whose product it is, in all orders."""
    for first in (f for f in range(1, count + 1) if count % f == 0):
        for second in (f for f in range(1, count // first + 1) if count // first % f == 0):
            yield first, second, count // first // second


def _shared(seen: Layout, alike: int, host: Axis, dealt: Sequence[tuple[int | None, Axis]]) -> Layout:
    """The layout with the axis before ``alike`` in the parts of ``host``, in place of ``alike`` axes that dimensions
    of it follow (``None``: no dimension does)."""
    axes = list(seen.grid.axes)
    axes[alike - 1] = host
    axes[alike : alike + 1] = [axis for _, axis in dealt]
    more = len(dealt) - 1
    spans = [s if s.axis is None or s.axis < alike else replace(s, axis=s.axis + more) for s in seen.spans]
    for i, (dimension, axis) in enumerate(dealt):
        if dimension is not None and axis.parts > 1:
            spans[dimension] = Span(alike + i)
    return Layout(Grid(tuple(axes), seen.grid.tiles), seen.shape, tuple(spans))


LEAST_SENDERS = 4
"""So many tiles at least send a slice that neighbours receive together."""


def _finer(axis: Axis, times: int) -> Axis | None:
    """The axis with every part in ``times`` parts, as even as can be in grains that keep the old ones."""
    if times == 1:
        return axis
    aligned = axis.size % (axis.parts * axis.grain) == 0
    parts = axis.parts * times
    grains = [g for g in range(1, axis.grain + 1) if g == axis.grain or (aligned and axis.grain % g == 0)]
    found = [Axis(axis.name, axis.size, parts, g) for g in grains if parts <= -(-axis.size // g)]
    return min(found, key=lambda a: (a.classes()[0][0], -a.grain), default=None)


def stationary(question: Question, product: Product) -> Stationary | None:
    """The best split whose sums stay and that fits; ``None`` where there is none, or one turn is the best.

    In one turn such a plan differs from that of blocks in layouts, which then suit what comes before and after less.
    """
    chip = question.chip
    units = chip.amp_units(product.dtype, product.partials)
    own = {"Amp1x1", "ReducePartials"} & set(chip.vertex_costs)
    if not units or own or product.dtype.is_float8:
        return None
    groups = math.prod(size for size, _, _ in product.batch)
    products = groups * product.m * product.n * product.k
    if products < LEAST_CYCLES * chip.tiles * chip.macs_per_cycle(str(product.dtype), str(product.partials)):
        return None
    turned = turned_operands(question, product)
    arranged = tuple(Arranged.of(question, product, i).cycles if turned[i] else -1 for i in (0, 1))
    free = (question.homes[0] is None, question.homes[1] is None)
    proportion = question.options.memory_proportion
    result = question.results[0].dtype
    found = [_best(chip, product, swapped, free, arranged, result, proportion) for swapped in (False, True)]
    return min((f for f in found if f is not None), key=lambda f: f.cycles, default=None)


@lru_cache(maxsize=1024)
def _best(
    chip: Chip,
    product: Product,
    swapped: bool,
    free: tuple[bool, bool],
    arranged: tuple[int, ...],
    result: DType,
    proportion: float,
) -> Stationary | None:
    """The least cycles among all splits that use most tiles.

    ``free``: operands that lie nowhere yet; ``arranged``: cycles in which one is transposed at once, -1 where it need
    not be.
    """
    search = _Search(chip, product, swapped, free, arranged, result, proportion)
    columns = search.columns()
    if columns is None:
        return None
    cycles, turns, rounds = search.cost(columns)
    at = int(np.argmin(cycles))
    if not np.isfinite(cycles[at]) or turns[at] == 1:
        return None
    k, x, y, *batch = (int(column[at]) for column in columns)
    found = k, x, y, int(turns[at]), int(rounds[at]), float(cycles[at]), search.units, search.group
    return Stationary(product, swapped, tuple(batch), *found)


LEAST_USE = 0.85
"""Splits that leave more tiles idle are not looked at."""


@dataclass(frozen=True)
class _Search:
    chip: Chip
    product: Product
    swapped: bool
    free: tuple[bool, bool]
    arranged: tuple[int, ...]
    result: DType
    proportion: float

    @property
    def units(self) -> int:
        return self.chip.amp_units(self.product.dtype, self.product.partials)

    @property
    def group(self) -> int:
        return self.chip.amp_in_group(self.product.dtype)

    @property
    def sizes(self) -> tuple[int, int]:
        """Of x and y."""
        p = self.product
        return (p.n, p.m) if self.swapped else (p.m, p.n)

    def _splits(self) -> Iterator[tuple[int, np.ndarray, np.ndarray, tuple[int, ...]]]:
        """k, columns of x and y parts, parts of the batch axes."""
        tiles, (x, y) = self.chip.tiles, self.sizes
        for batch in self._batches():
            for k in range(1, min(TWO_STAGES, -(-self.product.k // self.group) + 1)):
                left = tiles // (k * math.prod(batch))
                if x % k or not left:
                    continue
                ys = np.array(part_counts(Dimension("y", y, self.units).units, left), np.int64)
                xs = np.array(part_counts(x // k, left), np.int64)
                used = xs[:, None] * ys
                row, column = np.nonzero((used <= left) & (used >= LEAST_USE * left))
                if len(row):
                    yield k, xs[row], ys[column], batch

    def _batches(self) -> Iterator[tuple[int, ...]]:
        """Parts of the batch axes: of each a few."""
        options = [few_part_counts(size, 5).tolist() for size, _, _ in self.product.batch]
        grid = np.meshgrid(*options, indexing="ij") if options else []
        yield from zip(*(g.ravel().tolist() for g in grid), strict=True) if options else [()]

    def columns(self) -> list[np.ndarray] | None:
        """All splits: parts of k, of x, of y and of the batch axes."""
        found = list(self._splits())
        if not found:
            return None
        lengths = [len(x) for _, x, _, _ in found]
        heads = np.repeat(np.array([(k, *batch) for k, _, _, batch in found]), lengths, axis=0)
        x, y = np.concatenate([f[1] for f in found]), np.concatenate([f[2] for f in found])
        return [heads[:, 0], x, y, *heads[:, 1:].T]

    def cost(self, columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Cycles of every split, infinite where it does not fit; the fewest turns and rounds in which it does."""
        chip, product = self.chip, self.product
        ks, xs, ys, *batch = columns
        (x_size, y_size), size = self.sizes, product.dtype.bytes
        x = ks * _parted(x_size // ks, xs)
        y = np.minimum(y_size, self.units * _parted(_parted(y_size, self.units), ys))
        groups, inside = np.ones_like(x), [np.ones_like(x), np.ones_like(x)]
        for (count, *where), parts in zip(product.batch, batch, strict=True):
            each = _parted(count, parts)
            groups = groups * each
            inside = [i * (each if here else 1) for i, here in zip(inside, where, strict=True)]
        if self.swapped:
            inside = inside[::-1]
        sums, made = groups * x * y * product.partials.bytes, groups * x * y * self.result.bytes // ks
        apart = (ks > 1) | (product.partials is not self.result)
        slices = (inside[0] * x + inside[1] * y) * size
        turns, rounds = self._turns(ks, slices, sums, made, apart)
        k = self._slice(turns, ks)
        rows, weights = inside[0] * x * k * size, inside[1] * y * k * size
        free = self.free[::-1] if self.swapped else self.free
        # pairs receive the same rows, all of them; a tile has its share of the weights that it reads
        mine = weights - (weights // xs if free[1] else 0)
        paired = (ys > 1) & (ys % chip.tiles_per_exchange_bus == 0)
        alone = np.where(paired, mine, mine + rows - (rows // ys if free[0] else 0))
        sent = np.where(free[0], rows // ys, rows) + weights
        moving = exchange_cycles_two_rates(chip, alone, np.where(paired, rows, 0), sent)
        each = {"field": x, "in_chans": k, "out_chans": y, "groups": groups}
        types = str(product.dtype), str(product.partials)
        first, more = (multiply(chip, *types, adds=adds, **each) for adds in (False, True))
        work = first + (turns - 1) * more
        lengths = {"m": y if self.swapped else x, "n": x if self.swapped else y, "k": k}
        for i, at_once in enumerate(self.arranged):
            if at_once >= 0:
                work = work + np.minimum(turns * transposing(chip, product, i, groups, lengths), at_once)
        got = sums * (ks - 1) // (ks * rounds)
        outputs = made // (self.result.bytes * rounds)
        adding = add_up(chip, outputs, ks, product.partials, self.result)
        summing = set_cycles(chip) + exchange_cycles_two_rates(chip, got, np.zeros_like(got), got) + adding
        placing = np.where(rounds > 1, chip.compute_set_cycles + place(chip, groups, made), 0)
        cycles = work + turns * (moving + set_cycles(chip)) + np.where(apart, rounds * summing + placing, 0)
        return np.where(turns > 0, cycles.astype(np.float64), np.inf), turns, rounds

    def _slice(self, turns: np.ndarray, ks: np.ndarray) -> np.ndarray:
        """Elements of the summed dimension on a tile in a turn."""
        return self.group * _parted(_parted(self.product.k, np.maximum(turns, 1) * self.group), ks)

    def _turns(
        self, ks: np.ndarray, slices: np.ndarray, sums: np.ndarray, made: np.ndarray, apart: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The fewest turns, and rounds of summing, in which all fits: 0 turns where it never does.

        Args:
            slices: bytes of both operands for each element of the summed dimension; ``sums``, ``made``: of the partial
                sums of a tile, and of the result there.
            apart: partial sums are no result yet.
        """
        chip, product = self.chip, self.product
        groups = [math.prod(size for size, *where in product.batch if where[i]) for i in (0, 1)]
        totals = [groups[i] * side * product.k * product.dtype.bytes for i, side in ((0, product.m), (1, product.n))]
        kept = sum(totals) / chip.tiles
        copies = sum(total / chip.tiles for total, turned in zip(totals, self.arranged, strict=True) if turned >= 0)
        held = np.where(apart, np.maximum(0, sums - made), 0) + copies
        most = np.minimum(self.proportion * chip.tile_memory, MARGIN * chip.tile_memory - made - kept) - held
        others = np.where(apart, sums * (ks - 1) // ks, 0)
        rounds = np.zeros_like(ks)
        for count in ROUNDS:
            rounds = np.where((rounds == 0) & (others / count <= most), count, rounds)
        found = np.zeros_like(ks)
        for turns in range(1, min(MOST_TURNS, max(1, product.k // self.group)) + 1):
            if product.k % turns or (found > 0).all():
                continue
            fits = (rounds > 0) & (slices * self._slice(np.full_like(ks, turns), ks) <= most)
            enough = _parted(product.k, turns * self.group) >= ks
            found = np.where((found == 0) & fits & enough, turns, found)
        return found, np.maximum(rounds, 1)


def _parted(size, parts):
    """The longest of so many even parts."""
    return -(-size // parts)


def multiply(chip: Chip, dtype: str, partials: str, *, adds: bool, **sizes) -> np.ndarray:
    """Tile cycles of one turn: weights loaded from interleaved memory, all output channels in one group."""
    return chip.estimate("Amp1x1", **sizes, dtype=dtype, partials=partials, one_group=True, adds=adds, wide=True)


def add_up(chip: Chip, outputs, depth, partials: DType, out: DType) -> np.ndarray:
    """Tile cycles of one round of summing: partials lie in interleaved memory."""
    types = {"dtype": str(partials), "out": str(out)}
    return chip.estimate("ReducePartials", outputs=np.maximum(outputs, 1), depth=depth, interleaved=True, **types)


def place(chip: Chip, groups, size) -> np.ndarray:
    """Tile cycles to leave out the places to spare of so many groups, ``size`` bytes: they are behind the rows of each,
    so that a single group stays as it lies."""
    return np.where(groups > 1, chip.estimate("Copy", bytes=size), 0)

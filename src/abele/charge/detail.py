"""What a profile adds up, spelled out for those who look closer: tiles, and who sends to whom.

``PlanCharger`` keeps of a compute set its largest and its sums; here the same numbers become columns over tiles, and
bytes between groups of tiles. Equal plans are spelled out once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from abele.charge.columns import elements_at, holder, holds
from abele.charge.plans import Fetch, PlanCharger
from abele.charge.records import SetCost
from abele.charge.runs import Runs
from abele.schedule.layout import Grid, Layout
from abele.schedule.records import ComputeSet, Step

GROUPS = 32
"""An IPU has so many groups of neighbouring tiles, or one for each tile."""

SAMPLES, FEWEST = 12_288, 8
"""Elements of all blocks' regions together that are looked up for where they come from; of each block at least."""


def groups_of(tiles: int) -> int:
    """Groups of an IPU with so many tiles."""
    return min(GROUPS, tiles)


@dataclass(frozen=True, eq=False)
class Traffic:
    """Bytes between groups of tiles in one run of a step.

    Attributes:
        ipu: of the tiles that receive.
        near: by source IPU the bytes that tiles receive, ``int64[source groups, target groups]``; their sum over all
            sources is what the step is charged as received.
        links: by source IPU the bytes that cross the links, likewise, each element once; their sum is what it is
            charged as linked.
    """

    ipu: int
    near: dict[int, np.ndarray] = field(default_factory=dict)
    links: dict[int, np.ndarray] = field(default_factory=dict)


def work_column(grid: Grid, cost: SetCost) -> Runs:
    """Cycles of the vertices of a compute set on each tile, whole ones: what is charged is the largest."""
    cycles = np.ceil(cost.each).astype(np.int64)
    return Runs.of(grid.on_tiles(cycles[grid.classes_of_blocks()] if len(cycles) > 1 else cycles))


class ColumnTable:
    """Columns over tiles, each distinct one once."""

    def __init__(self) -> None:
        self.columns: list[Runs] = []
        self._by_id: dict[int, tuple[Runs, int]] = {}
        self._by_value: dict[tuple[bytes, bytes], int] = {}
        self._by_work: dict[tuple[Grid, bytes], int] = {}

    def add(self, column: Runs) -> int:
        """The number of a column."""
        known = self._by_id.get(id(column))
        if known is None:
            stops, values = column.runs()
            number = self._by_value.setdefault((stops.tobytes(), values.tobytes()), len(self.columns))
            if number == len(self.columns):
                self.columns.append(column)
            known = self._by_id[id(column)] = column, number
        return known[1]

    def work(self, cs: ComputeSet, cost: SetCost) -> int:
        """The number of the column ``work_column``."""
        key = cs.grid, cost.each.tobytes()
        if key not in self._by_work:
            self._by_work[key] = self.add(work_column(cs.grid, cost))
        return self._by_work[key]

    def table(self) -> dict[str, np.ndarray]:
        """Every run: ``column``, ``stop`` and ``value``."""
        runs = [column.runs() for column in self.columns]
        counts = [len(stops) for stops, _ in runs]
        none = np.empty(0, np.int64)
        return {
            "column": np.repeat(np.arange(len(counts)), counts),
            "stop": np.concatenate([none, *(stops for stops, _ in runs)]),
            "value": np.concatenate([none, *(values for _, values in runs)]),
        }


class Flows:
    """Traffic of the steps of one schedule."""

    def __init__(self, charger: PlanCharger) -> None:
        self.charger = charger
        self.tiles = charger.schedule.tiles
        self.groups = groups_of(self.tiles)
        self._group = np.arange(self.tiles) * self.groups // self.tiles
        self._first = np.searchsorted(self._group, np.arange(self.groups))
        self._shares: dict[tuple, np.ndarray] = {}
        self._near: dict[int, np.ndarray] = {}  # of plans that read of their own IPU alone

    def of(self, step: Step) -> Traffic:
        """Who sends to whom in one run of a step with a plan."""
        ipu = step.origin.ipu
        found = Traffic(ipu)
        tensors = [self.charger.schedule.tensors[use.tensor] for use in step.operands]
        here = all(tensor.ipu == ipu for tensor in tensors)
        plan = id(self.charger.plan(step))
        if here and plan in self._near:  # the same on another IPU
            return Traffic(ipu, {ipu: self._near[plan]})
        for _, reads in self.charger.fetched(step, tensors):
            for read in reads:
                if read.elements.max:
                    self._add(found, read)
        if here and found.near:
            self._near[plan] = found.near[ipu]
        return found

    def transfer(self, step: Step) -> Traffic:
        """Who sends to whom when a step moves its operand to another IPU."""
        a, b = (self.charger.schedule.tensors[use.tensor] for use in (step.operands[0], step.results[0]))
        found, bytes = Traffic(b.ipu), step.results[0].type.bytes
        share = self._share(b.home, (a.home,), self.charger.columns.elements(b.home), away=True)
        found.links[a.ipu] = _whole(share * (bytes / max(share.sum(), 1e-9)), np.array([bytes]))
        return found

    def _add(self, found: Traffic, read: Fetch) -> None:
        size, far = read.type.dtype.bytes, read.source is not None
        share = self._share(read.layout, read.lies, read.elements, far)
        to = np.add.reduceat(read.elements.dense(), self._first) * size
        source = found.ipu if read.source is None else read.source
        for into, bytes in ((found.near, to), (found.links, np.array([read.crossing]))):
            if bytes.any():
                whole = share * (bytes.sum() / max(share.sum(), 1e-9))
                into[source] = into.get(source, 0) + _whole(whole, bytes)

    def _share(self, layout: Layout, lies: Sequence[Layout], elements: Runs, away: bool) -> np.ndarray:
        """Elements between groups, ``float64[source groups, target groups]``; the columns add up to ``elements``.

        ``away``: the tensor lies on another IPU, so that nothing of it lies on the tile that reads it. Where a block's
        elements come from is told by a few of them that lie elsewhere; where none of these does, a neighbour is meant.
        """
        number = self.charger.columns.number
        key = number(layout), tuple(map(number, lies)), away
        if key not in self._shares:
            self._shares[key] = self._sampled(layout, lies, elements, away)
        return self._shares[key]

    def _sampled(self, layout: Layout, lies: Sequence[Layout], elements: Runs, away: bool) -> np.ndarray:
        tile = layout.grid.tile(np.arange(layout.grid.blocks))
        count = max(FEWEST, SAMPLES // layout.grid.blocks)
        flat = elements_at(layout, _points(count, len(layout.shape)))
        source = holder(lies[-1], flat)
        for home in lies[:-1]:
            source = np.where(holds(home, flat), holder(home, flat), source)
        other = np.ones(source.shape, bool) if away else source != tile
        known = other.sum(axis=0)
        weight = elements.dense()[tile] / np.maximum(known, 1)
        weights = np.where(other, weight, 0.0)
        source[0] = np.where(known, source[0], (tile + 1) % self.tiles)
        weights[0] = np.where(known, weights[0], weight)
        pairs = self._group[source] * self.groups + self._group[tile]
        shape = self.groups, self.groups
        return np.bincount(pairs.ravel(), weights.ravel(), self.groups**2).reshape(shape)


def _points(count: int, dimensions: int) -> np.ndarray:
    """Points spread evenly over a unit cube, ``[count, dimensions, 1]``: multiples of powers of the root of
    xᵈ⁺¹ = x + 1, modulo 1 (the golden ratio's, for one dimension)."""
    root = 2.0
    for _ in range(32):
        root = (1 + root) ** (1 / (dimensions + 1))
    steps = root ** -np.arange(1, dimensions + 1)
    return ((0.5 + np.arange(1, count + 1)[:, None] * steps) % 1)[:, :, None]


def _whole(share: np.ndarray, to: np.ndarray) -> np.ndarray:
    """Whole bytes in the place of shares, ``int64[sources, targets]``, so that what each target gets (or all of them,
    where ``to`` has one number) stays exact."""
    columns = share.T if len(to) > 1 else share.reshape(1, -1)
    upto = np.minimum(np.rint(np.cumsum(columns, axis=1)).astype(np.int64), to[:, None])
    upto[:, -1] = to
    whole = np.diff(upto, prepend=0, axis=1)
    return whole.T if len(to) > 1 else whole.reshape(share.shape)


def traffic_table(flows: Mapping[int, Traffic]) -> dict[str, np.ndarray]:
    """The traffic of operations, by their numbers, a row for every two groups between which anything moves."""
    parts = [np.empty((7, 0), np.int64)]
    for operation, source_ipu, target_ipu, links, bytes in _matrices(flows):
        source, target = np.nonzero(bytes)
        row = np.empty((7, len(source)), np.int64)
        row[[0, 1, 3, 6]] = np.array([operation, source_ipu, target_ipu, links])[:, None]
        row[2], row[4], row[5] = source, target, bytes[source, target]
        parts.append(row)
    names = ("operation", "source_ipu", "source_group", "target_ipu", "target_group", "bytes", "links")
    return dict(zip(names, np.concatenate(parts, axis=1), strict=True))


def _matrices(flows: Mapping[int, Traffic]) -> Iterator[tuple[int, int, int, int, np.ndarray]]:
    for operation, flow in flows.items():
        for links, by_source in enumerate((flow.near, flow.links)):
            for source, bytes in by_source.items():
                yield operation, source, flow.ipu, links, bytes

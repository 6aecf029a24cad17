"""Cycles of the plan of a step: its compute sets one after another.

A compute set is a sync and an exchange (when anything is received), then its vertices: as slow as the busiest tile in
each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from abele.charge.columns import Columns, messages, most_held, most_sent, region_sizes, shared_by_pairs
from abele.charge.records import Cycles, Moved, PlanCost, SetCost
from abele.charge.runs import Runs, merged, together
from abele.ir.types import TensorType
from abele.machine.exchange import exchange_code_bytes, exchange_cycles_two_rates, link_seconds, sync_cycles
from abele.machine.system import System
from abele.schedule.geometry import Windows, window
from abele.schedule.layout import Layout
from abele.schedule.records import ComputeSet, Plan, Schedule, Step, Tensor
from abele.schedule.vertex import Work, vertex_kind


@dataclass(frozen=True, slots=True)
class Fetch:
    """A read that is exchanged before a compute set.

    Attributes:
        name: of the tensor, as the plan has it.
        layout: through which it is read; ``lies`` where it lies, in several layouts perhaps.
        type: of the tensor.
        source: the IPU where it lies, ``None`` for the reader's own.
        elements: that each tile receives.
    """

    name: str
    layout: Layout
    lies: tuple[Layout, ...]
    type: TensorType
    source: int | None
    elements: Runs

    @property
    def crossing(self) -> int:
        """Bytes over the links: each element comes once, whatever number of tiles reads it."""
        return 0 if self.source is None else min(self.type.size, self.elements.total) * self.type.dtype.bytes


class _Homes:
    """The layouts in which a tensor lies: one, or those of the sets that wrote a part of it so far."""

    def __init__(self, first: Layout) -> None:
        self._all = [first]
        self._windows = Windows(len(first.shape))
        self._windows.add(window(first))

    def add(self, layout: Layout) -> None:
        """One more of the same view, as all writes of a plan are."""
        self._all.append(layout)
        self._windows.add(window(layout))

    def of(self, read: Layout) -> tuple[Layout, ...]:
        """Those that may hold some of what is read; all where none does, or where their view says nothing of it."""
        if len(self._all) > 1 and read.shape == self._all[0].shape:
            near = self._windows.overlapping(window(read))
            if near.size:
                return tuple(self._all[i] for i in near)
        return tuple(self._all)


class PlanCharger:
    """Charges the plans of one schedule. Equal plans on equal types are charged once."""

    def __init__(self, schedule: Schedule, system: System, columns: Columns) -> None:
        self.schedule, self.system, self.columns = schedule, system, columns
        self.chip = system.chip
        self.plans: dict[tuple, PlanCost] = {}
        self.by_step: dict[int, PlanCost] = {}
        self._numbers: dict[Plan, int] = {}
        self._number_of: dict[int, int] = {}

    def share(self, other: PlanCharger) -> None:
        """Charge no plan that another charger, for the same system and with the same columns, has charged or will."""
        self.plans, self._numbers = other.plans, other._numbers

    @cached_property
    def still(self) -> Moved:
        """The exchange of a compute set for which nothing moves: one record for all of them."""
        none, nothing = Runs.same(0, self.schedule.tiles), np.int64(0)
        cycles = exchange_cycles_two_rates(self.chip, nothing, nothing)
        return Moved(none, 0, 0, float(np.max(cycles)), 0.0, none)

    def plan(self, step: Step) -> PlanCost:
        """Cost of a step's plan."""
        known = self.by_step.get(id(step))
        if known is None:
            known = self.by_step[id(step)] = self._shared(step)
        return known

    def _number(self, plan: Plan) -> int:
        """A number that equal plans share, whether or not they are one object."""
        known = self._number_of.get(id(plan))
        if known is None:
            known = self._number_of[id(plan)] = self._numbers.setdefault(plan, len(self._numbers))
        return known

    def _shared(self, step: Step) -> PlanCost:
        tensors = [self.schedule.tensors[use.tensor] for use in step.operands]
        homes = tuple(self.columns.number(t.home) for t in tensors)
        far = tuple(t.ipu if t.ipu != step.origin.ipu else -1 for t in tensors)
        types = tuple(use.type for use in (*step.operands, *step.results))
        key = (self._number(step.plan), homes, types, far, step.origin.ipu if any(f >= 0 for f in far) else -1)
        known = self.plans.get(key)
        if known is None:
            known = self.plans[key] = self.alone(step, tensors)
        return known

    def alone(self, step: Step, tensors: Sequence[Tensor]) -> PlanCost:
        """Cost of a step's plan whose operands are these tensors, whether or not the schedule has them."""
        types = _types(step)
        sets = [self._set(cs, types, reads, step.origin.ipu) for cs, reads in self.fetched(step, tensors)]
        cycles = Cycles(
            sum(s.compute for s in sets),
            sum(s.moved.exchange for s in sets),
            sum(s.moved.links for s in sets),
            sum(s.sync for s in sets),
        )
        return PlanCost(
            tuple(sets),
            cycles,
            sum(s.vertices for s in sets),
            sum(s.moved.received.total for s in sets),
            sum(s.moved.linked for s in sets),
            sum(s.touched for s in sets),
            sum(s.busy for s in sets),
        )

    def fetched(self, step: Step, tensors: Sequence[Tensor]) -> Iterator[tuple[ComputeSet, list[Fetch]]]:
        """The compute sets of a step's plan in order, each with the reads that are exchanged before it."""
        types = _types(step)
        homes = {f"in{i}": _Homes(t.home) for i, t in enumerate(tensors)}
        far = {f"in{i}": t.ipu for i, t in enumerate(tensors) if t.ipu != step.origin.ipu}
        for cs in step.plan.sets:
            reads = []
            for access in cs.reads:
                source = far.get(access.name)
                if access.resident and source is None:
                    continue
                lies = homes[access.name].of(access.layout)
                elements = (
                    self.columns.missing(access.layout, lies)
                    if source is None
                    else self.columns.elements(access.layout)
                )
                reads.append(Fetch(access.name, access.layout, lies, types[access.name], source, elements))
            yield cs, reads
            for access in cs.writes:
                if access.renews:
                    continue
                if access.name in homes:
                    homes[access.name].add(access.layout)
                else:
                    homes[access.name] = _Homes(access.layout)

    def _set(self, cs: ComputeSet, types: dict[str, TensorType], reads: Sequence[Fetch], ipu: int) -> SetCost:
        counts, lengths = cs.grid.classes()
        work = Work(
            {axis.name: length for axis, length in zip(cs.grid.axes, lengths, strict=True)},
            tuple(region_sizes(access.layout, lengths) for access in cs.reads),
            tuple(region_sizes(access.layout, lengths) for access in cs.writes),
            tuple(types[access.name] for access in cs.reads),
            tuple(types[access.name] for access in cs.writes),
            cs.attributes,
        )
        kind = vertex_kind(cs.vertex)
        vertex = np.broadcast_to(np.asarray(kind.cycles(self.chip, work), np.float64), counts.shape)
        scratch = kind.temporary_bytes(work) if kind.temporary_bytes else 0
        moved = self._exchange(reads, ipu)
        touched = sum(
            int((sizes * counts).sum()) * types[access.name].dtype.bytes
            for access, sizes in zip((*cs.reads, *cs.writes), (*work.reads, *work.writes), strict=True)
        )
        syncs = sync_cycles(self.system, 2 if moved.linked else 1) if moved.exchange or moved.links else 0
        return SetCost(
            cs.vertex,
            int(counts.sum()),
            vertex,
            float(vertex.max()),
            float(syncs + self.chip.compute_set_cycles),
            moved,
            float((vertex * counts).sum()),
            touched,
            int(np.max(scratch)),
        )

    def _exchange(self, fetched: Sequence[Fetch], ipu: int) -> Moved:
        coming = [read for read in fetched if read.elements.max]
        if not coming:
            return self.still
        grids = {home.grid: None for read in coming for home in read.lies}
        stops, rows = together([self.columns.covered(grid) for grid in grids] + [read.elements for read in coming])
        covered = {grid: next(rows) for grid in grids}
        # one number for each run of tiles that are alike in all of it
        single, paired, runs = np.zeros((3, len(stops)), np.int64)
        code = np.zeros_like(single)  # an array of its own: it is kept, the others are not
        sent, linked, links = 0, 0, 0.0
        for read, elements in zip(coming, rows, strict=True):
            size, layout, whole = read.type.dtype.bytes, read.layout, read.elements
            column = paired if shared_by_pairs(layout, self.chip.tiles_per_exchange_bus) else single
            column += elements * size
            gone = [(most_sent if read.source is None else most_held)(home, layout) for home in read.lies]
            each = -(-whole.max // max(messages(home, layout) for home in read.lies))
            got = -(-elements // each) if each < whole.max else (elements > 0).astype(np.int64)
            runs += got
            code += exchange_code_bytes(self.chip, got)
            for home, most in zip(read.lies, gone, strict=True):
                code += covered[home.grid] * exchange_code_bytes(self.chip, 0, -(-most // each), most * size)
            if read.source is None:
                sent += sum(gone) * size
            else:
                crossing = read.crossing
                linked += crossing
                links += self.chip.cycles(link_seconds(self.system, crossing, read.source, ipu))
        # Without both rates all tiles get theirs in the same way, and the one with most decides.
        rates = (single, paired) if single.any() and paired.any() else (single.max(), paired.max())
        distance = self._distance(fetched)
        cycles = exchange_cycles_two_rates(self.chip, *rates, sent, messages=int(runs.max()), distance=distance)
        exchange = float(np.max(cycles))
        # What comes over links goes on into the tiles at once: only the longer of the two is waited for.
        received = merged(stops, single + paired)
        return Moved(received, sent, linked, exchange, max(0.0, links - exchange), merged(stops, code))

    def _distance(self, fetched: Sequence[Fetch]) -> float:
        """Mean distance of the tiles that exchange, by bytes; 0 on a chip whose exchange does not ask for it."""
        if self.chip.exchange_cost is None:
            return 0.0
        total, moved = 0.0, 0
        for read in fetched:
            if read.source is None:
                size = self.columns.elements(read.layout).total * read.type.dtype.bytes
                total += size * self.columns.distance(read.lies[0], read.layout)
                moved += size
        return total / moved if moved else 0.0


def _types(step: Step) -> dict[str, TensorType]:
    """Type of every tensor that a step's plan names."""
    types = {f"in{i}": use.type for i, use in enumerate(step.operands)}
    types |= {f"out{i}": use.type for i, use in enumerate(step.results)}
    return types | {f"tmp{i}": type_ for i, type_ in enumerate(step.plan.temporaries)}

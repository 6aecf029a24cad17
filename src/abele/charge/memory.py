"""What every tile holds: always, and over the program.

Always live are state and hyper values, vertex code and state, exchange and control code, stacks. The rest comes from
the live ranges of storages, plus what a step takes while it runs: received bytes, temporaries, scratch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from abele.charge.columns import Columns
from abele.charge.cycles import Charger
from abele.charge.records import PlanCost
from abele.charge.runs import Runs, added, largest
from abele.ir.operation import has
from abele.machine.chip import Chip
from abele.machine.system import System
from abele.schedule.layout import Grid
from abele.schedule.liveness import Interval, Liveness, Moment
from abele.schedule.records import ComputeSet, Plan, Schedule, Step
from abele.schedule.vertex import vertex_kind

STACK_BYTES = 1024
"""Stacks of the supervisor and the workers on every tile. Assumed; no public figure."""

FIELD_BYTES = 8
"""State of a vertex for each tensor that it touches: a pointer and a size. Assumed."""

ADDRESS_BYTES = 4
"""What a further call of an equal compute set keeps for each tensor: its address, put into the vertex. Assumed."""

CONTROL_INSTRUCTIONS = 12
"""Instructions on every tile that start one compute set: sync, call of the exchange, run of the vertex. Assumed."""

CALL_INSTRUCTIONS = 4
"""Instructions on every tile that do an equal compute set once more: the call of what is there, with its addresses.
Assumed: a compiler outlines what repeats."""

ALWAYS = ("state", "hyper", "vertex code", "vertex state", "exchange code", "control code", "stack")
SOMETIMES = ("values", "temporaries", "exchange buffers")


@dataclass(frozen=True, slots=True)
class LiveTensor:
    """One storage that is live on the fullest tile at its peak.

    Attributes:
        tensor: its name in the schedule; ``source`` the name that the user knows it by, or empty.
        kind, type: of the tensor.
        bytes: on the fullest tile, all ``copies``; ``total_bytes`` over all tiles.
        first, last: moments between which it is live; the whole program for state.
        operation, file, line, module: what makes it, and where the user wrote that.
    """

    tensor: str
    source: str
    kind: str
    type: str
    bytes: int
    total_bytes: int
    copies: int
    first: int
    last: int
    operation: str
    file: str
    line: int
    module: str


@dataclass(frozen=True)
class TileMemory:
    """Bytes on the tiles of one replica.

    Attributes:
        limit: memory of a tile.
        max: bytes on the fullest tile at its peak; ``mean`` over all tiles, each at its own peak.
        fullest_tile, fullest_ipu: where.
        peak_step: the moment of the peak (an index into the curve).
        categories: bytes by kind on the fullest tile at the peak; they add up to ``max``.
        peaks: peak bytes of every tile, a column for each IPU.
        kept: always-live bytes by kind, each a column for each IPU.
        curve_max, curve_mean: at every moment, over the tiles of the fullest IPU, ``float64[moments]``.
        by_tensor: what is live on the fullest tile at the peak, largest first.
    """

    limit: int
    max: int
    mean: float
    fullest_tile: int
    fullest_ipu: int
    peak_step: int
    categories: dict[str, int]
    peaks: tuple[Runs, ...]
    kept: dict[str, tuple[Runs, ...]]
    curve_max: np.ndarray
    curve_mean: np.ndarray
    by_tensor: tuple[LiveTensor, ...]

    @property
    def totals(self) -> np.ndarray:
        """Peak bytes of every tile, ``int64[ipus, tiles]``."""
        return np.stack([column.dense() for column in self.peaks])

    @property
    def always(self) -> dict[str, np.ndarray]:
        """Always-live bytes by kind, each ``int64[ipus, tiles]``."""
        return {kind: np.stack([column.dense() for column in columns]) for kind, columns in self.kept.items()}

    @property
    def fits(self) -> bool:
        return self.max <= self.limit

    @property
    def gap(self) -> int:
        """Bytes by which the fullest tile is over its memory; 0 when it fits."""
        return max(0, self.max - self.limit)


def bodies(plan: Plan, cost: PlanCost) -> dict[int, Runs]:
    """The compute sets of which a tile holds code, by their place in the plan, each with its exchange code.

    Turns of a plan differ only in the parts of tensors that they touch: they are one loop with moving addresses.
    """
    found: dict[tuple, tuple[int, Runs]] = {}
    for place, (cs, charged) in enumerate(zip(plan.sets, cost.sets, strict=True)):
        key = cs.vertex, cs.grid, tuple((a.resident, a.layout.shape) for a in (*cs.reads, *cs.writes))
        first, code = found.get(key, (place, charged.moved.code))
        found[key] = first, largest((code, charged.moved.code))
    return dict(found.values())


def state_bytes(cs: ComputeSet, again: int) -> int:
    """State of a vertex of a compute set, of which ``again`` further equal ones are called."""
    return (len(cs.reads) + len(cs.writes)) * (FIELD_BYTES + ADDRESS_BYTES * again)


def control_bytes(chip: Chip, again: int) -> int:
    """Control code on every tile that starts a compute set, and ``again`` further equal ones."""
    return (CONTROL_INSTRUCTIONS + CALL_INSTRUCTIONS * again) * chip.instruction_bytes


class MemoryCharger:
    """Measures the tiles of a schedule whose nodes ``charger`` has charged.

    Attributes:
        intervals: the live ranges, shorter where a step writes over its operand.
        always: always-live bytes by kind, each ``int64[ipus, tiles]``.
    """

    def __init__(self, schedule: Schedule, system: System, live: Liveness, charger: Charger, columns: Columns) -> None:
        self.schedule, self.system, self.live = schedule, system, live
        self.charger, self.columns = charger, columns
        self.shape = schedule.ipus, schedule.tiles
        self.transients: dict[int, tuple[PlanCost, Runs]] = {}
        self.intervals = self._in_place()
        self.always = self._always()

    def measure(self) -> TileMemory:
        """What the tiles hold."""
        always = self.always
        for step, _ in self._distinct_plans.values():
            self._transient(step)  # all of them now, while no other columns are laid out
        born, dead = self._events()
        running, when = self._nothing(), np.zeros(self.shape, np.int32)
        for columns in always.values():
            for column, into in zip(columns, running, strict=True):
                column.add_to(into)
        peak = running.copy()
        levels = np.stack([peak.max(axis=1), peak.sum(axis=1)]).astype(np.float64)
        curves = np.zeros((2, self.schedule.ipus, len(self.live.moments)))

        def note(ipu: int, column: np.ndarray) -> tuple[float, float]:
            """Keep each tile's peak, and give the highest tile and the sum of all."""
            higher = column > peak[ipu]
            np.copyto(peak[ipu], column, where=higher)
            np.copyto(when[ipu], now, where=higher)
            return float(column.max()), float(column.sum())

        changed: set[int] = set()

        def change(events: list[tuple[str, int]], sign: int) -> None:
            for tensor, copies in events:
                self._add(tensor, running, sign * copies)
                changed.add(self.ipu_of(tensor))

        for now, moment in enumerate(self.live.moments):
            change(born.get(now, []), 1)
            for ipu in changed:  # looked at once for what died before and what is born now: only births reach a peak
                levels[:, ipu] = note(ipu, running[ipu])
            changed.clear()
            curves[:, :, now] = levels
            step = moment.node
            if isinstance(step, Step) and step.plan.sets:
                ipu = step.origin.ipu
                column = running[ipu].copy()
                for each in self.until(now):
                    self._transient(each).add_to(column)
                curves[:, ipu, now] = note(ipu, column)
            change(dead.get(now, []), -1)
        ipu, tile = (int(i) for i in np.unravel_index(int(peak.argmax()), self.shape))
        now = int(when[ipu, tile])
        return TileMemory(
            self.system.chip.tile_memory,
            int(peak[ipu, tile]),
            float(peak.mean()),
            tile,
            ipu,
            now,
            self._categories(always, ipu, tile, now),
            _kept(peak),
            always,
            curves[0, ipu],
            curves[1, ipu] / self.schedule.tiles,
            self._live_at(ipu, tile, now),
        )

    # always live ---------------------------------------------------------------------------------------------

    def _always(self) -> dict[str, tuple[Runs, ...]]:
        chip, (ipus, tiles) = self.system.chip, self.shape
        found = {"stack": (Runs.same(STACK_BYTES, tiles),) * ipus}
        for kind in ("state", "hyper"):
            columns = self._nothing()
            for name in self.live.always:
                if self.schedule.tensors[name].kind == kind:
                    self._add(name, columns)
            found[kind] = _kept(columns)
        state, code, control = self._nothing(), self._nothing(), [0] * ipus
        for (ipu, _), (step, steps) in self._distinct_plans.items():
            for place, exchange in bodies(step.plan, self.charger.plan(step)).items():
                cs = step.plan.sets[place]
                self.columns.covered(cs.grid).add_to(state[ipu], state_bytes(cs, steps - 1))
                # Assumed: equal exchanges of tensors that lie alike are one routine, called with other addresses.
                exchange.add_to(code[ipu])
                control[ipu] += control_bytes(chip, steps - 1)
        found["vertex state"], found["exchange code"] = _kept(state), _kept(code)
        found["control code"] = tuple(Runs.same(size, tiles) for size in control)
        code = self._nothing()
        for (ipu, name), covered in self.codelets().items():
            covered.add_to(code[ipu], chip.estimate_of(name).code_bytes)
        found["vertex code"] = _kept(code)
        return {kind: found[kind] for kind in ALWAYS}

    def codelets(self) -> dict[tuple[int, str], Runs]:
        """By IPU and name of its code: 1 on each tile that has vertices of it, else 0."""
        grids: dict[tuple[int, str], dict[Grid, None]] = {}
        for (ipu, _), (step, _) in self._distinct_plans.items():
            for cs in step.plan.sets:
                for name in vertex_kind(cs.vertex).code:
                    grids.setdefault((ipu, name), {})[cs.grid] = None
        return {key: largest(self.columns.covered(grid) for grid in here) for key, here in grids.items()}

    def _nothing(self) -> np.ndarray:
        """A column of 0 for each IPU, ``int64[ipus, tiles]``."""
        return np.zeros(self.shape, np.int64)

    @cached_property
    def _distinct_plans(self) -> dict[tuple[int, int], tuple[Step, int]]:
        """One step for each distinct cost on each IPU, and how many steps of the program share it."""
        found: dict[tuple[int, int], tuple[Step, int]] = {}
        for _, step in self.schedule.steps():
            if step.plan.sets:
                key = step.origin.ipu, id(self.charger.plan(step))
                first, count = found.get(key, (step, 0))
                found[key] = first, count + 1
        return found

    # over the program ----------------------------------------------------------------------------------------

    def _in_place(self) -> list[Interval]:
        """The live ranges, where a step writes over an operand that nothing reads behind it.

        That is an elementwise step, an operand of the result's size that lies as it does, and a vertex that reads and
        writes the same elements; the operand then ends a moment earlier.
        """
        intervals = list(self.live.intervals)
        ending: dict[tuple[str, int], int] = {
            (v.tensor, v.last): i for i, v in enumerate(intervals) if v.first < v.last
        }
        for now, moment in enumerate(self.live.moments):
            step = moment.node
            if not isinstance(step, Step) or moment.kind != "step" or len(step.plan.sets) != 1:
                continue
            if not (has(step.operation, "elementwise") or has(step.operation, "in_place")):
                continue
            (cs,) = step.plan.sets
            same = {f"in{i}": use for i, use in enumerate(step.operands)}
            for write in cs.writes:
                if not write.name.startswith("out"):
                    continue
                made = step.results[int(write.name[3:])]
                for read in cs.reads:
                    use = same.get(read.name)
                    if use is None or not read.resident or read.layout != write.layout:
                        continue
                    at = ending.get((self.live.storage.get(use.tensor, use.tensor), now))
                    if at is not None and use.type.dtype.bytes == made.type.dtype.bytes:
                        intervals[at] = replace(intervals[at], last=now - 1)
                        del ending[intervals[at].tensor, now]
                        break
        return intervals

    def _events(self) -> tuple[dict[int, list[tuple[str, int]]], dict[int, list[tuple[str, int]]]]:
        born: dict[int, list[tuple[str, int]]] = {}
        dead: dict[int, list[tuple[str, int]]] = {}
        for interval in self.intervals:
            born.setdefault(interval.first, []).append((interval.tensor, interval.copies))
            dead.setdefault(interval.last, []).append((interval.tensor, interval.copies))
        return born, dead

    def ipu_of(self, tensor: str) -> int:
        """The IPU that holds a tensor."""
        return self.schedule.tensors[tensor].ipu

    def _add(self, name: str, columns: np.ndarray, times: int = 1) -> None:
        """Add the bytes of a tensor to ``int64[ipus, tiles]``."""
        tensor = self.schedule.tensors[name]
        self.columns.elements(tensor.home).add_to(columns[tensor.ipu], tensor.type.dtype.bytes * times)

    def _at(self, name: str, tile: int) -> int:
        """Bytes of a tensor on one tile."""
        tensor = self.schedule.tensors[name]
        return self.columns.elements(tensor.home).at(tile) * tensor.type.dtype.bytes

    def until(self, now: int) -> list[Step]:
        """The step of a moment, and those before it with which it started."""
        found: list[Step] = []
        for at in range(now, -1, -1):
            step = self.live.moments[at].node
            assert isinstance(step, Step)
            found.append(step)
            if not step.beside:
                break
        return found

    def _transient(self, step: Step) -> Runs:
        """Most bytes on each tile that a step takes beside its operands and results."""
        cost = self.charger.plan(step)
        known = self.transients.get(id(cost))
        if known is None:
            known = self.transients[id(cost)] = cost, largest(map(added, self.set_parts(step, cost)))
        return known[1]

    def set_parts(self, step: Step, cost: PlanCost) -> list[list[tuple[Runs, int]]]:
        """For each compute set what it takes, as columns and how many times each: received operands first, then live
        temporaries and scratch. What is written over a temporary counts once."""
        plan = step.plan
        uses: dict[str, list[int]] = {}
        temporaries: dict[str, list[tuple[Runs, int]]] = {}
        under: dict[str, tuple[str, ...]] = {}
        covered: list[tuple[tuple[str, ...], int, tuple[Runs, int]]] = []
        for index, cs in enumerate(plan.sets):
            for access in (*cs.reads, *cs.writes):
                if access.name.startswith("tmp"):
                    uses.setdefault(access.name, []).append(index)
            for access in cs.writes:
                if access.renews:
                    continue
                inner, number = access.name.startswith("tmp"), int(access.name[3:])
                if inner:
                    size = plan.temporaries[number].dtype.bytes
                    temporaries.setdefault(access.name, []).append((self.columns.elements(access.layout), size))
                if access.over:  # a result is there all the time, a temporary from now on
                    size = (plan.temporaries[number] if inner else step.results[number].type).dtype.bytes
                    there = self.columns.elements(access.layout), -size
                    under[access.name] = access.over, *under.get(access.over, ())
                    covered.append((under[access.name], uses[access.name][0] if inner else 0, there))
        whole = {name: (added(written), 1) for name, written in temporaries.items()}
        parts = []
        for index, (cs, charged) in enumerate(zip(plan.sets, cost.sets, strict=True)):
            part = [(charged.moved.received, 1), (self.columns.covered(cs.grid), charged.scratch)]
            live = {name for name, at in uses.items() if at[0] <= index <= at[-1]}
            part += [whole[name] for name in live]
            part += [there for names, since, there in covered if since <= index and live.intersection(names)]
            parts.append(part)
        return parts

    # the peak ------------------------------------------------------------------------------------------------

    def _categories(self, always: dict[str, tuple[Runs, ...]], ipu: int, tile: int, now: int) -> dict[str, int]:
        found = {kind: columns[ipu].at(tile) for kind, columns in always.items()}
        found |= dict.fromkeys(SOMETIMES, 0)
        for interval in self.intervals:
            if interval.first <= now <= interval.last and self.ipu_of(interval.tensor) == ipu:
                found["values"] += self._at(interval.tensor, tile) * interval.copies
        moment = self.live.moments[now]
        if isinstance(moment.node, Step) and moment.node.plan.sets and moment.node.origin.ipu == ipu:
            for step in self.until(now):
                parts = self.set_parts(step, self.charger.plan(step))
                sizes = [[column.at(tile) * times for column, times in part] for part in parts]
                received, *held = max(sizes, key=sum)
                found["exchange buffers"] += received
                found["temporaries"] += sum(held)
        return found

    def _live_at(self, ipu: int, tile: int, now: int) -> tuple[LiveTensor, ...]:
        makers = self.makers()
        last = len(self.live.moments) - 1
        entries = [(name, 1, 0, last) for name in self.live.always]
        entries += [(i.tensor, i.copies, i.first, i.last) for i in self.intervals if i.first <= now <= i.last]
        found = []
        for name, copies, first, end in entries:
            size = self._at(name, tile) * copies if self.ipu_of(name) == ipu else 0
            if size:
                found.append(self._describe(name, size, copies, first, end, makers))
        return tuple(sorted(found, key=lambda t: -t.bytes))

    def _describe(
        self, name: str, size: int, copies: int, first: int, last: int, makers: dict[str, Moment]
    ) -> LiveTensor:
        tensor, maker = self.schedule.tensors[name], makers.get(name)
        node = maker.node if maker else None
        origin = node.origin if node else None
        return LiveTensor(
            name,
            tensor.source,
            tensor.kind,
            str(tensor.type),
            size,
            tensor.type.bytes * copies,
            copies,
            first,
            last,
            node.operation if isinstance(node, Step) else (f"call {node.function}" if node else ""),
            origin.file if origin else "",
            origin.line if origin else 0,
            origin.module if origin else "",
        )

    def makers(self) -> dict[str, Moment]:
        """The moment that makes each tensor that a step or a call makes."""
        found: dict[str, Moment] = {}
        for moment in self.live.moments:
            if moment.node is not None and moment.kind in ("step", "exit"):
                for name in moment.node.makes:
                    found.setdefault(name, moment)
        return found


def _kept(columns: np.ndarray) -> tuple[Runs, ...]:
    """Columns ``int64[ipus, tiles]``, which are not written to any more."""
    return tuple(map(Runs.of, columns))

"""Cycles of a schedule: every compute set, every copy, every loop.

A compute set is a sync and an exchange (when anything is received), then its vertices: as slow as the busiest tile in
each. Steps follow one another on a replica, except in a pipeline, where the turns of a loop overlap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from abele.charge.columns import Columns, messages, most_held, most_sent, region_sizes, shared_by_pairs
from abele.charge.overlap import Channel, exposed, overlapped
from abele.ir.operation import has
from abele.ir.types import TensorType
from abele.machine.collectives import collective_seconds, group_size, sent_bytes
from abele.machine.exchange import (
    exchange_code_bytes,
    exchange_cycles,
    exchange_cycles_two_rates,
    host_seconds,
    link_seconds,
    streaming_seconds,
    sync_cycles,
)
from abele.machine.system import System
from abele.schedule.layout import Layout
from abele.schedule.liveness import Copies, Liveness, Pair
from abele.schedule.records import Access, Call, ComputeSet, Function, Node, Plan, Repeat, Schedule, Step, Tensor
from abele.schedule.vertex import Work, vertex_kind

PARTS = ("compute", "exchange", "links", "sync", "host", "bubble", "overhead")
"""Kinds of cycles. ``exchange`` is between tiles of one IPU, ``links`` between IPUs and replicas; ``sync`` holds the
start of compute sets too; ``bubble`` is the time in which the slowest stage of a pipeline waits; ``overhead`` is the
host's between two device iterations, which no program shortens (``System.host_return_seconds``)."""


@dataclass(frozen=True, slots=True)
class Cycles:
    """Tile cycles by kind."""

    compute: float = 0.0
    exchange: float = 0.0
    links: float = 0.0
    sync: float = 0.0
    host: float = 0.0
    bubble: float = 0.0
    overhead: float = 0.0

    @property
    def total(self) -> float:
        return self.compute + self.exchange + self.links + self.sync + self.host + self.bubble + self.overhead

    def __add__(self, other: Cycles) -> Cycles:
        return Cycles(*(getattr(self, part) + getattr(other, part) for part in PARTS))

    def __mul__(self, factor: float) -> Cycles:
        return Cycles(*(getattr(self, part) * factor for part in PARTS))

    def as_dict(self) -> dict[str, float]:
        return {part: getattr(self, part) for part in PARTS}


@dataclass(frozen=True)
class Moved:
    """What is exchanged before a compute set.

    Attributes:
        received: bytes received by each tile, ``int64[tiles]``, other IPUs' included.
        sent: bytes that one tile sends, at most; what several tiles receive is sent once.
        linked: bytes that cross from other IPUs, each element once.
        exchange, links: cycles between the tiles, and those that the links take longer.
        code: bytes of exchange code on each tile, ``int64[tiles]``.
    """

    received: np.ndarray
    sent: int
    linked: int
    exchange: float
    links: float
    code: np.ndarray


@dataclass(frozen=True)
class SetCost:
    """One compute set: cycles, and what moves.

    Attributes:
        vertex: the kind of its vertices, ``vertices`` of them.
        compute, sync: tile cycles.
        moved: its exchange.
        busy: cycles of all vertices together, for the balance of tiles.
        touched: bytes that the vertices load and store.
        scratch: bytes of scratch on a tile, at most.
    """

    vertex: str
    vertices: int
    compute: float
    sync: float
    moved: Moved
    busy: float
    touched: int
    scratch: int


@dataclass(frozen=True)
class PlanCost:
    """All compute sets of a plan."""

    sets: tuple[SetCost, ...]
    cycles: Cycles
    vertices: int
    received: int
    linked: int
    touched: int
    busy: float


Place = tuple[int, int, bool]
"""Where a node runs: its IPU, its pipeline stage, and whether it is of the backward pass."""


def place_of(node: Node) -> Place:
    """Where a node runs."""
    return node.origin.ipu, node.origin.stage, node.origin.phase != "forward"


class Charger:
    """Charges the nodes of one schedule. Equal plans on equal types are charged once."""

    def __init__(self, schedule: Schedule, system: System, live: Liveness, columns: Columns) -> None:
        self.schedule, self.system, self.live, self.columns = schedule, system, live, columns
        self.chip = system.chip
        self.plans: dict[tuple, PlanCost] = {}
        self.by_step: dict[int, PlanCost] = {}
        self._numbers: dict[Plan, int] = {}
        self._number_of: dict[int, int] = {}
        self.nodes: dict[int, Cycles] = {}
        self.totals: dict[int, Cycles] = {}
        self.functions: dict[str, Cycles] = {}
        self.stages: dict[str, dict[Place, Cycles]] = {}
        self.slots: dict[int, tuple[float, int]] = {}
        self.hidden: dict[str, float] = {}
        self.collectives: dict[int, tuple[Cycles, int]] = {}

    # plans ---------------------------------------------------------------------------------------------------

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
            known = self.plans[key] = self._plan(step, tensors)
        return known

    def alone(self, step: Step, tensors: Sequence[Tensor]) -> PlanCost:
        """Cost of a step's plan whose operands are these tensors, whether or not the schedule has them."""
        return self._plan(step, tensors)

    def _plan(self, step: Step, tensors: Sequence[Tensor]) -> PlanCost:
        plan = step.plan
        types = {f"in{i}": use.type for i, use in enumerate(step.operands)}
        types |= {f"out{i}": use.type for i, use in enumerate(step.results)}
        types |= {f"tmp{i}": type_ for i, type_ in enumerate(plan.temporaries)}
        homes = {f"in{i}": [t.home] for i, t in enumerate(tensors)}
        far = {f"in{i}": t.ipu for i, t in enumerate(tensors) if t.ipu != step.origin.ipu}
        sets = []
        for cs in plan.sets:
            sets.append(self._set(cs, types, homes, far, step.origin.ipu))
            for access in cs.writes:
                homes.setdefault(access.name, []).append(access.layout)
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
            sum(int(s.moved.received.sum()) for s in sets),
            sum(s.moved.linked for s in sets),
            sum(s.touched for s in sets),
            sum(s.busy for s in sets),
        )

    def _set(
        self,
        cs: ComputeSet,
        types: dict[str, TensorType],
        homes: dict[str, list[Layout]],
        far: dict[str, int],
        ipu: int,
    ) -> SetCost:
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
        fetched = [a for a in cs.reads if not a.resident or a.name in far]
        moved = self._exchange(fetched, types, homes, far, ipu)
        touched = sum(
            int((sizes * counts).sum()) * types[access.name].dtype.bytes
            for access, sizes in zip((*cs.reads, *cs.writes), (*work.reads, *work.writes), strict=True)
        )
        syncs = sync_cycles(self.system, 2 if moved.linked else 1) if moved.exchange or moved.links else 0
        return SetCost(
            cs.vertex,
            int(counts.sum()),
            float(vertex.max()),
            float(syncs + self.chip.compute_set_cycles),
            moved,
            float((vertex * counts).sum()),
            touched,
            int(np.max(scratch)),
        )

    def _exchange(
        self,
        fetched: Sequence[Access],
        types: dict[str, TensorType],
        homes: dict[str, list[Layout]],
        far: dict[str, int],
        ipu: int,
    ) -> Moved:
        single, paired, runs, code = np.zeros((4, self.schedule.tiles), np.int64)
        sent, linked, links = 0, 0, 0.0
        for access in fetched:
            size, layout = types[access.name].dtype.bytes, access.layout
            source, lies = far.get(access.name), homes[access.name]
            elements = self.columns.missing(layout, lies) if source is None else self.columns.elements(layout)
            if not elements.any():
                continue
            column = paired if shared_by_pairs(layout, self.chip.tiles_per_exchange_bus) else single
            column += elements * size
            gone = [(most_sent if source is None else most_held)(home, layout) for home in lies]
            each = -(-int(elements.max()) // max(messages(home, layout) for home in lies))
            runs += -(-elements // each)
            code += self._code(lies, -(-elements // each), gone, each, size)
            if source is None:
                sent += sum(gone) * size
            else:
                # over the links each element comes once, whatever number of tiles reads it
                crossing = min(types[access.name].size, int(elements.sum())) * size
                linked += crossing
                links += self.chip.cycles(link_seconds(self.system, crossing, source, ipu))
        # Without both rates all tiles get theirs in the same way, and the one with most decides.
        rates = (single, paired) if single.any() and paired.any() else (single.max(initial=0), paired.max(initial=0))
        distance = self._distance(fetched, types, homes, far)
        cycles = exchange_cycles_two_rates(
            self.chip, *rates, sent, messages=int(runs.max(initial=0)), distance=distance
        )
        exchange = float(np.max(cycles))
        # What comes over links goes on into the tiles at once: only the longer of the two is waited for.
        return Moved(single + paired, sent, linked, exchange, max(0.0, links - exchange), code)

    def _distance(
        self,
        fetched: Sequence[Access],
        types: dict[str, TensorType],
        homes: dict[str, list[Layout]],
        far: dict[str, int],
    ) -> float:
        """Mean distance of the tiles that exchange, by bytes; 0 on a chip whose exchange does not ask for it."""
        if self.chip.exchange_cost is None:
            return 0.0
        total, moved = 0.0, 0
        for access in fetched:
            if access.name not in far:
                size = int(self.columns.elements(access.layout).sum()) * types[access.name].dtype.bytes
                total += size * self.columns.distance(homes[access.name][0], access.layout)
                moved += size
        return total / moved if moved else 0.0

    def _code(
        self, homes: Sequence[Layout], received: np.ndarray, sent: Sequence[int], each: int, size: int
    ) -> np.ndarray:
        """Exchange code on each tile for one operand, in bytes: that of its receivers and of those that send it.

        ``received`` messages of ``each`` elements on each tile, and ``sent`` elements at most by a tile of each home.
        """
        code = exchange_code_bytes(self.chip, received)
        for home, gone in zip(homes, sent, strict=True):
            code = code + self.columns.covered(home.grid) * exchange_code_bytes(
                self.chip, 0, -(-gone // each), gone * size
            )
        return code

    # nodes ---------------------------------------------------------------------------------------------------

    def node(self, node: Node) -> Cycles:
        """Cycles of a node each time it runs; a call's are those of its copies alone."""
        return self.nodes[id(node)]

    def total(self, node: Call | Repeat) -> Cycles:
        """Cycles of a call or repeat with everything that it runs."""
        return self.totals[id(node)]

    def function(self, function: Function) -> Cycles:
        """Cycles of one run of a function, its calls included."""
        if function.name not in self.functions:
            self.functions[function.name] = self._function(function)
        return self.functions[function.name]

    def _function(self, function: Function) -> Cycles:
        total, stages, channel = Cycles(), dict[Place, Cycles](), Channel()
        hidden = 0.0
        for node, shared in _runs(function.nodes):
            waited = Cycles(host=channel.wait(node))
            channel.now += waited.total
            if isinstance(node, Step):
                cost = self._step(node, shared)
                if overlapped(node):
                    beside, cost = cost.host, self._apart(node)
                    channel.now += cost.total
                    if has(node.operation, "host"):
                        hidden += beside
                    else:
                        channel.start(node, beside)
                else:
                    channel.now += cost.total
                cost += waited
                self.nodes[id(node)] = cost
                inside = {place_of(node): cost}
            else:
                cost, inside = self._control(node)
                hidden += self.hidden[node.function] if isinstance(node, Call) else 0.0
                channel.now += cost.total
                cost += waited
                self.nodes[id(node)] += waited
                self.totals[id(node)] = cost
                inside[place_of(node)] = inside.get(place_of(node), Cycles()) + waited
            total += cost
            for place, part in inside.items():
                stages[place] = stages.get(place, Cycles()) + part
        if channel.last is not None:
            rest, place = Cycles(host=channel.finish()), place_of(channel.last)
            self.nodes[id(channel.last)] += rest
            stages[place] += rest
            total += rest
        self.stages[function.name], self.hidden[function.name] = stages, hidden
        return total

    def _apart(self, step: Step) -> Cycles:
        """What the computing tiles take part in of a transfer that overlaps: the exchange with the tiles set aside."""
        tiles = self.schedule.io_tiles
        if not tiles:
            return Cycles()
        use = (step.results or step.operands)[0]
        here = int(self.columns.elements(self.schedule.tensors[use.tensor].home).max()) * use.type.dtype.bytes
        there = -(-use.type.bytes // tiles)
        received, sent = (here, there) if step.results else (there, here)
        cycles = float(exchange_cycles(self.chip, received, sent))
        return Cycles(exchange=cycles, sync=float(sync_cycles(self.system)))

    def _step(self, step: Step, shared: Sequence[Node]) -> Cycles:
        cost = self.plan(step).cycles
        if has(step.operation, "remote"):
            return cost + Cycles(host=self.chip.cycles(streaming_seconds(self.system, _bytes(step))))
        if has(step.operation, "host"):
            seconds = self._host(_bytes(step))
            return cost + Cycles(
                host=self.chip.cycles(seconds if step is shared[0] else seconds - self._host_latency())
            )
        if has(step.operation, "collective"):
            return cost + self._collective(step, shared)
        if has(step.operation, "transfer"):
            return cost + self._copy(step.operation, [(step.operands[0].tensor, step.results[0].tensor)])
        return cost

    def _host(self, size: float) -> float:
        return host_seconds(self.system, size)

    def _host_latency(self) -> float:
        return self.system.host_latency_seconds

    def _collective(self, step: Step, shared: Sequence[Node]) -> Cycles:
        """Share of one step in a collective of ``shared``: equal ones in a row are done as one."""
        first = id(shared[0])
        if first not in self.collectives:
            self.collectives[first] = self._joined(step, shared)
        whole, size = self.collectives[first]
        return whole * (reduced_bytes(step) / size) if size else Cycles()

    def _joined(self, step: Step, shared: Sequence[Node]) -> tuple[Cycles, int]:
        """Cycles of the collective of steps like ``step``, and the bytes that they reduce in all."""
        s = self.schedule
        size, stride = _group(step)
        members = group_size(s.replicas, size, stride)
        if members <= 1:
            return Cycles(), 0
        per_ipu: dict[int, int] = {}
        for other in shared:
            assert isinstance(other, Step)
            per_ipu[other.origin.ipu] = per_ipu.get(other.origin.ipu, 0) + reduced_bytes(other)
        everything, most = sum(per_ipu.values()), max(per_ipu.values())
        if step.operation == "replica_shard":
            copied = -(-(most // members) // s.tiles)
            compute = float(-(-copied // self.chip.memcpy_bytes_per_cycle))
            return Cycles(compute=compute, sync=float(self.chip.compute_set_cycles)), everything
        seconds = collective_seconds(self.system, step.operation, most, s.replicas, s.ipus, size=size, stride=stride)
        sync = sync_cycles(self.system, s.replicas * s.ipus)
        return Cycles(links=self.chip.cycles(seconds), sync=sync), everything

    def _control(self, node: Call | Repeat) -> tuple[Cycles, dict[Place, Cycles]]:
        """Cycles of a call or repeat with everything inside, and the same by place."""
        callee = self.schedule.functions[node.function]
        body, by_place = self.function(callee), self.stages
        copies = self.live.copies.get(id(node), Copies())
        around = self._copy(callee.name, copies.entry) + self._copy(callee.name, copies.exit)
        here = place_of(node)
        if isinstance(node, Call):
            self.nodes[id(node)] = around
            inside = dict(by_place[callee.name])
            inside[here] = inside.get(here, Cycles()) + around
            return body + around, inside
        turns = self._copy(callee.name, copies.turns)
        between = turns * max(0, node.count - 1)
        hidden = self.hidden[callee.name] if node.count else 0.0
        if node.stages > 1 and node.count:
            slot, ramp = self._slot(node, by_place[callee.name])
            slot += Cycles(host=max(0.0, hidden - slot.total))
            around += Cycles(host=hidden)
            self.nodes[id(node)] = around + between
            self.slots[id(node)] = slot.total, ramp
            total = slot * node.count + Cycles(bubble=ramp * slot.total) + around + between
            return total, {here: total}
        around += Cycles(host=exposed(hidden, body.total, node.count))
        self.nodes[id(node)] = around + between
        inside = {place: part * node.count for place, part in by_place[callee.name].items()}
        inside[here] = inside.get(here, Cycles()) + around + between
        return body * node.count + around + between, inside

    def _slot(self, node: Repeat, places: Mapping[Place, Cycles]) -> tuple[Cycles, int]:
        """Time that a pipelined loop takes for one micro-batch more, and the slots in which it fills and drains.

        IPUs wait for each other at the end of a slot, or of each half of it: the slowest decides. See ``PIPELINES``.
        """
        sync = Cycles(sync=sync_cycles(self.system, self.schedule.ipus))
        if node.pipeline == "sequential":
            # one after another: a sync where the micro-batch goes on to another stage
            return sum(places.values(), Cycles()) + sync * len({place[1:] for place in places}), 0
        backward = any(place[2] for place in places)
        halves = 2 if node.pipeline == "interleaved" and backward else 1
        work: list[dict[int, Cycles]] = [{} for _ in range(halves)]
        for (ipu, stage, back), cycles in places.items():
            half = work[(stage + back) % halves]
            half[ipu] = half.get(ipu, Cycles()) + cycles
        slot = Cycles()
        for half in work:
            slot += max(half.values(), key=lambda c: c.total, default=Cycles()) + sync
        # A micro-batch goes through all stages, and back through all but the last, which turns round in its slot; an
        # interleaved one takes half a slot for each of 2·stages places.
        return slot, (2 * node.stages - 2 if backward else node.stages - 1) // halves

    # copies --------------------------------------------------------------------------------------------------

    def _copy(self, callee: str, pairs: Sequence[Pair]) -> Cycles:
        """Cycles of binding: alike tensors are copied on their tiles, others exchanged, all of them at once."""
        if not pairs:
            return Cycles()
        received = np.zeros(self.schedule.tiles, np.int64)
        on_tile = np.zeros(self.schedule.tiles, np.int64)
        sent, links, linked = 0, 0.0, 0
        for source, target in pairs:
            a, b = self.schedule.tensors[source], self.schedule.tensors[target]
            column = self.columns.elements(b.home) * b.type.dtype.bytes
            if a.ipu == b.ipu and a.home == b.home:
                on_tile += column
                continue
            received += column
            if a.ipu == b.ipu:
                sent += int(self.columns.elements(a.home).max()) * a.type.dtype.bytes
            else:
                linked += a.type.bytes
                links += self.chip.cycles(link_seconds(self.system, a.type.bytes, a.ipu, b.ipu))
        exchange = float(exchange_cycles(self.chip, int(received.max()), sent))
        syncs = sync_cycles(self.system, 2 if linked else 1) if exchange else 0
        copied = float(-(-int(on_tile.max()) // self.chip.memcpy_bytes_per_cycle))
        return Cycles(copied, exchange, max(0.0, links - exchange), float(syncs + self.chip.compute_set_cycles))

    # the ends ------------------------------------------------------------------------------------------------

    def ends_bytes(self) -> tuple[int, int]:
        """Bytes that the host exchanges with each replica before and after main: data in, results out."""
        s = self.schedule

        def size(names: Sequence[str], ports, kinds: tuple[str, ...]) -> int:
            return sum(s.tensors[n].type.bytes for n, p in zip(names, ports, strict=False) if p.kind in kinds)

        data = size(s.main.parameters, s.input_ports, ("data",))
        return data, size(s.main.results, s.output_ports, ("anchor", "loss", "gradient"))

    def ends(self) -> tuple[Cycles, Cycles]:
        """What one device iteration costs before and after main: data in, results out, states moved to their place, and
        the host's way back to the next one."""
        s = self.schedule
        begin, end = (Cycles(host=self.chip.cycles(self._host(size))) for size in self.ends_bytes())
        # Streams of main itself overlap with the device iterations before and behind.
        hidden = max(0.0, self.hidden[s.main.name] - self.functions[s.main.name].total)
        end += Cycles(host=hidden, overhead=self.chip.cycles(self.system.host_return_seconds))
        end += self._copy(s.main.name, self.live.final)
        return begin, end


def _bytes(step: Step) -> int:
    """Bytes that a stream moves on each replica."""
    return sum(use.type.bytes for use in (step.results or step.operands))


def _group(step: Step) -> tuple[int, int]:
    """Members of the groups of a collective, 0 for all replicas, and their distance."""
    return int(step.attributes.get("group", 0)), int(step.attributes.get("stride", 1))  # type: ignore[arg-type]


def reduced_bytes(step: Step) -> int:
    """Bytes of the whole tensor of a collective, on each IPU that takes part; 0 for any other step."""
    if not has(step.operation, "collective"):
        return 0
    use = step.results[0] if step.operation == "all_gather" else step.operands[0]
    return use.type.bytes


def collective_bytes(step: Step, replicas: int) -> float:
    """Bytes that one replica sends over links in a collective; 0 for any other step, and for one's own part."""
    if not has(step.operation, "collective") or step.operation == "replica_shard":
        return 0.0
    return sent_bytes(step.operation, reduced_bytes(step), group_size(replicas, *_group(step)))


def streamed_bytes(step: Step) -> int:
    """Bytes that a step moves to or from the host or streaming memory on each replica; 0 for any other step."""
    return _bytes(step) if has(step.operation, "host") or has(step.operation, "remote") else 0


def _together(step: Step, other: Step) -> bool:
    """Whether two steps in a row are done as one: talk to the host, or the same collective over the same groups."""
    if step.operation != other.operation:
        return False
    return has(step.operation, "host") or _group(step) == _group(other)


def _runs(nodes: Sequence[Node]):
    """Every node with the run of steps, next to one another, that it is done with."""
    at = 0
    while at < len(nodes):
        node = nodes[at]
        stop = at + 1
        if isinstance(node, Step) and (has(node.operation, "host") or has(node.operation, "collective")):
            while stop < len(nodes) and isinstance(other := nodes[stop], Step) and _together(node, other):
                stop += 1
        run = nodes[at:stop]
        for each in run:
            yield each, run
        at = stop

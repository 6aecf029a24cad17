"""Cycles of a schedule: every step, every copy, every loop.

Steps follow one another on a replica, except in a pipeline, where the turns of a loop overlap. What the plan of a step
takes, ``plans`` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from abele.charge.columns import Columns
from abele.charge.overlap import Channel, Hidden, overlapped
from abele.charge.pipeline import Slots, pipelined
from abele.charge.plans import PlanCharger
from abele.charge.records import Cycles, PlanCost
from abele.ir.operation import has
from abele.machine.chip import Chip
from abele.machine.collectives import collective, group_size, sent_bytes
from abele.machine.exchange import exchange_cycles, host_seconds, link_seconds, streaming_seconds, sync_cycles
from abele.machine.system import System
from abele.schedule.liveness import Copies, Liveness, Pair
from abele.schedule.records import Call, Function, Node, Place, Repeat, Schedule, Step, place_of


class Front:
    """The compute sets that steps share which start together: each is synchronised, and its exchange started, once.

    What the steps exchange and compute adds up: a tile may have a part of each.
    """

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self.syncs: list[float] = []
        self.exchanged: list[bool] = []

    def joined(self, step: Step, cost: PlanCost) -> Cycles:
        """What a step need not do again because those that it started beside have done it."""
        if not step.beside:
            self.syncs, self.exchanged = [], []
        sync = exchange = 0.0
        for i, done in enumerate(cost.sets):
            moves = done.moved.exchange > 0
            if i == len(self.syncs):
                self.syncs.append(done.sync)
                self.exchanged.append(moves)
                continue
            sync += min(done.sync, self.syncs[i])
            self.syncs[i] = max(done.sync, self.syncs[i])
            if moves and self.exchanged[i] and self.chip.exchange_cost is None:
                exchange += self.chip.exchange_start_cycles
            self.exchanged[i] = moves or self.exchanged[i]
        return Cycles(exchange=exchange, sync=sync)


class Charger(PlanCharger):
    """Charges the nodes of one schedule."""

    def __init__(self, schedule: Schedule, system: System, live: Liveness, columns: Columns) -> None:
        super().__init__(schedule, system, columns)
        self.live = live
        self.nodes: dict[int, Cycles] = {}
        self.totals: dict[int, Cycles] = {}
        self.functions: dict[str, Cycles] = {}
        self.stages: dict[str, dict[Place, Cycles]] = {}
        self.slots: dict[int, Slots] = {}
        self.hidden: dict[str, Hidden] = {}
        self.collectives: dict[int, tuple[Cycles, int]] = {}

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
        front, hidden = Front(self.chip), Hidden()
        for node, shared in _runs(function.nodes):
            waited = Cycles(host=channel.wait(node))
            channel.now += waited.total
            if isinstance(node, Step):
                cost = self._step(node, shared)
                if node.plan.sets:
                    cost = cost + front.joined(node, self.plan(node)) * -1.0
                if overlapped(node):
                    beside, cost = cost.host, self._apart(node)
                    channel.now += cost.total
                    if has(node.operation, "host"):
                        hidden += Hidden(loads=beside) if node.results else Hidden(stores=beside)
                    else:
                        channel.start(node, beside)
                else:
                    channel.now += cost.total
                cost += waited
                self.nodes[id(node)] = cost
                inside = {place_of(node): cost}
            else:
                cost, inside = self._control(node)
                hidden += self.hidden[node.function] if isinstance(node, Call) else Hidden()
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
        here = self.columns.elements(self.schedule.tensors[use.tensor].home).max * use.type.dtype.bytes
        there = -(-use.type.bytes // tiles)
        received, sent = (here, there) if step.results else (there, here)
        cycles = float(exchange_cycles(self.chip, received, sent))
        return Cycles(exchange=cycles, sync=float(sync_cycles(self.system)))

    def _step(self, step: Step, shared: Sequence[Node]) -> Cycles:
        cost = self.plan(step).cycles
        if has(step.operation, "remote"):
            return cost + Cycles(host=self.chip.cycles(streaming_seconds(self.system, _bytes(step))))
        if has(step.operation, "host"):
            seconds = host_seconds(self.system, _bytes(step))
            if step is not shared[0]:
                seconds -= self.system.host_latency_seconds
            return cost + Cycles(host=self.chip.cycles(seconds))
        if has(step.operation, "collective"):
            return cost + self._collective(step, shared)
        if has(step.operation, "transfer"):
            return cost + self._copy([(step.operands[0].tensor, step.results[0].tensor)])
        return cost

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
        size, stride = step.group
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
        groups = {"size": size, "stride": stride, "active": len(per_ipu)}
        found = collective(self.system, step.operation, most, s.replicas, s.ipus, **groups)
        sync = sync_cycles(self.system, members * stride * s.ipus)  # groups that follow one another do not wait
        return Cycles(links=self.chip.cycles(found.seconds), sync=sync), everything

    def _control(self, node: Call | Repeat) -> tuple[Cycles, dict[Place, Cycles]]:
        """Cycles of a call or repeat with everything inside, and the same by place."""
        callee = self.schedule.functions[node.function]
        body, by_place = self.function(callee), self.stages
        copies = self.live.copies.get(id(node), Copies())
        around = self._copy(copies.entry) + self._copy(copies.exit)
        here = place_of(node)
        if isinstance(node, Call):
            self.nodes[id(node)] = around
            inside = dict(by_place[callee.name])
            inside[here] = inside.get(here, Cycles()) + around
            return body + around, inside
        turns = self._copy(copies.turns)
        between = turns * max(0, node.count - 1)
        hidden = self.hidden[callee.name] if node.count else Hidden()
        if node.stages > 1 and node.count:
            slot, slots = self._slots(node, by_place[callee.name], hidden.turn)
            around += Cycles(host=hidden.alone)
            self.nodes[id(node)] = around + between
            self.slots[id(node)] = slots
            total = slot * node.count + Cycles(bubble=slots.bubble) + around + between
            return total, {here: total}
        around += Cycles(host=hidden.exposed(body.total, node.count))
        self.nodes[id(node)] = around + between
        inside = {place: part * node.count for place, part in by_place[callee.name].items()}
        inside[here] = inside.get(here, Cycles()) + around + between
        return body * node.count + around + between, inside

    def _slots(self, node: Repeat, places: Mapping[Place, Cycles], turn: float) -> tuple[Cycles, Slots]:
        """Time that a pipelined loop takes for one micro-batch more, and all its slots.

        IPUs wait for each other at the end of a slot, or of each half of it: the slowest decides. See ``PIPELINES``.

        Args:
            turn: cycles that the host's transfers of a micro-batch take beside; a slot is no shorter.
        """
        sync = Cycles(sync=sync_cycles(self.system, self.schedule.ipus))
        if node.pipeline == "sequential":
            # one after another: a sync where the micro-batch goes on to another stage
            slot = sum(places.values(), Cycles()) + sync * len({place[1:] for place in places})
            slot += Cycles(host=max(0.0, turn - slot.total))
            return slot, Slots(slot.total, node.count)
        backward = any(place[2] for place in places)
        halves = 2 if node.pipeline == "interleaved" and backward else 1
        work: list[dict[int, Cycles]] = [{} for _ in range(halves)]
        for (ipu, stage, back), cycles in places.items():
            half = work[(stage + back) % halves]
            half[ipu] = half.get(ipu, Cycles()) + cycles
        slot = Cycles()
        for half in work:
            slot += max(half.values(), key=lambda c: c.total, default=Cycles()) + sync
        wait = max(0.0, turn - slot.total)
        slot += Cycles(host=wait)
        taken = {place: cycles.total for place, cycles in places.items()}
        return slot, pipelined(node, taken, slot.total, sync.total + wait / halves)

    # copies --------------------------------------------------------------------------------------------------

    def _copy(self, pairs: Sequence[Pair]) -> Cycles:
        """Cycles of binding: alike tensors are copied on their tiles, others exchanged, all of them at once."""
        if not pairs:
            return Cycles()
        received = np.zeros(self.schedule.tiles, np.int64)
        on_tile = np.zeros(self.schedule.tiles, np.int64)
        sent, links, linked = 0, 0.0, 0
        for source, target in pairs:
            a, b = self.schedule.tensors[source], self.schedule.tensors[target]
            here = a.ipu == b.ipu and a.home == b.home
            self.columns.elements(b.home).add_to(on_tile if here else received, b.type.dtype.bytes)
            if here:
                continue
            if a.ipu == b.ipu:
                sent += self.columns.elements(a.home).max * a.type.dtype.bytes
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
        begin, end = (Cycles(host=self.chip.cycles(host_seconds(self.system, size))) for size in self.ends_bytes())
        # Streams of main itself overlap with the device iterations before and behind.
        hidden = max(0.0, self.hidden[s.main.name].turn - self.functions[s.main.name].total)
        end += Cycles(host=hidden, overhead=self.chip.cycles(self.system.host_return_seconds))
        end += self._copy(self.live.final)
        return begin, end


def _bytes(step: Step) -> int:
    """Bytes that a stream moves on each replica."""
    return sum(use.type.bytes for use in (step.results or step.operands))


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
    return sent_bytes(step.operation, reduced_bytes(step), group_size(replicas, *step.group))


def streamed_bytes(step: Step) -> int:
    """Bytes that a step moves to or from the host or streaming memory on each replica; 0 for any other step."""
    return _bytes(step) if has(step.operation, "host") or has(step.operation, "remote") else 0


def _together(step: Step, other: Step) -> bool:
    """Whether two steps in a row are done as one: talk to the host, or the same collective over the same groups."""
    if step.operation != other.operation or step.attributes.get("alone") or other.attributes.get("alone"):
        return False
    return has(step.operation, "host") or step.group == other.group


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

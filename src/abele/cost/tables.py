"""A profile in full, as the tables of a report: every operation, compute set, tile, storage and moment.

``docs/report_store.md`` says what is in each. Columns are arrays or lists, and nothing is kept for each operation and
each tile: what equal plans share is there once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypeGuard

import numpy as np

from abele.charge import Charged, charged
from abele.charge.cycles import collective_bytes
from abele.charge.detail import ColumnTable, Flows, Traffic, traffic_table
from abele.charge.memory import bodies, control_bytes, state_bytes
from abele.charge.records import PARTS, Cycles
from abele.charge.storages import storages
from abele.cost.flow import flow_table
from abele.cost.pipeline import left_out, pipeline_table
from abele.cost.profile import Profile, StepProfile, nodes_run
from abele.ir.operation import has
from abele.machine.system import System
from abele.schedule.records import Call, Node, Repeat, Schedule, Step
from abele.schedule.vertex import vertex_kind

Table = dict[str, Any]


def tables(profile: Profile, schedule: Schedule, system: System) -> tuple[dict[str, Table], tuple[str, ...]]:
    """The tables of a profile, which ``cost`` made of this schedule on this system, and notes on them."""
    made = _Tables(profile, charged(schedule, system))
    return made.all(), tuple(filter(None, [left_out(made.loops)]))


class _Tables:
    def __init__(self, profile: Profile, done: Charged) -> None:
        self.profile, self.done = profile, done
        self.schedule, self.charger = done.schedule, done.charger
        nodes = [node for _, node in nodes_run(self.schedule, self.schedule.times_run())]
        self.nodes: list[Node | None] = [None, *nodes, None]  # of each operation; the two ends are none
        self.row = {id(node): row for row, node in enumerate(self.nodes) if node is not None}
        self.columns = ColumnTable()
        self.flows: dict[int, Traffic] = {}
        self.like = self._like()

    def all(self) -> dict[str, Table]:
        found = {"operations": self._operations(), **self._sets(), "moments": self._moments()}
        found |= self._storages()
        found |= {
            "traffic": traffic_table(self.flows),
            "pipeline": pipeline_table(self.loops, self.charger),
            "tiles": self._tiles(),
            "codelets": self._codelets(),
        }
        return found | {"columns": self.columns.table()}

    # operations ----------------------------------------------------------------------------------------------

    def _like(self) -> list[int]:
        """The first operation of an equal plan on the same IPU, −1 where tiles neither work nor exchange; by the way
        the traffic of each such first one."""
        flows, tensors, number = Flows(self.charger), self.schedule.tensors, self.done.columns.number
        first: dict[tuple, int] = {}
        found: list[int] = []
        for row, node in enumerate(self.nodes):
            if not isinstance(node, Step) or not (node.plan.sets or has(node.operation, "transfer")):
                found.append(-1)
                continue
            key: tuple = (id(self.charger.plan(node)), node.origin.ipu)
            moved = has(node.operation, "transfer")
            if moved:
                a, b = (tensors[use.tensor] for use in (node.operands[0], node.results[0]))
                key += (number(a.home), a.ipu, number(b.home), b.ipu, b.type)
            like = first.setdefault(key, row)
            found.append(like)
            if like == row:
                self.flows[row] = flows.transfer(node) if moved else flows.of(node)
        return found

    def _operations(self) -> Table:
        steps, schedule = self.profile.steps, self.schedule
        runs = {node.function: row for row, node in reversed(list(enumerate(self.nodes))) if _calls(node)}
        whole = [self._whole(node, step) for node, step in zip(self.nodes, steps, strict=True)]
        names = {name: [getattr(step, name) for step in steps] for name in ("name", "function", "times")}
        origins = [step.origin for step in steps]
        main = schedule.main.name
        table: Table = {
            "id": np.arange(len(steps)),
            "parent": [-1 if name == main else runs[name] for name in names["function"]],
            "key": stable_keys(steps),
            "kind": [_kind(node, row) for row, node in enumerate(self.nodes)],
            "name": names["name"],
            "function": names["function"],
            "callee": [node.function if _calls(node) else "" for node in self.nodes],
            "like": self.like,
            "layer": [origin.module for origin in origins],
            "file": [origin.file for origin in origins],
            "line": [origin.line for origin in origins],
            "stage": [origin.stage for origin in origins],
            "ipu": [-1 if node is None else node.origin.ipu for node in self.nodes],
            "phase": [origin.phase for origin in origins],
            "times": names["times"],
            "count": [node.count if isinstance(node, Repeat) else 1 for node in self.nodes],
            "cycles": np.array([cycles.total for cycles in whole]),
            "own": np.array([step.cycles.total for step in steps]),
        }
        table |= {part: np.array([getattr(cycles, part) for cycles in whole]) for part in PARTS}
        busy = [self.charger.plan(node).busy if isinstance(node, Step) else 0.0 for node in self.nodes]
        return table | {
            "flops": np.array([float(step.flops) for step in steps]),
            "vertices": [step.vertices for step in steps],
            "exchange_bytes": [step.received for step in steps],
            "link_bytes": [step.linked for step in steps],
            "replica_bytes": [
                collective_bytes(node, schedule.replicas) if isinstance(node, Step) else 0.0 for node in self.nodes
            ],
            "streamed_bytes": [step.streamed for step in steps],
            "code_bytes": self._code(),
            "busy": np.array(busy),
            "balance": np.array([step.balance for step in steps], float),
            "types": [step.types for step in steps],
            "stream": [step.stream for step in steps],
        }

    def _whole(self, node: Node | None, step: StepProfile) -> Cycles:
        """Cycles of an operation with all that it runs."""
        return step.cycles if node is None or isinstance(node, Step) else self.charger.total(node)

    def _code(self) -> list[int]:
        """Bytes of code of each operation on a tile: of its kinds of vertex, and the most of its exchanges."""
        known: dict[int, int] = {}
        for row, node in enumerate(self.nodes):
            if self.like[row] == row and isinstance(node, Step):
                kinds = {name for cs in node.plan.sets for name in vertex_kind(cs.vertex).code}
                chip = self.charger.chip
                exchange = sum(cost.moved.code.max for cost in self.charger.plan(node).sets)
                known[row] = sum(chip.estimate_of(name).code_bytes for name in kinds) + exchange
        return [known.get(like, 0) for like in self.like]

    def _sets(self) -> dict[str, Table]:
        """The compute sets, and what of each lies on tiles."""
        rows: list[tuple] = []
        code: list[tuple] = []
        control = tuple(control_bytes(self.charger.chip, again) for again in (0, 1))
        none = self.charger.still.code
        for row, node in enumerate(self.nodes):
            if self.like[row] != row or not isinstance(node, Step):
                continue
            plan = self.charger.plan(node)
            held = bodies(node.plan, plan)
            for place, (cs, cost) in enumerate(zip(node.plan.sets, plan.sets, strict=True)):
                moved = cost.moved
                columns = self.columns.work(cs, cost), self.columns.add(moved.received)
                cycles = cost.compute, cost.sync, moved.exchange, moved.links, cost.busy
                sizes = cost.touched, cost.scratch, moved.received.total, moved.sent, moved.linked
                first, fields = cs.grid.first % cs.grid.tiles, len(cs.reads) + len(cs.writes)
                kept = (0, 0, 0, 0)  # of a turn like one before
                if place in held:
                    state = state_bytes(cs, 0)
                    kept = state, state_bytes(cs, 1) - state, control[0], control[1] - control[0]
                names, exchange = ", ".join(vertex_kind(cs.vertex).code), self.columns.add(held.get(place, none))
                code.append((len(rows), first, fields, names, *kept, exchange))
                rows.append((len(rows), row, place, cost.vertex, cost.vertices, *cycles, *sizes, *columns))
        names = ("id", "operation", "place", "vertex", "vertices", "compute", "sync", "exchange", "links", "busy")
        names += ("touched_bytes", "scratch_bytes", "received_bytes", "sent_bytes", "linked_bytes", "work", "received")
        about = ("id", "first", "fields", "codelets", "state_bytes", "state_again", "control_bytes", "control_again")
        return {"sets": _columns(names, rows), "code": _columns((*about, "exchange"), code)}

    def _codelets(self) -> Table:
        chip = self.charger.chip
        found = sorted(self.done.tiles.codelets().items())
        return _columns(
            ("ipu", "name", "bytes", "tiles"),
            [(ipu, name, chip.estimate_of(name).code_bytes, self.columns.add(on)) for (ipu, name), on in found],
        )

    # moments -------------------------------------------------------------------------------------------------

    def _moments(self) -> Table:
        line, moments = self.profile.timeline, self.done.live.moments
        last = len(self.nodes) - 1
        ends = {"begin": 0, "end": last}
        operation = [ends.get(m.kind, -1) if m.node is None else self.row[id(m.node)] for m in moments]
        lengths = {name: getattr(line, name) for name in ("start", "sync", "exchange", "compute", "host")}
        return {"operation": operation} | lengths | {"ipu": line.ipu, "depth": line.depth}

    @cached_property
    def loops(self) -> dict[int, tuple[Repeat, float]]:
        """Pipelined loops and where they start, by operation."""
        found: dict[int, tuple[Repeat, float]] = {}
        for moment, start in zip(self.done.live.moments, self.profile.timeline.start.tolist(), strict=True):
            node = moment.node
            if moment.kind == "enter" and isinstance(node, Repeat) and id(node) in self.charger.slots:
                found.setdefault(self.row[id(node)], (node, start))
        return found

    # memory --------------------------------------------------------------------------------------------------

    def _storages(self) -> dict[str, Table]:
        found, tensors, memory = storages(self.done), self.schedule.tensors, self.done.memory
        rows: list[tuple] = []
        known: dict[int, tuple[int, int]] = {}  # bytes of all tiles and of the fullest, by column
        for number, row in enumerate(found.rows):
            tensor = tensors.get(row.name)
            about = (tensor.source, str(tensor.type), tensor.kind) if tensor else ("", "", "")
            home = self.columns.add(row.column)
            if home not in known:
                known[home] = row.column.total, row.column.max
            total, most = known[home]
            sizes = total * row.copies, most * row.copies, row.copies
            maker = -1 if row.maker is None else self.row[id(row.maker)]
            when = row.first, row.last, int(row.always)
            rows.append((number, row.name, *about, row.category, *sizes, *when, row.ipu, maker, home))
        names = ("id", "name", "source", "type", "kind", "category", "bytes", "tile_bytes", "copies", "first", "last")
        names += ("always", "ipu", "operation", "home")
        table = _columns(names, rows)
        here = np.flatnonzero(found.address >= 0)
        ipu = np.array(table["ipu"], np.int64)[here]
        placements = {
            "tensor": here,
            "ipu": ipu,
            "tile": np.array(found.tiles)[ipu],
            "address": found.address[here],
            "bytes": found.held[here],
            "first": np.array(table["first"], np.int64)[here],
            "last": np.array(table["last"], np.int64)[here],
        }
        liveness = {"max": memory.curve_max, "mean": memory.curve_mean, **found.by_category}
        flow = flow_table(self.done.live, self.row, found.rows)
        return {"tensors": table, "flow": flow, "placements": placements, "liveness": liveness}

    def _tiles(self) -> Table:
        memory = self.done.memory
        ipus, tiles = memory.totals.shape
        table = {"ipu": np.repeat(np.arange(ipus), tiles), "tile": np.tile(np.arange(tiles), ipus)}
        return table | {"total": memory.totals.ravel()} | {n: column.ravel() for n, column in memory.always.items()}


def stable_keys(steps: Sequence[StepProfile]) -> list[str]:
    """A name for each step that another compile of the same program gives the same step.

    Module path, pass where it is not the forward one, operation (with or without a map behind it), and its place among
    equals in its function. The copies of an outlined layer on several stages share theirs.
    """
    places: dict[tuple, int] = {}
    found = []
    for step in steps:
        origin = step.origin
        phase = "" if origin.phase == "forward" else origin.phase
        key = "/".join(filter(None, (origin.module, phase, step.name.removeprefix("fused "))))
        place = places[step.function, key] = places.get((step.function, key), -1) + 1
        found.append(f"{key}/{place}")
    return found


def _calls(node: Node | None) -> TypeGuard[Call | Repeat]:
    return isinstance(node, Call | Repeat)


def _kind(node: Node | None, row: int) -> str:
    if node is None:
        return "end" if row else "begin"
    return "step" if isinstance(node, Step) else "repeat" if isinstance(node, Repeat) else "call"


def _columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return dict(zip(names, map(list, columns), strict=True))

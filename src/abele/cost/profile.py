"""The profile of a schedule on a system: the one record that reports draw from. Plain numbers and NumPy columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.charge import charged
from abele.charge.cycles import Charger, collective_bytes, streamed_bytes
from abele.charge.memory import TileMemory
from abele.charge.pipeline import Slots
from abele.charge.records import PARTS, Cycles
from abele.charge.spent import Spent, spent
from abele.cost.energy import StepWork, schedule_energy, uses_matrix_unit
from abele.cost.notes import notes_on
from abele.errors import Bug, InvalidOption
from abele.ir.graph import Operation, Origin, Value
from abele.ir.operation import OPERATIONS, flops, has
from abele.ir.types import DType
from abele.machine.energy import Energy
from abele.machine.system import System
from abele.schedule.liveness import Liveness
from abele.schedule.records import Function, Node, Repeat, Schedule, Step

SCHEMA = 1
"""Version of the JSON that ``Profile.to_json`` makes."""


@dataclass(frozen=True, slots=True)
class StepProfile:
    """One step of the program, or the copies of one call, or the host exchange at its ends.

    Attributes:
        name: the operation, ``fused matmul`` for one with a map behind it; ``call layer`` or ``repeat body`` for
            copies; ``begin`` and ``end``.
        function: the function that it stands in.
        origin: the user's line and module, stage, IPU and phase.
        times: how often one device iteration runs it.
        cycles: of one run.
        vertices, received, linked, flops: of one run on one replica; bytes over the exchange and over links.
        balance: mean over the tiles of an IPU of the time that their vertices take, as a share of the slowest's.
        types: result types, or operand types where there are none.
        stream, streamed: of a transfer with the host its stream, and the bytes of one run on one replica.
    """

    name: str
    function: str
    origin: Origin
    times: int
    cycles: Cycles
    vertices: int = 0
    received: int = 0
    linked: int = 0
    flops: int = 0
    balance: float = 0.0
    types: str = ""
    stream: str = ""
    streamed: int = 0

    def to_json(self) -> dict[str, Any]:
        o = self.origin
        place = {"file": o.file, "line": o.line, "module": o.module, "stage": o.stage, "ipu": o.ipu, "phase": o.phase}
        return {
            "name": self.name,
            "function": self.function,
            "origin": place,
            "times": self.times,
            "cycles": self.cycles.total,
            "cycles_by": self.cycles.as_dict(),
            "vertices": self.vertices,
            "bytes": self.received + self.linked,
            "exchange_bytes": self.received,
            "link_bytes": self.linked,
            "flops": self.flops,
            "balance": self.balance,
            "types": self.types,
            "stream": self.stream,
            "streamed_bytes": self.streamed,
        }


@dataclass(frozen=True, slots=True)
class Fold:
    """A repeat on the timeline: of its ``count`` turns only the first is drawn, from moment ``enter`` to ``exit``.

    ``slot`` and ``ramp`` describe a pipeline (``stages`` above 1): cycles of a full slot, and the slots, shorter ones,
    that it takes to fill and drain.
    """

    enter: int
    exit: int
    function: str
    count: int
    stages: int
    start: float
    length: float
    slot: float = 0.0
    ramp: int = 0


@dataclass(frozen=True)
class Timeline:
    """The line of moments that memory's curves share, as columns over moments.

    ``row`` indexes ``Profile.steps`` (−1: a moment of no cost); ``start`` is in cycles from the beginning; ``sync``,
    ``exchange`` (links included), ``compute`` and ``host`` are lengths, in the order in which they run.
    """

    row: np.ndarray
    start: np.ndarray
    sync: np.ndarray
    exchange: np.ndarray
    compute: np.ndarray
    host: np.ndarray
    ipu: np.ndarray
    depth: np.ndarray
    folds: tuple[Fold, ...]

    def to_json(self) -> dict[str, Any]:
        names = ("row", "start", "sync", "exchange", "compute", "host", "ipu", "depth")
        columns: dict[str, Any] = {name: getattr(self, name).tolist() for name in names}
        fields = ("enter", "exit", "function", "count", "stages", "start", "length", "slot", "ramp")
        return columns | {"folds": [{name: getattr(fold, name) for name in fields} for fold in self.folds]}


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Steps put together by operation or by source line: cycles of all their runs in one device iteration."""

    key: str
    steps: int
    times: int
    cycles: Cycles
    flops: int
    bytes: int

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "steps": self.steps,
            "times": self.times,
            "cycles": self.cycles.total,
            "cycles_by": self.cycles.as_dict(),
            "flops": self.flops,
            "bytes": self.bytes,
        }


@dataclass(frozen=True)
class Profile:
    """What one device iteration of a schedule costs on a system.

    Attributes:
        name, system, chip: of the program and the machine.
        tiles: of an IPU; ``ipus`` of a replica; ``replicas`` side by side.
        clock_hz: tile clock.
        samples: samples that one device iteration takes in, over all replicas.
        cycles: by kind; their sum is the time.
        steps: every distinct step, with its cycles for one run. In a pipeline steps of several IPUs overlap, so
            that they may add up to more than the time.
        memory, energy: of one replica's tiles; of all IPUs in use.
        flops: of all replicas; ``peak_flops`` of all IPUs in use, in the element type of the matrix products, or of the
            largest tensor where there are none.
        timeline: start and length of every step.
        notes: what is approximate, in words.
        spent: what advice weighs by.
    """

    name: str
    system: str
    chip: str
    tiles: int
    ipus: int
    replicas: int
    clock_hz: float
    samples: int
    cycles: Cycles
    steps: tuple[StepProfile, ...]
    memory: TileMemory
    energy: Energy
    flops: int
    peak_flops: float
    timeline: Timeline
    notes: tuple[str, ...]
    spent: Spent

    @property
    def seconds(self) -> float:
        """Time of one device iteration."""
        return self.cycles.total / self.clock_hz

    @property
    def seconds_per_sample(self) -> float:
        return self.seconds / self.samples

    @property
    def throughput(self) -> float:
        """Samples a second."""
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def peak_fraction(self) -> float:
        """Share of the peak flop/s of the IPUs in use that the program reaches."""
        return self.flops / (self.seconds * self.peak_flops) if self.seconds and self.peak_flops else 0.0

    def by_operation(self) -> tuple[Aggregate, ...]:
        """Cycles by operation, most first."""
        return _aggregate(self.steps, lambda step: step.name)

    def by_line(self) -> tuple[Aggregate, ...]:
        """Cycles by the user's source line (``file:line``), most first; the compiler's own steps under ``""``."""
        return _aggregate(self.steps, lambda s: f"{s.origin.file}:{s.origin.line}" if s.origin.file else "")

    def by_module(self) -> tuple[Aggregate, ...]:
        """Cycles by the user's module path, most first."""
        return _aggregate(self.steps, lambda step: step.origin.module)

    def to_json(self) -> dict[str, Any]:
        """Everything as plain lists, numbers and strings."""
        m = self.memory
        fields = ("tensor", "source", "kind", "type", "bytes", "total_bytes", "copies", "first", "last")
        fields += ("operation", "file", "line", "module")
        return {
            "schema": SCHEMA,
            "name": self.name,
            "system": self.system,
            "chip": self.chip,
            "tiles": self.tiles,
            "ipus": self.ipus * self.replicas,
            "ipus_per_replica": self.ipus,
            "replicas": self.replicas,
            "clock_hz": self.clock_hz,
            "samples": self.samples,
            "cycles": self.cycles.total,
            "cycles_by": self.cycles.as_dict(),
            "seconds": self.seconds,
            "seconds_per_sample": self.seconds_per_sample,
            "throughput": self.throughput,
            "flops": self.flops,
            "peak_flops": self.peak_flops,
            "peak_fraction": self.peak_fraction,
            "energy_joules": self.energy.joules,
            "energy": {"parts": dict(self.energy.parts), "scale": self.energy.scale, "basis": self.energy.basis},
            "tile_memory": {
                "limit": m.limit,
                "max": m.max,
                "mean": m.mean,
                "fits": m.fits,
                "gap": m.gap,
                "fullest_tile": m.fullest_tile,
                "fullest_ipu": m.fullest_ipu,
                "peak_step": m.peak_step,
                "categories": dict(m.categories),
                "totals": m.totals.tolist(),
                "always": {name: column.tolist() for name, column in m.always.items()},
                "curve": {"max": m.curve_max.tolist(), "mean": m.curve_mean.tolist()},
                "by_tensor": [{f: getattr(t, f) for f in fields} for t in m.by_tensor[:200]],
            },
            "steps": [step.to_json() for step in self.steps],
            "by_operation": [a.to_json() for a in self.by_operation()],
            "by_line": [a.to_json() for a in self.by_line()],
            "by_module": [a.to_json() for a in self.by_module()],
            "timeline": self.timeline.to_json(),
            "notes": list(self.notes),
        }


def cost(schedule: Schedule, system: System, *, samples: int = 1) -> Profile:
    """Charge a schedule: cycles, tile memory and energy of one device iteration.

    Args:
        schedule: obeys the rules; compiled for a chip with as many tiles as the system's.
        system: the machine.
        samples: samples of one device iteration, over all replicas.

    Raises:
        InvalidOption: the system has other tiles, or fewer IPUs, than the schedule needs.
    """
    used = schedule.ipus * schedule.replicas
    if schedule.tiles + schedule.io_tiles != system.chip.tiles:
        raise InvalidOption(
            f"The schedule {schedule.name!r} is for {schedule.tiles + schedule.io_tiles} tiles, the system "
            f"{system.name!r} has {system.chip.tiles} on an IPU",
            remedy="Compile it for this system.",
        )
    if used > system.ipus:
        raise InvalidOption(
            f"{schedule.name!r} needs {used} IPUs ({schedule.replicas} replicas of {schedule.ipus}), the system "
            f"{system.name!r} has {system.ipus}",
            remedy="Choose a larger system, or fewer replicas or stages.",
        )
    done = charged(schedule, system)
    live, charger, begin, end, total = done.live, done.charger, done.begin, done.end, done.cycles
    steps, rows = _steps(schedule, charger, begin, end)
    work = list(_work(schedule, charger, steps, rows))
    seconds = system.chip.seconds(total.total)
    dtype = _matrix_type(schedule)
    return Profile(
        schedule.name,
        system.name,
        system.chip.name,
        schedule.tiles,
        schedule.ipus,
        schedule.replicas,
        system.chip.clock_hz,
        samples,
        total,
        tuple(steps),
        done.memory,
        schedule_energy(system, seconds, work, schedule.replicas, used),
        int(sum(each.flops for each in work)) * schedule.replicas,
        system.chip.peak_flops(str(dtype)) * used,
        _timeline(live, charger, rows, begin, total),
        notes_on(schedule, system, live, charger.hidden[schedule.main.name].alone),
        spent(done),
    )


def _steps(
    schedule: Schedule, charger: Charger, begin: Cycles, end: Cycles
) -> tuple[list[StepProfile], dict[int | str, int]]:
    """A row for each node and the two ends, and the row of each by ``id`` (or ``begin``, ``end``)."""
    times, known = schedule.times_run(), dict[tuple, int]()
    main = schedule.main.name
    steps = [StepProfile("begin", main, Origin(), 1, begin)]
    found: dict[int | str, int] = {"begin": 0}
    for function, node in nodes_run(schedule, times):
        found[id(node)] = len(steps)
        runs = times[function.name]
        if isinstance(node, Step):
            steps.append(_step(node, function.name, runs, schedule, charger, known))
        else:
            word = "repeat" if isinstance(node, Repeat) else "call"
            name = f"{word} {node.function}"
            steps.append(StepProfile(name, function.name, node.origin, runs, charger.node(node)))
    found["end"] = len(steps)
    steps.append(StepProfile("end", main, Origin(), 1, end))
    return steps, found


def nodes_run(schedule: Schedule, times: Mapping[str, int]) -> Iterator[tuple[Function, Node]]:
    """Every node that runs, with its function, in the order of ``Profile.steps`` between ``begin`` and ``end``."""
    for function in schedule.all_functions():
        if times[function.name]:
            for node in function.nodes:
                yield function, node


def _step(
    step: Step, function: str, times: int, schedule: Schedule, charger: Charger, known: dict[tuple, int]
) -> StepProfile:
    plan, cycles = charger.plan(step), charger.node(step)
    compute = plan.cycles.compute * schedule.tiles
    shown = step.results or step.operands
    root = step.attributes.get("root") if step.operation == "fused" else None
    return StepProfile(
        f"fused {root}" if root else step.operation,
        function,
        step.origin,
        times,
        cycles,
        plan.vertices,
        plan.received,
        plan.linked + (step.results[0].type.bytes if has(step.operation, "transfer") else 0),
        _flops(step, known),
        plan.busy / compute if compute else 0.0,
        " ".join(str(use.type) for use in shown),
        str(step.attributes.get("stream", "")),
        sum(use.type.bytes for use in shown) if "stream" in step.attributes else 0,
    )


def _flops(step: Step, known: dict[tuple, int]) -> int:
    """Flops of a step by its operation's rule."""
    operands, results = tuple(u.type for u in step.operands), tuple(u.type for u in step.results)
    key = (step.operation, operands, results, tuple(step.attributes.items()))
    if key not in known:
        values = (tuple(Value(t) for t in operands), tuple(Value(t) for t in results))
        operation = Operation(step.operation, *values, step.attributes)
        if step.operation not in OPERATIONS:
            raise Bug(f"The schedule has a step {step.operation!r}, which is no registered operation")
        known[key] = flops(operation)
    return known[key]


def _work(
    schedule: Schedule, charger: Charger, steps: list[StepProfile], rows: dict[int | str, int]
) -> Iterable[StepWork]:
    yield StepWork(None, streamed=sum(charger.ends_bytes()))
    for _, step in schedule.steps():
        if id(step) in rows:
            row, plan = steps[rows[id(step)]], charger.plan(step)
            yield StepWork(
                step,
                row.flops * row.times,
                plan.touched * row.times,
                (plan.received - plan.linked) * row.times,
                (row.linked + collective_bytes(step, schedule.replicas)) * row.times,
                streamed_bytes(step) * row.times,
            )


def _matrix_type(schedule: Schedule) -> DType:
    """The shortest float that any product takes as operands; without products the type of the largest tensor."""
    types = {s.operands[0].type.dtype for _, s in schedule.steps() if s.operands and uses_matrix_unit(s)}
    if not types:
        largest = max((t.type for t in schedule.tensors.values()), key=lambda t: t.bytes, default=None)
        types = {largest.dtype} if largest is not None else set()
    return next((dtype for dtype in (DType.F143, DType.F152, DType.F16) if dtype in types), DType.F32)


def _timeline(live: Liveness, charger: Charger, rows: dict[int | str, int], begin: Cycles, total: Cycles) -> Timeline:
    count = len(live.moments)
    row, ipu, depth = np.full((3, count), -1)
    lengths = np.zeros((5, count))
    folds: list[Fold] = []
    open_: list[tuple[int, float, Node]] = []
    now = 0.0
    for i, moment in enumerate(live.moments):
        node, depth[i], cost_ = moment.node, moment.depth, Cycles()
        if moment.kind in ("begin", "end"):
            row[i] = rows[moment.kind]
            cost_ = begin if moment.kind == "begin" else Cycles()
        elif moment.kind == "exit":
            enter, start, opened = open_.pop()
            assert opened is node and node is not None and not isinstance(node, Step)
            length = charger.total(node).total
            now = start + length
            if isinstance(node, Repeat):
                slots = charger.slots.get(id(node), Slots(0.0, 0))
                sizes = (start, length, slots.length, slots.ramp)
                folds.append(Fold(enter, i, node.function, node.count, node.stages, *sizes))
        else:
            assert node is not None
            row[i], ipu[i], cost_ = rows[id(node)], node.origin.ipu, charger.node(node)
            if moment.kind == "enter":
                open_.append((i, now, node))
        lengths[:, i] = now, cost_.sync, cost_.exchange + cost_.links, cost_.compute, cost_.host
        now += cost_.total
    lengths[4, count - 1] = total.total - now
    start, sync, exchange, compute, host = lengths
    return Timeline(row, start, sync, exchange, compute, host, ipu, depth, tuple(folds))


def _aggregate(steps: Iterable[StepProfile], key: Callable[[StepProfile], str]) -> tuple[Aggregate, ...]:
    groups: dict[str, list[StepProfile]] = {}
    for step in steps:
        groups.setdefault(key(step), []).append(step)
    done = []
    for name, members in groups.items():
        sums = {part: sum(getattr(s.cycles, part) * s.times for s in members) for part in PARTS}
        done.append(
            Aggregate(
                name,
                len(members),
                sum(s.times for s in members),
                Cycles(**sums),
                sum(s.flops * s.times for s in members),
                sum((s.received + s.linked) * s.times for s in members),
            )
        )
    return tuple(sorted(done, key=lambda a: -a.cycles.total))

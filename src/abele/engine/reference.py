"""The reference executor: runs any schedule tile by tile in NumPy, and proves that plans do what they claim.

Every tile has memory of its own, filled with a poison value. A compute set first exchanges what its vertices read and
does not lie on their tile, then runs each vertex on its pieces, then stores what they wrote on the tile that wrote
it. Writing an element twice, reading one that nobody has written, or reading on a tile where it does not lie raises.
It counts vertices, and the bytes that every tile receives and sends. Meant for small machines: its time grows with
tiles, and it holds every tensor once for each tile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from abele.errors import Bug, InvalidOperand, Unsupported
from abele.ir.interpret import Host, evaluate_operation
from abele.ir.operation import has
from abele.ir.types import TensorType
from abele.ops.collectives.replicas import over_replicas
from abele.schedule.geometry import sees
from abele.schedule.layout import Layout
from abele.schedule.records import Access, Call, ComputeSet, Function, Repeat, Schedule, Step
from abele.schedule.vertex import Block, vertex_kind


@dataclass
class SetCount:
    """What one compute set did in one run: ``vertices`` run, and bytes ``received`` and ``sent``, ``int64[tiles]``.

    An element that several tiles receive is sent once. ``linked`` of the received bytes came from another IPU.
    """

    vertices: int
    received: np.ndarray
    sent: np.ndarray
    linked: int = 0


@dataclass
class StepCount:
    """One step of a function, how often it ran, and the counts of each of its compute sets in one run."""

    function: str
    step: Step
    times: int = 0
    sets: list[SetCount] = field(default_factory=list)


@dataclass
class ReferenceRun:
    """Results of a run: ``outputs[replica]`` in order, ``next_state[replica]`` by name, and counts of replica 0.

    ``copied`` holds the bytes that binding the operands and results of each function received, by its name.
    """

    outputs: list[tuple[np.ndarray, ...]]
    next_state: list[dict[str, np.ndarray]]
    counts: list[StepCount]
    copied: dict[str, int]


class _Held:
    """A tensor in the memories of the tiles of one IPU: values ``[tiles, size]``, who wrote each element, and in which
    of its homes (layouts) it lies."""

    def __init__(self, type: TensorType, tiles: int, ipu: int) -> None:
        self.type, self.ipu = type, ipu
        poison = np.nan if type.dtype.numpy.kind == "f" else type.dtype.numpy.type(1)
        self.values = np.full((tiles, type.size), poison, type.dtype.numpy)
        self.owner = np.full(type.size, -1)
        self.homes: list[Layout] = []
        self.home = np.full(type.size, -1)

    def put(self, value: np.ndarray, home: Layout) -> None:
        """Lay a whole value out in ``home``."""
        self.owner = owners(home)
        self.homes, self.home = [home], np.zeros(self.type.size, np.int64)
        self.values[self.owner, np.arange(self.type.size)] = value.astype(self.type.dtype.numpy).ravel()

    def get(self) -> np.ndarray:
        """The whole value, collected from the tiles that own its elements."""
        if (self.owner < 0).any():
            raise Bug("A tensor is taken as a whole before all of it is written")
        return self.values[self.owner, np.arange(self.type.size)].reshape(self.type.shape)


def owners(layout: Layout) -> np.ndarray:
    """The tile of each element of a tensor that lies in ``layout``, ``int64[size]``; ``Bug`` unless just one does."""
    owner = np.full(layout.shape, -1)
    for block in range(layout.grid.blocks):
        region = layout.region(block)
        if (owner[region] >= 0).any():
            raise Bug(f"Two tiles hold the same element of a tensor that lies in {layout}")
        owner[region] = layout.grid.tile(block)
    if (owner < 0).any():
        raise Bug(f"No tile holds some element of a tensor that lies in {layout}")
    return owner.ravel()


def run_reference(
    schedule: Schedule, inputs: Sequence[Sequence[np.ndarray]], hosts: Sequence[Host] | None = None
) -> ReferenceRun:
    """Run one device iteration.

    Args:
        schedule: the program.
        inputs: for each replica, the values of the parameters of main in order (data, state, hyper); those that
            ``load`` makes come from ``run_load``.
        hosts: for each replica, its streams; ``host_store`` appends to their ``outputs``.

    Raises:
        Bug: the schedule writes twice, reads what is not there, or leaves a result where its home is not.
    """
    hosts = hosts or [Host() for _ in range(schedule.replicas)]
    if len(inputs) != schedule.replicas or len(hosts) != schedule.replicas:
        raise InvalidOperand(f"{len(inputs)} lists of inputs and {len(hosts)} hosts for {schedule.replicas} replicas")
    run = _Run(schedule, hosts)
    for replica, values in enumerate(inputs):
        if len(values) != len(schedule.main.parameters):
            raise InvalidOperand(f"{len(values)} inputs for {len(schedule.main.parameters)} parameters")
        for name, value in zip(schedule.main.parameters, values, strict=True):
            run.new(replica, name).put(np.asarray(value), schedule.tensors[name].home)
    with np.errstate(all="ignore"):
        run.function(schedule.main)
    outputs = [tuple(memory[name].get() for name in schedule.main.results) for memory in run.memories]
    next_state = [
        {p.name: v for p, v in zip(schedule.output_ports, values, strict=False) if p.kind == "state"}
        for values in outputs
    ]
    return ReferenceRun(outputs, next_state, list(run.counts.values()), run.copied)


def run_load(schedule: Schedule, states: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The states that main reads and the schedule's ``load`` makes of others, by name; none where it has no ``load``.

    Args:
        schedule: the program.
        states: values of the weights by name; those that ``load`` does not read are ignored.

    Raises:
        InvalidOperand: a weight that ``load`` reads is not given.
        Bug: as ``run_reference``.
    """
    if schedule.load is None:
        return {}
    names = [port.name for port in schedule.load.input_ports]
    if missing := [name for name in names if name not in states]:
        raise InvalidOperand(f"{', '.join(missing)} is read when weights are loaded, and is not given")
    host = Host()  # replicas hold the same weights: one of them makes the values of all
    run_reference(replace(schedule.load, replicas=1), [[states[name] for name in names]], [host])
    types = {
        port.name: schedule.tensors[t].type
        for port, t in zip(schedule.input_ports, schedule.main.parameters, strict=True)
    }
    return {name: made[0].reshape(types[name].shape) for name, made in host.outputs.items()}


class _Run:
    def __init__(self, schedule: Schedule, hosts: Sequence[Host]) -> None:
        self.schedule, self.hosts = schedule, hosts
        self.memories: list[dict[str, _Held]] = [{} for _ in hosts]
        self.counts: dict[int, StepCount] = {}
        self.copied: dict[str, int] = {}

    def new(self, replica: int, name: str) -> _Held:
        """Fresh, poisoned memory for a tensor; what it held before is gone."""
        tensor = self.schedule.tensors[name]
        held = self.memories[replica][name] = _Held(tensor.type, self.schedule.tiles, tensor.ipu)
        return held

    def function(self, function: Function) -> None:
        for node in function.nodes:
            if isinstance(node, Step):
                self.step(function, node)
            else:
                self.control(node)

    def control(self, node: Call | Repeat) -> None:
        callee = self.schedule.functions[node.function]
        times = node.count if isinstance(node, Repeat) else 1
        self.bind(callee.name, node.operands, callee.parameters)
        for turn in range(times):
            if turn:
                self.bind(callee.name, callee.results, callee.parameters[: len(callee.results)])
            self.function(callee)
        self.bind(callee.name, callee.results if times else node.operands[: len(node.results)], node.results)

    def bind(self, callee: str, sources: Sequence[str], targets: Sequence[str]) -> None:
        """Copy tensors to others of the same type, all at once."""
        for replica, memory in enumerate(self.memories):
            values = [memory[source].get() for source in sources]
            for source, target, value in zip(sources, targets, values, strict=True):
                tensor = self.schedule.tensors[target]
                moved = memory[source].owner, memory[source].ipu
                held = self.new(replica, target)
                held.put(value, tensor.home)
                alike = moved[1] == held.ipu and (moved[0] == held.owner).all()
                if replica == 0 and not alike:
                    self.copied[callee] = self.copied.get(callee, 0) + tensor.type.bytes

    def step(self, function: Function, step: Step) -> None:
        count = self.counts.setdefault(id(step), StepCount(function.name, step))
        count.times += 1
        if not step.plan.sets:
            self.without_vertices(step)
            return
        for replica in range(len(self.memories)):
            sets = self.run_plan(replica, step)
            if replica == 0:
                count.sets = sets

    def without_vertices(self, step: Step) -> None:
        """Operations that no vertex does: streams, collectives, markers."""
        operands = [[memory[u.tensor].get() for u in step.operands] for memory in self.memories]
        attributes = step.attributes
        if step.operation == "host_load":
            made = [[host.load(str(attributes["stream"]))] for host in self.hosts]
        elif step.operation == "host_store":
            for host, (value,) in zip(self.hosts, operands, strict=True):
                host.store(str(attributes["stream"]), value.reshape(step.operands[0].type.shape))
            made = [[] for _ in self.hosts]
        elif has(step.operation, "collective"):
            firsts = [values[0].reshape(step.operands[0].type.shape) for values in operands]
            wide = [v.astype(np.float64) if v.dtype.kind == "f" else v for v in firsts]
            made = [[value] for value in over_replicas(step.operation, wide, attributes)]
        elif step.operation in ("checkpoint", "print_tensor", "remote_load", "remote_store", "transfer"):
            made = operands
        elif step.operation == "host_call":
            types = [use.type for use in step.results]
            made = [evaluate_operation("host_call", values, attributes, types) for values in operands]
        elif all(use.type.size == 0 for use in step.results):
            made = [[np.zeros(use.type.shape) for use in step.results] for _ in operands]
        else:
            raise Unsupported(
                f"The reference executor cannot run {step.operation}, whose plan has no vertices",
                where=step.origin.where,
            )
        for replica, values in enumerate(made):
            for use, value in zip(step.results, values, strict=True):
                self.new(replica, use.tensor).put(value, self.schedule.tensors[use.tensor].home)

    def run_plan(self, replica: int, step: Step) -> list[SetCount]:
        memory, ipu = self.memories[replica], step.origin.ipu
        for use in step.operands:
            if use.tensor not in memory:
                raise Bug(f"{step.operation} reads {use.tensor!r}, which is not made yet")
        names = {f"in{i}": memory[use.tensor] for i, use in enumerate(step.operands)}
        for i, use in enumerate(step.results):
            names[f"out{i}"] = self.new(replica, use.tensor)
        for i, type_ in enumerate(step.plan.temporaries):
            names[f"tmp{i}"] = _Held(type_, self.schedule.tiles, ipu)
        counts = [
            _run_set(cs, names, self.schedule.tiles, ipu, f"set {index} of {step.operation} ({cs.vertex})")
            for index, cs in enumerate(step.plan.sets)
        ]
        for i, (use, home) in enumerate(zip(step.results, step.plan.homes, strict=True)):
            if (names[f"out{i}"].owner != owners(home)).any():
                raise Bug(f"{step.operation} does not leave all of {use.tensor!r} where its home is")
        return counts


def _run_set(cs: ComputeSet, names: Mapping[str, _Held], tiles: int, ipu: int, label: str) -> SetCount:
    kind = vertex_kind(cs.vertex)
    blocks = range(cs.grid.blocks)
    count = SetCount(len(blocks), np.zeros(tiles, np.int64), np.zeros(tiles, np.int64))
    pieces = [[] for _ in blocks]
    written = {access.name for access in cs.writes}
    for access in cs.reads:
        held = names[access.name]
        sent = np.zeros(held.type.size, bool)
        for block in blocks:
            pieces[block].append(_read(access, held, block, ipu, written, label, sent, count))
        if not access.resident and held.ipu == ipu:
            np.add.at(count.sent, held.owner[sent], held.type.dtype.bytes)
    for access in cs.writes:
        if not access.renews:
            names[access.name].homes.append(access.layout)
    for block in blocks:
        parts = cs.grid.parts(block)
        steps = {a.name: (int(a.start(part)), int(a.stop(part))) for a, part in zip(cs.grid.axes, parts, strict=True)}
        reads = tuple(access.layout.region(block) for access in cs.reads)
        writes = tuple(access.layout.region(block) for access in cs.writes)
        made = kind.compute(Block(steps, reads, writes), pieces[block], cs.attributes)
        if len(made) != len(cs.writes):
            raise Bug(f"{label} makes {len(made)} pieces for {len(cs.writes)} writes")
        for access, piece in zip(cs.writes, made, strict=True):
            _write(access, names[access.name], block, np.asarray(piece), label)
    return count


def _read(
    access: Access,
    held: _Held,
    block: int,
    ipu: int,
    written: set[str],
    label: str,
    sent: np.ndarray,
    count: SetCount,
) -> np.ndarray:
    """The piece of one vertex: what does not lie on its tile is received from the tiles that own it."""
    region = access.layout.region(block)
    elements = np.arange(held.type.size).reshape(access.layout.shape)[region]
    owner, tile = held.owner[elements], access.layout.grid.tile(block)
    if (owner < 0).any():
        why = "which it writes itself" if access.name in written else "before all of it is written"
        raise Bug(f"{label} reads {access.name}, {why}")
    if access.resident and held.ipu == ipu:
        if (owner != tile).any():
            raise Bug(f"{label} calls {access.name} resident on tile {tile}, but it lies elsewhere")
    else:
        seen = np.array([sees(access.layout, home) for home in held.homes])
        own = (owner == tile) & seen[held.home[elements]] & (held.ipu == ipu)
        fetched = elements[~own]
        size = fetched.size * held.type.dtype.bytes
        count.received[tile] += size
        count.linked += size if held.ipu != ipu else 0
        sent[fetched] = True
    piece = held.values[owner, elements]
    return piece.astype(np.float64) if piece.dtype.kind == "f" else piece


def _write(access: Access, held: _Held, block: int, piece: np.ndarray, label: str) -> None:
    region = access.layout.region(block)
    elements = np.arange(held.type.size).reshape(access.layout.shape)[region]
    if piece.shape != elements.shape:
        raise Bug(f"{label} makes {list(piece.shape)} of {access.name} for a region of {list(elements.shape)}")
    tile = access.layout.grid.tile(block)
    if (held.owner[elements] != (tile if access.renews else -1)).any():
        raise Bug(f"{label} writes elements of {access.name} {'elsewhere' if access.renews else 'twice'}")
    held.values[tile, elements] = piece.astype(held.type.dtype.numpy)
    held.owner[elements] = tile
    held.home[elements] = held.homes.index(access.layout)

"""Lowering: a graph becomes the schedule, operation by operation, with the plans of their families.

Each function is lowered once, where it is first called, with the homes of that caller's operands. A weight lies
where the first operation that reads it wants it: until then its home is undecided. Reshapes are views and leave no
step. Every distinct question is planned once, so the time grows with the distinct operations only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from abele.compile.choose import Chooser
from abele.compile.passes.hoist import LOAD
from abele.errors import Bug, InvalidOption
from abele.ir.graph import Graph, Operation, Port, Value
from abele.ir.operation import has
from abele.ir.rules import CONTROL
from abele.ir.types import TensorType
from abele.machine.chip import Chip
from abele.machine.system import System
from abele.ops.plans.layouts import BLOCK_BYTES, among_readers
from abele.ops.plans.planning import PlanOptions, Question
from abele.schedule.geometry import near, shared_out
from abele.schedule.layout import Layout, spread
from abele.schedule.records import Call, Function, Node, Plan, Repeat, Schedule, Step, Tensor, Use

PLACES = 32
"""Tiles at which small results may start: spread out, yet so few that equal operations often are one question."""


@dataclass
class _Draft:
    """A tensor whose home may still be undecided."""

    name: str
    type: TensorType
    kind: str
    home: Layout | None
    ipu: int
    source: str = ""


@dataclass
class _Lowering:
    graph: Graph
    chip: Chip
    options: PlanOptions
    drafts: dict[str, _Draft] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    starts: dict[tuple[TensorType, Layout], int] = field(default_factory=dict)
    cursor: int = 0

    def __post_init__(self) -> None:
        self.chooser = Chooser(self.chip)

    # tensors ------------------------------------------------------------------------------------------------

    def draft(self, function: str, type: TensorType, kind: str, home: Layout | None, ipu: int, source="") -> str:
        name = f"{function}.{len(self.drafts)}"
        self.drafts[name] = _Draft(name, type, kind, home, ipu, source)
        return name

    def settle(self, name: str) -> Layout:
        """The home of a tensor; one that nothing decided is spread evenly."""
        draft = self.drafts[name]
        if draft.home is None:
            draft.home = spread(draft.type.size, self.chip.tiles, _grain(draft.type))
        return draft.home

    # functions ----------------------------------------------------------------------------------------------

    def function(self, graph: Graph, parameters: list[str]) -> Function:
        uses = {v: Use(p, v.type) for v, p in zip(graph.inputs, parameters, strict=True)}
        nodes: list[Node] = []

        for op in graph.operations:
            if has(op, "view"):
                uses[op.result] = Use(uses[op.operands[0]].tensor, op.result.type)
            elif op.name in CONTROL:
                nodes.append(self.control(graph.name, op, uses))
            else:
                nodes.append(self.step(graph.name, op, uses))
        results = tuple(uses[v].tensor for v in graph.outputs)
        return Function(graph.name, tuple(parameters), results, tuple(nodes))

    def control(self, where: str, op: Operation, uses: dict[Value, Use]) -> Node:
        name = str(op.attributes["function"])
        callee = self.graph.functions[name]
        actuals = tuple(uses[v].tensor for v in op.operands)
        if name not in self.functions:
            # What a loop carries lies where its body wants it; everything else lies as the first caller has it.
            carried = len(op.results) if op.name == "repeat" else 0
            parameters = []
            for i, (value, actual) in enumerate(zip(callee.inputs, actuals, strict=True)):
                given = self.drafts[actual]
                home = None if i < carried else given.home
                # A called function works on its own IPU: what comes from another crosses once, at the call.
                ipu = given.ipu if op.name == "repeat" else op.origin.ipu
                kind = "remote" if given.kind == "remote" and op.name == "repeat" else "argument"
                parameters.append(self.draft(name, value.type, kind, home, ipu, given.source))
            self.functions[name] = self.function(callee, parameters)
            for parameter in parameters:
                self.settle(parameter)
        function = self.functions[name]
        for parameter, actual in zip(function.parameters, actuals, strict=True):
            if self.drafts[actual].home is None:
                self.drafts[actual].home = self.settle(parameter)
        results = []
        for value, result in zip(op.results, function.results, strict=True):
            results.append(self.draft(where, value.type, "value", self.settle(result), self.drafts[result].ipu))
            uses[value] = Use(results[-1], value.type)
        if op.name == "call":
            return Call(name, actuals, tuple(results), op.origin)
        count, stages = int(op.attributes["count"]), int(op.attributes.get("stages", 1))
        pipeline = str(op.attributes.get("pipeline", "grouped"))
        return Repeat(name, count, actuals, tuple(results), stages, op.origin, pipeline)

    # steps --------------------------------------------------------------------------------------------------

    def step(self, where: str, op: Operation, uses: dict[Value, Use]) -> Step:
        operands = tuple(uses[v] for v in op.operands)
        plan = self.plan(op, operands)
        self.adopt_homes(plan, operands)
        results = []
        kind = "remote" if op.name == "remote_store" else "value"
        for value, home in zip(op.results, plan.homes, strict=True):
            name = self.draft(where, value.type, kind, home, op.origin.ipu)
            results.append(Use(name, value.type))
            uses[value] = results[-1]
        return Step(op.name, operands, tuple(results), op.attributes, plan, op.origin)

    def plan(self, op: Operation, operands: tuple[Use, ...]) -> Plan:
        question = self.question(op, [self.drafts[u.tensor].home for u in operands])
        plan = self.chooser.best(question)
        if len(plan.homes) != len(op.results):
            raise Bug(f"The plan of {op.name} leaves {len(plan.homes)} results, it has {len(op.results)}")
        if self.small(op) and plan.sets:
            tiles = self.chip.tiles
            step = -(-tiles // PLACES)
            self.cursor = (self.cursor + -(-plan.sets[-1].grid.blocks // step) * step) % (step * (tiles // step))
        return plan

    def small(self, op: Operation) -> bool:
        """Whether an operation leaves most tiles idle: then it starts where the last such one ended."""
        return max((v.type.size for v in (*op.results, *op.operands)), default=0) < self.chip.tiles * 8

    def question(self, op: Operation, homes: Sequence[Layout | None]) -> Question:
        """What the family of an operation is asked when its operands lie so."""
        return Question(
            op.name,
            tuple(op.attributes.items()),
            tuple(v.type for v in op.operands),
            tuple(v.type for v in op.results),
            tuple(homes),
            self.chip,
            self.cursor if self.small(op) else 0,
            self.options,
        )

    def shared(self, type: TensorType, read: Layout) -> Layout | None:
        """The home of a tensor that several tiles read alike: shared out between them, where that leaves whole blocks.
        Small ones of a kind lie alike, other kinds elsewhere."""
        out = shared_out(read)
        if out is not None and type.bytes >= BLOCK_BYTES * out.grid.blocks:
            return out
        home = among_readers(read, self.chip, type.dtype)
        if home is None or 2 * home.grid.blocks > self.chip.tiles:
            return home
        if (type, home) not in self.starts:
            self.starts[type, home] = self.cursor
            self.cursor = (self.cursor + home.grid.blocks) % self.chip.tiles
        return replace(home, grid=replace(home.grid, first=self.starts[type, home]))

    def adopt_homes(self, plan: Plan, operands: tuple[Use, ...]) -> None:
        """An operand that lay nowhere lies from now on where the plan says, else where it is read without exchange, or
        with little: in the parts that blocks read, or among those who read the same."""
        for use, wanted in zip(operands, plan.operands, strict=False):
            if self.drafts[use.tensor].home is None:
                self.drafts[use.tensor].home = wanted
        for compute_set in plan.sets:
            for access in compute_set.reads:
                if access.name.startswith("in"):
                    draft = self.drafts[operands[int(access.name[2:])].tensor]
                    if draft.home is None and access.resident:
                        draft.home = access.layout
        for compute_set in plan.sets:
            for access in compute_set.reads:
                if access.name.startswith("in"):
                    draft = self.drafts[operands[int(access.name[2:])].tensor]
                    if draft.home is None:
                        draft.home = near(access.layout) or self.shared(draft.type, access.layout)
        for use in operands:
            self.settle(use.tensor)


def _grain(type: TensorType) -> int:
    """Elements of 8 bytes, the unit in which tiles load and store."""
    return max(1, 8 // type.dtype.bytes)


def lower(
    graph: Graph, system: System, *, replicas: int = 1, options: PlanOptions | None = None, io_tiles: int = 0
) -> Schedule:
    """The schedule of a graph on a system.

    Args:
        graph: the program; composites without a plan must have been expanded.
        system: the machine; a replica takes as many of its IPUs as the graph's origins name.
        replicas: copies of the program that run side by side.
        options: what the user asks of all plans.
        io_tiles: tiles of every IPU that are set aside for transfers; plans have the others.
    """
    chip = system.chip
    if not 0 <= io_tiles < chip.tiles:
        raise InvalidOption(f"{io_tiles} of {chip.tiles} tiles are set aside for transfers", remedy="Leave some.")
    computing = chip.derive(chip.name, tiles=chip.tiles - io_tiles) if io_tiles else chip
    load = graph.functions.get(LOAD)
    graph = graph.replace(functions={n: f for n, f in graph.functions.items() if n != LOAD})
    ipus = 1 + max((op.origin.ipu for g in graph.all_graphs() for op in g.operations), default=0)
    work = _Lowering(graph, computing, options or PlanOptions())
    first_reader, loaded = _first_readers(graph), _loaded_inputs(graph)

    def kind(value: Value, port: Port) -> str:
        return "remote" if value in loaded else port.kind

    parameters = [
        work.draft("main", v.type, kind(v, port), None, first_reader.get(v, 0), port.name)
        for v, port in zip(graph.inputs, graph.input_ports, strict=True)
    ]
    main = work.function(graph.replace(name="main"), parameters)
    tensors = {
        d.name: Tensor(d.name, d.type, d.kind, work.settle(d.name), d.ipu, d.source) for d in work.drafts.values()
    }
    return Schedule(
        graph.name,
        system.name,
        computing.tiles,
        ipus,
        replicas,
        tensors,
        main,
        work.functions,
        graph.input_ports,
        graph.output_ports,
        None if load is None else lower(load, system, replicas=replicas, options=options, io_tiles=io_tiles),
        io_tiles,
    )


def _loaded_inputs(graph: Graph) -> set[Value]:
    """The inputs that ``remote_load`` alone reads, in the bodies of loops too: they lie in streaming memory."""

    def of(inside: Graph) -> set[Value]:
        users = inside.users()
        return {v for v in inside.inputs if v in users and all(loads(op, v) for op in users[v])}

    def loads(op: Operation, value: Value) -> bool:
        if op.name != "repeat" or value in op.operands[: len(op.results)]:
            return op.name == "remote_load"
        body = graph.functions[str(op.attributes["function"])]
        if body.name not in known:
            known[body.name] = of(body)
        return all(p in known[body.name] for p, v in zip(body.inputs, op.operands, strict=True) if v == value)

    known: dict[str, set[Value]] = {}
    return of(graph)


def _first_readers(graph: Graph) -> Mapping[Value, int]:
    """The IPU of the operation that reads each graph input first (through calls)."""

    def of(g: Graph) -> dict[Value, int]:
        found: dict[Value, int] = {}
        for op in g.operations:
            inner: dict[Value, int] = {}
            if op.name in CONTROL:
                callee = graph.functions[str(op.attributes["function"])]
                below = done.get(callee.name)
                if below is None:
                    below = done[callee.name] = [of(callee)]
                inner = {a: below[0].get(v, op.origin.ipu) for v, a in zip(callee.inputs, op.operands, strict=True)}
            for value in op.operands:
                found.setdefault(value, inner.get(value, op.origin.ipu))
        return found

    done: dict[str, list[dict[Value, int]]] = {}
    return of(graph)

"""Offload: weights and activations wait in streaming memory, and come to the tiles where they are read.

Before: a weight is a state on the tiles, and what the backward phase reads of the forward lies there in between. After:
``remote_load`` operations bring a weight for each part of the program that reads it and ``remote_store`` sends its next
value back; an activation is stored behind the operation that makes it, and loaded where it is read later.

A part is one module in one phase of the step; in phased execution it is a whole phase of the model. Where transfers
overlap with compute, what a part reads is loaded while the part before it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from abele.errors import InvalidOption, suggest
from abele.ir.graph import Graph, Operation, Value
from abele.ir.operation import has

PHASED = ("", "serial", "parallel")
"""Phased execution: none; all phases on the same IPUs; or neighbouring phases on two groups of IPUs by turns, so that
one group loads and stores while the other computes."""

LEAST_ELEMENTS = 2
"""Smaller tensors stay on chip: PopTorch's default of ``minElementsForOffChip``."""

Part = tuple[str, int, str]
"""Phase of the step, phase or stage of the model, module."""


@dataclass(frozen=True)
class Phases:
    """Place the phases of a model that was split into stages: all on one IPU, or by turns on two.

    Attributes:
        kind: ``serial`` or ``parallel``.
    """

    kind: str
    name: str = "phases"

    def run(self, graph: Graph) -> Graph:
        ipus = 2 if self.kind == "parallel" else 1
        operations = [replace(op, origin=replace(op.origin, ipu=op.origin.stage % ipus)) for op in graph.operations]
        return graph.replace(operations=tuple(operations))


@dataclass(frozen=True)
class Offload:
    """Move weights and activations to streaming memory.

    Attributes:
        weights, activations: which; phased execution wants both.
        least: elements from which on a tensor is moved.
        phased: one of ``PHASED``; stages of the graph's origins are the phases.
        overlap: transfers run beside compute, on tiles of their own (or while another group of IPUs computes).
    """

    weights: bool = False
    activations: bool = False
    least: int = LEAST_ELEMENTS
    phased: str = ""
    overlap: bool = False
    name: str = "offload"

    def __post_init__(self) -> None:
        if self.phased not in PHASED:
            remedy = suggest(self.phased, PHASED)
            raise InvalidOption(f"There is no phased execution {self.phased!r}", remedy=remedy)

    def run(self, graph: Graph) -> Graph:
        work = _Offloading(self, graph)
        states = {}
        if self.weights:
            users = graph.users()
            states = {
                v: name
                for name, v in graph.inputs_of("state").items()
                if v.type.size >= self.least and v.dtype.is_float and not _is_remote(users.get(v, ()))
            }
            states = {v: name for v, name in states.items() if not name.startswith("optimiser.")}
        main = work.rewritten(graph, set(states))
        return self._stored(main, set(states.values())).replace(functions=work.functions)

    def _stored(self, graph: Graph, names: set[str]) -> Graph:
        """The graph with the next values of these states sent back."""
        outputs, operations = list(graph.outputs), list(graph.operations)
        made = graph.producers()
        for i, (value, port) in enumerate(zip(graph.outputs, graph.output_ports, strict=True)):
            if port.kind == "state" and port.name in names and value in made:
                outputs[i] = Value(value.type)
                origin = replace(made[value].origin, file="", line=0)
                operations.append(Operation("remote_store", (value,), (outputs[i],), self.attributes(), origin))
        return graph.replace(operations=tuple(operations), outputs=tuple(outputs))

    def attributes(self) -> dict[str, bool]:
        """Of the operations that move."""
        return {"overlap": self.overlap}

    def part(self, op: Operation) -> Part:
        """The part of the program that an operation belongs to."""
        o = op.origin
        return (o.phase, o.stage, "") if self.phased else (o.phase, o.stage, o.module)


@dataclass
class _Offloading:
    """One run of the pass: functions rewritten so far."""

    options: Offload
    graph: Graph
    functions: dict[str, Graph] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.functions = dict(self.graph.functions)

    def rewritten(self, graph: Graph, remote: set[Value]) -> Graph:
        """A graph in which ``remote`` inputs lie in streaming memory. Called functions get theirs on the tiles."""
        options = self.options
        for op in graph.operations:
            if op.name == "repeat":  # its body brings what it reads
                body = self.functions[str(op.attributes["function"])]
                passed = {p for p, v in zip(body.inputs, op.operands, strict=True) if v in remote}
                self.functions[body.name] = self.rewritten(body, passed)
        moved = self._activations(graph) if options.activations else {}
        parts = _Parts(graph, options)
        loads: dict[int, list[Operation]] = {}
        loaded: dict[tuple[Value, Part], Value] = {}
        stored = {value: Value(value.type) for value in moved}
        operations: list[tuple[int, Operation]] = []
        for at, op in enumerate(graph.operations):
            part, operands = options.part(op), []
            for value in op.operands:
                far = value in remote or (value in moved and part in moved[value])
                if not far or op.name == "repeat":
                    operands.append(value)
                    continue
                if (value, part) not in loaded:
                    new = loaded[value, part] = Value(value.type)
                    origin = replace(op.origin, file="", line=0)
                    load = Operation("remote_load", (stored.get(value, value),), (new,), options.attributes(), origin)
                    made = parts.made.get(value, -1)
                    loads.setdefault(max(parts.issue(part, at), made + 1), []).append(load)
                operands.append(loaded[value, part])
            operations.append((at, op if tuple(operands) == op.operands else replace(op, operands=tuple(operands))))
        done: list[Operation] = []
        for at, op in operations:
            done += loads.get(at, ())
            done.append(op)
            for value in op.results:
                if value in stored:
                    origin = replace(op.origin, file="", line=0)
                    done.append(Operation("remote_store", (value,), (stored[value],), options.attributes(), origin))
        return graph.replace(operations=tuple(done))

    def _activations(self, graph: Graph) -> Mapping[Value, set[Part]]:
        """The values that leave the tiles, and the parts that load them: those of the backward phase, and in phased
        execution all other phases, but for the turn from the last phase forward to the first backward."""
        last = max((op.origin.stage for op in graph.operations), default=0)
        part_of: dict[Value, Part] = {}
        found: dict[Value, set[Part]] = {}
        for op in graph.operations:
            part = self.options.part(op)
            for value in op.operands:
                made = part_of.get(value)
                if made is None or value.type.size < self.options.least:
                    continue
                if self.options.phased:
                    turn = (made[1], made[0]) == (last, "forward") and (part[1], part[0]) == (last, "backward")
                    apart = part != made and not turn
                else:
                    apart = made[0] == "forward" and part[0] != "forward"
                if apart:
                    found.setdefault(value, set()).add(part)
            if op.name != "repeat" and not has(op, "constant") and not has(op, "remote"):
                part_of.update(dict.fromkeys(op.results, part))
        return found


class _Parts:
    """Where the parts of a graph begin, and where what they read is loaded."""

    def __init__(self, graph: Graph, options: Offload) -> None:
        self.options = options
        self.made = {v: i for i, op in enumerate(graph.operations) for v in op.results}
        self.start: dict[Part, int] = {}
        for i, op in enumerate(graph.operations):
            self.start.setdefault(options.part(op), i)
        order = sorted(self.start, key=lambda part: self.start[part])
        self.before = dict(zip(order[1:], order, strict=False))

    def issue(self, part: Part, reader: int) -> int:
        """Position of the operation before which a part's operands are loaded for ``reader``."""
        if self.options.overlap:
            return self.start[self.before.get(part, part)]
        return self.start[part] if self.options.phased else reader


def _is_remote(users: Iterable[Operation]) -> bool:
    """Whether a state lies in streaming memory already."""
    return {op.name for op in users} == {"remote_load"}

"""Hoisting: what depends on weights alone is computed once, when they are loaded, and not in every step.

Before: scaled or transposed weights, folded statistics, position tables … among the operations of the step. After:
they are states named ``hoisted.N.weight``, and the function ``load`` makes them from the weights. A weight that
only ``load`` reads does not lie on the tiles at all.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace

from abele.ir.builder import Builder
from abele.ir.graph import Graph, Operation, Port, Value
from abele.ir.operation import has, lookup
from abele.ir.rules import CONTROL

LOAD = "load"
"""Name of the function that makes the hoisted states: it reads states and stores to streams of their names."""
_SLACK = 1 << 10


@dataclass(frozen=True)
class Hoist:
    """Move operations on states that the program never changes into ``load``.

    What stands at the border and makes more than it reads (an ``expand``) stays: it would take tile memory for good.
    """

    name: str = "hoist"

    def run(self, graph: Graph) -> Graph:
        changed = graph.outputs_of("state")
        fixed = {v for name, v in graph.inputs_of("state").items() if name not in changed and name != "seed"}
        constants: dict[Value, object] = {}
        moved: dict[Operation, None] = {}
        known: dict[tuple, Operation] = {}
        same: dict[Value, Value] = {}
        operations = []
        for op in graph.operations:
            if any(v in same for v in op.operands):
                op = replace(op, operands=tuple(same.get(v, v) for v in op.operands))
            if has(op, "constant"):
                constants[op.result] = op.name, tuple(op.attributes.items())
            elif _can_move(op, fixed, constants):
                operands = tuple(constants.get(v, v) for v in op.operands)
                key = op.name, operands, tuple(op.attributes.items()), op.origin.ipu, op.origin.stage
                first = known.setdefault(key, op)
                if first is not op:  # kept once: a state of its own for each would fill the tiles
                    same.update(zip(op.results, first.results, strict=True))
                    continue
                moved[op] = None
                fixed.update(op.results)
            operations.append(op)
        outputs = tuple(same.get(v, v) for v in graph.outputs)
        given, graph = graph, graph.replace(operations=tuple(operations), outputs=outputs)
        wanted = _wanted(graph, moved)
        while larger := [op for op in moved if _grows(op) and any(v in wanted for v in op.results)]:
            moved = _without(moved, larger)
            wanted = _wanted(graph, moved)
        if not wanted:
            return given
        names = _names(graph, moved, wanted)
        ports = tuple(Port("state", name) for name in names)
        kept = tuple(op for op in graph.operations if op not in moved)
        inputs = {"inputs": (*graph.inputs, *wanted), "input_ports": (*graph.input_ports, *ports)}
        main = graph.replace(operations=kept, **inputs)
        load = _load(graph, moved, dict(zip(names, wanted, strict=True)))
        return _without_unread(main).replace(functions={**graph.functions, LOAD: load})


def _can_move(op: Operation, fixed: set[Value], constants: Container[Value]) -> bool:
    if op.name in CONTROL or lookup(op.name).effect or has(op, "random"):
        return False
    return any(v in fixed for v in op.operands) and all(v in fixed or v in constants for v in op.operands)


def _grows(op: Operation) -> bool:
    return sum(v.type.bytes for v in op.results) > sum(v.type.bytes for v in op.operands) + _SLACK


def _without(moved: dict[Operation, None], staying: list[Operation]) -> dict[Operation, None]:
    """Those that move where ``staying`` do not, nor what reads these."""
    rest: dict[Operation, None] = {}
    apart: set[Value] = set()
    for op in moved:
        if op in staying or any(v in apart for v in op.operands):
            apart.update(op.results)
        else:
            rest[op] = None
    return rest


def _wanted(graph: Graph, moved: dict[Operation, None]) -> list[Value]:
    """What the operations that stay read of those that move."""
    read = {v for op in graph.operations if op not in moved for v in op.operands} | set(graph.outputs)
    return [v for op in moved for v in op.results if v in read]


def _names(graph: Graph, moved: dict[Operation, None], wanted: list[Value]) -> list[str]:
    """``hoisted.N.weight`` after the largest state that each comes from, so that a report tells what it is."""
    origins = {v: (v.type.bytes, name) for name, v in graph.inputs_of("state").items()}
    for op in moved:
        origins.update(dict.fromkeys(op.results, max(origins[v] for v in op.operands if v in origins)))
    return [f"hoisted.{i}.{origins[v][1]}" for i, v in enumerate(wanted)]


def _load(graph: Graph, moved: dict[Operation, None], wanted: dict[str, Value]) -> Graph:
    needed = {v for op in moved for v in op.operands}
    builder = Builder(LOAD)
    for value, port in zip(graph.inputs, graph.input_ports, strict=True):
        if value in needed:
            builder.inputs.append(value)
            builder.input_ports.append(port)
    builder.operations = [op for op in graph.operations if has(op, "constant") and op.result in needed] + list(moved)
    for name, value in wanted.items():
        builder.emit("host_store", (value,), {"stream": name})
    return builder.finish(())


def _without_unread(graph: Graph) -> Graph:
    """Drop the state inputs that nothing reads any more."""
    read = {v for op in graph.operations for v in op.operands} | set(graph.outputs)
    pairs = zip(graph.inputs, graph.input_ports, strict=True)
    kept = [(v, p) for v, p in pairs if v in read or p.kind != "state"]
    return graph.replace(inputs=tuple(v for v, _ in kept), input_ports=tuple(p for _, p in kept))

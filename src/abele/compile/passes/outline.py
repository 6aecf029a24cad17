"""Outlining: layers that are alike become calls of one function, compiled once.

Before: the operations of ``layer.0``, ``layer.1`` … one after another. After: a function with the operations of one of
them, and a call for each. Code, compile time and plans then do not grow with the number of layers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from abele.compile.passes.layers import layer_of, runs
from abele.ir.graph import Graph, Operation, Value


@dataclass(frozen=True)
class Outline:
    """Outline runs of at least ``least`` operations that stand at least twice."""

    least: int = 4
    name: str = "outline"

    def run(self, graph: Graph) -> Graph:
        groups: dict[tuple, list[_Run]] = defaultdict(list)
        for key, start, stop in runs(graph.operations):
            if key is not None and stop - start >= self.least:
                found = _Run(graph.operations[start:stop], start)
                groups[key[0], found.signature].append(found)
        repeated = [group for group in groups.values() if len(group) > 1]
        if not repeated:
            return graph
        readers = _outside_readers(graph)
        functions = dict(graph.functions)
        calls: dict[int, tuple[int, Operation]] = {}
        for group in repeated:
            positions = sorted({p for run in group for p in run.results_read(readers)})
            name = _fresh(group[0].name, functions)
            functions[name] = group[0].function(name, positions)
            for run in group:
                calls[run.start] = (run.stop, run.call(name, positions))
        operations, at = [], 0
        while at < len(graph.operations):
            if at in calls:
                at, call = calls[at]
                operations.append(call)
            else:
                operations.append(graph.operations[at])
                at += 1
        return graph.replace(operations=tuple(operations), functions=functions)


class _Run:
    """One layer: its operations, with outside operands and results numbered in order of appearance."""

    def __init__(self, operations: Sequence[Operation], start: int) -> None:
        self.operations, self.start, self.stop = operations, start, start + len(operations)
        self.results: list[Value] = [v for op in operations for v in op.results]
        inside = {v: i for i, v in enumerate(self.results)}
        outside: dict[Value, int] = {}
        described = []
        for op in operations:
            operands = tuple(
                inside[v] if v in inside else -1 - outside.setdefault(v, len(outside)) for v in op.operands
            )
            module = layer_of(op.origin.module)
            where = (module[2] if module else "", op.origin.stage, op.origin.ipu, op.origin.phase)
            described.append((op.name, operands, tuple(op.attributes.items()), where))
        self.parameters = list(outside)
        self.signature = (tuple(described), tuple(v.type for v in self.parameters))

    @property
    def name(self) -> str:
        prefix = layer_of(self.operations[0].origin.module)
        return (prefix[0].replace(".", "_") if prefix and prefix[0] else "layer") or "layer"

    def results_read(self, readers: dict[Value, set[int]]) -> list[int]:
        """Positions of the results that something outside this run reads."""
        mine = set(range(self.start, self.stop))
        return [i for i, v in enumerate(self.results) if readers.get(v, set()) - mine]

    def function(self, name: str, positions: list[int]) -> Graph:
        """A function with these operations; the number in the module path becomes ``*``."""
        mapping = {v: Value(v.type) for v in (*self.parameters, *self.results)}
        operations = []
        for op in self.operations:
            module = layer_of(op.origin.module)
            path = ".".join(p for p in (module[0], "*", module[2]) if p) if module else op.origin.module
            operations.append(
                Operation(
                    op.name,
                    tuple(mapping[v] for v in op.operands),
                    tuple(mapping[v] for v in op.results),
                    op.attributes,
                    replace(op.origin, module=path),
                )
            )
        inputs = tuple(mapping[v] for v in self.parameters)
        outputs = tuple(mapping[self.results[i]] for i in positions)
        return Graph(name, inputs, tuple(operations), outputs)

    def call(self, name: str, positions: list[int]) -> Operation:
        module = layer_of(self.operations[0].origin.module)
        path = ".".join(p for p in module[:2] if p) if module else ""
        origin = replace(self.operations[0].origin, module=path)
        results = tuple(self.results[i] for i in positions)
        return Operation("call", tuple(self.parameters), results, {"function": name}, origin)


def _outside_readers(graph: Graph) -> dict[Value, set[int]]:
    """Positions of the operations that read each value; an output of the graph is read at -1."""
    found: dict[Value, set[int]] = {}
    for i, op in enumerate(graph.operations):
        for value in op.operands:
            found.setdefault(value, set()).add(i)
    for value in graph.outputs:
        found.setdefault(value, set()).add(-1)
    return found


def _fresh(name: str, taken) -> str:
    names = (name, *(f"{name}.{i}" for i in range(2, 10_000)))
    return next(n for n in names if n not in taken)

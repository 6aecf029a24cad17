"""Recomputation: the backward phase computes forward values again instead of keeping them in memory.

Before: backward operations read values of the forward phase, which live until then. After: they read clones that start
from checkpoints (``checkpoint`` operations that the user placed), inputs, and what must not run twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from abele.ir.graph import Graph, Operation, Value
from abele.ir.operation import has, lookup
from abele.ir.rules import CONTROL


@dataclass(frozen=True)
class Recompute:
    """Clone forward operations into the backward phase, where a graph has checkpoints.

    What is kept: graph inputs, results of ``checkpoint``, of calls, of operations with effects, and of random numbers.
    Each clone stands just before its first reader in the backward phase, so that it lives briefly.
    """

    name: str = "recompute"

    def run(self, graph: Graph) -> Graph:
        functions = {name: self.rewritten(f) for name, f in graph.functions.items()}
        return self.rewritten(graph).replace(functions=functions)

    def rewritten(self, graph: Graph) -> Graph:
        if not any(op.name == "checkpoint" for op in graph.operations):
            return graph
        made = graph.producers()
        clones: dict[Value, Value] = {}
        operations: list[Operation] = []

        def again(value: Value, like: Operation) -> Value:
            op = made.get(value)
            if op is None or op.origin.phase != "forward" or not _repeatable(op):
                return value
            if value not in clones:
                operands = tuple(again(v, like) for v in op.operands)
                results = tuple(Value(v.type) for v in op.results)
                clones.update(zip(op.results, results, strict=True))
                origin = replace(op.origin, phase=like.origin.phase)
                operations.append(Operation(op.name, operands, results, op.attributes, origin))
            return clones[value]

        for op in graph.operations:
            if op.origin.phase == "backward" and op.name not in CONTROL:
                operands = tuple(again(v, op) for v in op.operands)
                operations.append(op if operands == op.operands else replace(op, operands=operands))
            else:
                operations.append(op)
        return graph.replace(operations=tuple(operations))


def _repeatable(op: Operation) -> bool:
    kept = op.name in (*CONTROL, "checkpoint") or has(op, "constant") or has(op, "random")
    return not kept and not lookup(op.name).effect

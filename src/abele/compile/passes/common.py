"""Common subexpressions: what is computed twice from the same operands is computed once."""

from __future__ import annotations

from dataclasses import dataclass, replace

from abele.ir.graph import Graph, Operation, Value
from abele.ir.operation import lookup
from abele.ir.rules import CONTROL


@dataclass(frozen=True)
class CommonSubexpressions:
    """Merge equal operations of the same phase and IPU.

    What the backward phase computes again it computes again on purpose (recomputation), so phases are not mixed.
    """

    name: str = "common-subexpressions"

    def run(self, graph: Graph) -> Graph:
        functions = {name: self.merged(f) for name, f in graph.functions.items()}
        return self.merged(graph).replace(functions=functions)

    def merged(self, graph: Graph) -> Graph:
        known: dict[tuple, Operation] = {}
        mapping: dict[Value, Value] = {}
        kept = []
        for op in graph.operations:
            operands = tuple(mapping.get(v, v) for v in op.operands)
            current = op if operands == op.operands else replace(op, operands=operands)
            if op.name in CONTROL or lookup(op.name).effect:
                kept.append(current)
                continue
            key = (op.name, operands, tuple(op.attributes.items()), op.origin.phase, op.origin.ipu, op.origin.stage)
            found = known.setdefault(key, current)
            if found is current:
                kept.append(current)
            else:
                mapping.update(zip(op.results, found.results, strict=True))
        outputs = tuple(mapping.get(v, v) for v in graph.outputs)
        return graph.replace(operations=tuple(kept), outputs=outputs)

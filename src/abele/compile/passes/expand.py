"""Composites that have no plan of their own become the operations that they are made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from abele.compile.passes.inline import inline_results
from abele.ir.graph import Graph, Operation
from abele.ir.operation import Composite, expansion, lookup
from abele.ir.rules import CONTROL
from abele.ops.plans.planning import PLANS


@dataclass(frozen=True)
class Expand:
    """Replace composites by their expansion, again and again, until every operation has a plan."""

    name: str = "expand"

    def run(self, graph: Graph) -> Graph:
        functions = {n: f.replace(operations=tuple(_expanded(f.operations))) for n, f in graph.functions.items()}
        return graph.replace(operations=tuple(_expanded(graph.operations)), functions=functions)


def _expanded(operations: Iterable[Operation]) -> Iterator[Operation]:
    for op in operations:
        if op.name in CONTROL or op.name in PLANS or not isinstance(lookup(op.name), Composite):
            yield op
        else:
            inner = expansion(op.name, [v.type for v in op.operands], op.attributes)
            yield from _expanded(inline_results(inner, op))

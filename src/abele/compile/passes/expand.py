"""Composites that have no plan of their own become the operations that they are made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from abele.compile.passes.dead_code import DeadCode
from abele.compile.passes.fuse import Fuse
from abele.compile.passes.inline import inline_results
from abele.ir.graph import Graph, Operation
from abele.ir.operation import Composite, expansion, lookup
from abele.ir.rules import CONTROL
from abele.ops.plans.planning import PLANS


@dataclass(frozen=True)
class Expand:
    """Replace composites by their expansion, again and again, until every operation has a plan.

    Attributes:
        fuse: elementwise chains within one composite become one map, as a library that evaluates whole expressions
            (graphcore/poplibs, popops::map) has them. Chains over several operations are left to ``Fuse``.
    """

    fuse: bool = False
    name: str = "expand"

    def run(self, graph: Graph) -> Graph:
        functions = {n: f.replace(operations=tuple(self._expanded(f.operations))) for n, f in graph.functions.items()}
        return graph.replace(operations=tuple(self._expanded(graph.operations)), functions=functions)

    def _expanded(self, operations: Iterable[Operation]) -> Iterator[Operation]:
        for op in operations:
            if op.name in CONTROL or op.name in PLANS or not isinstance(lookup(op.name), Composite):
                yield op
                continue
            inner = expansion(op.name, [v.type for v in op.operands], op.attributes)
            inner = inner.replace(operations=tuple(self._expanded(inner.operations)))
            yield from inline_results(DeadCode().run(_MAPS.run(inner)) if self.fuse else inner, op)


_MAPS = Fuse(epilogues=False)

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
        known: dict[Graph, Graph] = {}
        functions = {
            n: f.replace(operations=tuple(self._expanded(f.operations, known))) for n, f in graph.functions.items()
        }
        return graph.replace(operations=tuple(self._expanded(graph.operations, known)), functions=functions)

    def _expanded(self, operations: Iterable[Operation], known: dict[Graph, Graph]) -> Iterator[Operation]:
        for op in operations:
            if op.name in CONTROL or op.name in PLANS or not isinstance(lookup(op.name), Composite):
                yield op
            else:
                inner = expansion(op.name, [v.type for v in op.operands], op.attributes)
                yield from inline_results(self._whole(inner, known), op)

    def _whole(self, inner: Graph, known: dict[Graph, Graph]) -> Graph:
        """What an expansion ends up as; equal composites share one: ``known`` are those that came before."""
        if inner not in known:
            whole = inner.replace(operations=tuple(self._expanded(inner.operations, known)))
            known[inner] = DeadCode().run(_MAPS.run(whole)) if self.fuse else whole
        return known[inner]


_MAPS = Fuse(epilogues=False)

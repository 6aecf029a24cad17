"""Operations that the vendor's library has not become calls of those that it has.

Before: one ``attention``. After: two products with a scaling, a mask and a softmax between, each with its own result,
as the vendor's frameworks ran it; the backward pass follows from these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from abele.compile.passes.inline import inline_results
from abele.ir.graph import Graph, Operation
from abele.ir.operation import OPERATIONS, Composite, expansion


@dataclass(frozen=True)
class LibraryCalls:
    """Replace composites that name their ``calls`` by these."""

    name: str = "library-calls"

    def run(self, graph: Graph) -> Graph:
        functions = {n: f.replace(operations=tuple(_called(f.operations))) for n, f in graph.functions.items()}
        return graph.replace(operations=tuple(_called(graph.operations)), functions=functions)


def called(op: Operation) -> str:
    """The composite that stands for an operation, or nothing."""
    found = OPERATIONS.get(op.name)
    return found.calls if isinstance(found, Composite) else ""


def _called(operations: Iterable[Operation]) -> Iterator[Operation]:
    for op in operations:
        if name := called(op):
            yield from inline_results(expansion(name, [v.type for v in op.operands], op.attributes), op)
        else:
            yield op

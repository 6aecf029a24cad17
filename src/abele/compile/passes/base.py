"""What a pass is, and how a list of them is run: rules checked before and after, time and changes recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from abele.ir.graph import Graph, Operation
from abele.ir.rules import check


@runtime_checkable
class Pass(Protocol):
    """One rewriting of a graph: a frozen dataclass with a ``name``, its options as fields, in its own file."""

    @property
    def name(self) -> str: ...

    def run(self, graph: Graph) -> Graph:
        """A new graph with the same meaning (or with the meaning that the pass is there to add)."""
        ...


@dataclass(frozen=True, slots=True)
class PassRecord:
    """What one pass did: operations in all graphs before and after it, and the CPU seconds it took."""

    name: str
    before: int
    after: int
    seconds: float


def count_operations(graph: Graph) -> int:
    """Operations in the graph and its functions."""
    return sum(len(g.operations) for g in graph.all_graphs())


def run_passes(
    graph: Graph, passes: Sequence[Pass], watch: Callable[[str, Graph], None] | None = None
) -> tuple[Graph, list[PassRecord]]:
    """Run the passes in order, checking the rules of the graph around each.

    Args:
        watch: called with the name of each pass and the graph that it made, for those who want to look in between.
    """
    obeying = set[Operation]()
    check(graph, obeying)
    records = []
    for pass_ in passes:
        start, before = time.process_time(), count_operations(graph)
        graph = check(pass_.run(graph), obeying)
        records.append(PassRecord(pass_.name, before, count_operations(graph), time.process_time() - start))
        if watch is not None:
            watch(pass_.name, graph)
    return graph, records

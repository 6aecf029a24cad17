"""Splitting a model into pipeline stages of about equal work, at the borders of its layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from abele.compile.passes.layers import runs
from abele.errors import InvalidOption
from abele.ir.graph import Graph, Operation, Value
from abele.ir.operation import flops

LARGE_WEIGHT = 1 << 18
"""Elements from which a weight is better kept in one place than sent to a second."""


@dataclass(frozen=True)
class Split:
    """Give every operation a stage, and each stage an IPU of its own.

    The cuts are those, between layers, for which the largest stage has the least work (flops). A model with fewer
    layers than stages is cut between modules, and one with fewer modules between operations.
    """

    stages: int
    name: str = "split"

    def run(self, graph: Graph) -> Graph:
        if self.stages == 1:
            return graph
        pieces, _, cuts = _cut(graph, self.stages)
        operations = list(graph.operations)
        for stage, (first, last) in enumerate(cuts):
            for i in range(pieces[first][0], pieces[last - 1][1]):
                operations[i] = replace(operations[i], origin=replace(operations[i].origin, stage=stage, ipu=stage))
        _join_tied(graph, operations)
        return graph.replace(operations=tuple(operations))


def bottleneck(graph: Graph, stages: int) -> float:
    """The share of the work that falls to the largest of so many stages."""
    _, work, cuts = _cut(graph, stages)
    return max(sum(work[first:last]) for first, last in cuts) / max(1, sum(work))


def shares(graph: Graph, most: int) -> dict[int, float]:
    """For 1 stage, and for each number of stages up to ``most`` of which no smaller one has a largest stage as small,
    the share of the work that falls to the largest."""
    found = {1: 1.0}
    for n in range(2, min(most, len(graph.operations)) + 1):
        share = bottleneck(graph, n)
        if share < min(found.values()) * 0.999:
            found[n] = share
    return found


def heaviest(graph: Graph, stages: int) -> float:
    """The share of the state's bytes that falls to the stage with most, of so many."""
    sizes: dict[int, int] = {}
    seen = set(state := set(graph.inputs_of("state").values()))
    for op in Split(stages).run(graph).operations:
        for value in op.operands:
            if value in seen:
                seen.discard(value)
                sizes[op.origin.ipu] = sizes.get(op.origin.ipu, 0) + value.type.bytes
    return max(sizes.values(), default=0) / max(1, sum(v.type.bytes for v in state))


def _cut(graph: Graph, stages: int) -> tuple[list[tuple[int, int]], list[int], list[tuple[int, int]]]:
    """The pieces of a graph as runs of operations, the work of each, and the stages as runs of pieces."""
    pieces = _pieces(graph.operations, stages)
    if len(pieces) < stages:
        raise InvalidOption(
            f"The model has {len(pieces)} operations and cannot be split into {stages} stages",
            remedy=f"Ask for at most {len(pieces)} stages.",
        )
    work = [sum(flops(op) + op.results[0].type.size for op in graph.operations[a:b] if op.results) for a, b in pieces]
    return pieces, work, _balanced(work, stages)


def _join_tied(graph: Graph, operations: list[Operation]) -> None:
    """Put what reads a large weight a second time, and all that follows it, on the IPU that holds the weight.

    An output layer whose weight is that of the embedding would else have it sent over the links for every micro-batch.
    """
    large = {v for v in graph.inputs_of("state").values() if v.type.size >= LARGE_WEIGHT}
    holder: dict[Value, int] = {}
    ipu: int | None = None
    for i, op in enumerate(operations):
        for value in op.operands:
            if value in large and holder.setdefault(value, op.origin.ipu) != op.origin.ipu:
                ipu = holder[value]
        if ipu is not None:
            operations[i] = replace(op, origin=replace(op.origin, ipu=ipu))


def _pieces(operations: Sequence[Operation], least: int) -> list[tuple[int, int]]:
    """What is not cut, (first, last + 1) of each: the coarsest kind of which there are at least ``least``, if any."""
    pieces = [(start, stop) for _, start, stop in runs(operations)]
    if len(pieces) < least:
        borders = [
            i for i in range(1, len(operations)) if operations[i - 1].origin.module != operations[i].origin.module
        ]
        pieces = list(pairwise((0, *borders, len(operations))))
    return pieces if len(pieces) >= least else [(i, i + 1) for i in range(len(operations))]


def _balanced(work: list[int], stages: int) -> list[tuple[int, int]]:
    """Cut a list into ``stages`` non-empty runs whose largest sum is least; (first, last + 1) of each run."""
    low, high = max(work), sum(work)
    while low < high:
        limit = (low + high) // 2
        low, high = (low, limit) if len(_filled(work, limit)) <= stages else (limit + 1, high)
    cuts = _filled(work, low)
    while len(cuts) < stages:
        widest = max(range(len(cuts)), key=lambda i: cuts[i][1] - cuts[i][0])
        first, last = cuts[widest]
        cuts[widest : widest + 1] = [(first, (first + last) // 2), ((first + last) // 2, last)]
    return cuts


def _filled(work: list[int], limit: int) -> list[tuple[int, int]]:
    """Runs filled one after another up to ``limit``."""
    cuts, first, total = [], 0, 0
    for i, amount in enumerate(work):
        if total + amount > limit and i > first:
            cuts.append((first, i))
            first, total = i, 0
        total += amount
    return [*cuts, (first, len(work))]

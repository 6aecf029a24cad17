"""Cutting the forward phase into segments for recomputation: what crosses a cut is kept, the rest is made again.

A cut between two blocks of a model (residual blocks, layers) is crossed by little: those are found by what crosses,
not by names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from abele.ir.graph import Graph, Operation, Value
from abele.ir.operation import has
from abele.schedule.liveness import stash

TRIED = 16
"""Bounds on the largest segment that are tried, each three quarters of the one before."""


def kept_values(graph: Graph, keeps: Callable[[Operation], bool], pipeline: str = "grouped") -> set[Value]:
    """The values to keep so that what is kept, and what the largest segment holds while it is made again, is least.

    Args:
        graph: with forward and backward operations; every pipeline stage is cut by itself.
        keeps: whether an operation's results are kept in any case.
        pipeline: how the stages take turns, which says how many micro-batches each keeps.
    """
    stages: dict[int, list[Operation]] = {}
    roots: dict[Value, Value] = {}
    for op in graph.operations:
        if op.origin.phase == "forward":
            if has(op, "view"):
                roots[op.result] = roots.get(op.operands[0], op.operands[0])
            else:
                stages.setdefault(op.origin.stage, []).append(op)
    needed = {roots.get(v, v) for op in graph.operations if op.origin.phase != "forward" for v in op.operands}
    last = max(stages, default=0)
    kept: set[Value] = set()
    for stage, operations in stages.items():
        waits = stash(max(1, 2 * (last - stage) + 1), pipeline) if last else 1
        kept |= _Stage(operations, roots, needed, keeps, stage == last, waits).kept()
    return kept | {view for view, root in roots.items() if root in kept}


class _Stage:
    """The forward operations of one stage, in order.

    Attributes:
        sizes: for each operation, bytes of its results that the backward phase reads.
        crossing: for each border before an operation, bytes of the values that are made before and read after it.
    """

    def __init__(
        self,
        operations: Sequence[Operation],
        roots: Mapping[Value, Value],
        needed: set[Value],
        keeps: Callable[[Operation], bool],
        final: bool,
        waits: int,
    ) -> None:
        self.operations, self.final, self.waits = operations, final, waits
        self.made = {v: i for i, op in enumerate(operations) if not keeps(op) for v in op.results}
        self.read: dict[Value, int] = {}
        for i, op in enumerate(operations):
            for value in op.operands:
                self.read[roots.get(value, value)] = i
        count = len(operations)
        self.sizes, steps = [0] * count, [0] * (count + 1)
        for value, i in self.made.items():
            if value in needed:
                self.sizes[i] += value.type.bytes
            if self.read.get(value, -1) > i:
                steps[i + 1] += value.type.bytes
                steps[self.read[value] + 1] -= value.type.bytes
        self.crossing = [0] * (count + 1)
        for i in range(1, count):
            self.crossing[i] = self.crossing[i - 1] + steps[i]

    def kept(self) -> set[Value]:
        borders = self._borders()
        total = sum(self.sizes)
        best, least = [0, len(self.operations)], total + 0.0
        bound = float(total)
        for _ in range(TRIED):
            cuts = self._cut(borders, bound)
            held = sum(self.crossing[b] for b in cuts[1:-1]) * self.waits
            largest = max((sum(self.sizes[a:b]) for a, b in pairwise(cuts)), default=0)
            if held + largest < least:
                best, least = cuts, held + largest
            bound *= 0.75
        return self._across(best)

    def _across(self, cuts: Sequence[int]) -> set[Value]:
        """What is kept with these cuts: the values that cross one, and at the end of the model the last segment."""
        inner = cuts[1:-1]
        kept = {v for v, i in self.made.items() if any(i < b <= self.read.get(v, -1) for b in inner)}
        if self.final and inner:  # its backward phase follows at once
            kept |= {v for v, i in self.made.items() if i >= inner[-1]}
        return kept if inner or not self.final else set(self.made)

    def _borders(self) -> list[int]:
        """Places for cuts: those that are crossed by less than the places beside them."""
        c, count = self.crossing, len(self.operations)
        inner = [i for i in range(1, count) if 0 < c[i] <= c[i - 1] or (c[i - 1] == 0 < c[i])]
        return [0, *(i for i in inner if i + 1 == count or c[i] <= c[i + 1]), count]

    def _cut(self, borders: Sequence[int], bound: float) -> list[int]:
        """The cuts that are crossed by least with no segment above ``bound``, where borders allow that."""
        before = [0]
        for a, b in pairwise(borders):
            before.append(before[-1] + sum(self.sizes[a:b]))
        cost, back = [0.0], [0]
        for j in range(1, len(borders)):
            reach = [i for i in range(j) if before[j] - before[i] <= bound] or [j - 1]
            i = min(reach, key=lambda i: cost[i])
            back.append(i)
            cost.append(cost[i] + (self.crossing[borders[j]] if j + 1 < len(borders) else 0))
        cuts, at = [], len(borders) - 1
        while at:
            cuts.append(borders[at])
            at = back[at]
        return [0, *reversed(cuts)]

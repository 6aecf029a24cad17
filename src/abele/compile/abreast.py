"""Side by side: steps that do not need each other start together, so that their compute sets share a sync.

A product gradient of the weights and one of the input, the updates of many small parameters, the sums for biases: each
alone leaves the chip waiting for the sync of every compute set. Here a step moves up to an earlier one that it does
not read, where nothing in between makes what it reads; their first compute sets become one, their second another.

What is written over does not change: a step that makes the next value of a state stays behind all that read the old
one. Steps move a short way, and what those that start together hold at once is bounded, so that memory hardly grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from abele.ir.operation import has
from abele.ops.plans.layouts import fullest
from abele.schedule.records import Function, Node, Place, Plan, Schedule, Step, place_of

REACH = 24
"""A step moves past so many others, or groups of them, at most."""

MOST = 32
"""So many steps start together at most."""

SHARE = 8
"""What they touch on a tile takes at most this part of its memory, one over."""

_APART = ("host", "remote", "collective", "transfer")


def side_by_side(schedule: Schedule, tile_memory: int) -> Schedule:
    """The same program with independent steps next to one another and marked as starting together."""
    work = _Joining(schedule, tile_memory // SHARE)
    functions = {name: work.function(f) for name, f in schedule.functions.items()}
    return replace(schedule, main=work.function(schedule.main), functions=functions)


@dataclass
class _Group:
    """Nodes that start together: several steps, or one node of any kind.

    Attributes:
        sets: compute sets of the longest plan.
        touched: bytes on a tile, of all steps.
    """

    nodes: list[Node]
    place: Place | None
    sets: int
    touched: int


@dataclass
class _Joining:
    schedule: Schedule
    most_touched: int
    sizes: dict[int, tuple[Plan, int]] = field(default_factory=dict)

    def function(self, function: Function) -> Function:
        groups: list[_Group] = []
        made: dict[str, int] = dict.fromkeys(function.parameters, -1)
        read: dict[str, int] = {}
        results, border = set(function.results), 0
        for node in function.nodes:
            at = len(groups)
            if isinstance(node, Step) and self.joins(node):
                earliest = max([border, at - REACH, *(made[name] + 1 for name in node.reads)])
                if results.intersection(node.makes):
                    # it may be written over a parameter: then nothing may read that at the same time or later
                    earliest = max([earliest, *(read.get(name, -1) + 1 for name in node.reads)])
                at = self.place(node, groups, earliest)
            else:
                groups.append(_Group([node], None, 0, 0))
                border = len(groups)
            made.update(dict.fromkeys(node.makes, at))
            for name in node.reads:
                if self.schedule.tensors[name].kind in ("state", "argument"):
                    read[name] = max(at, read.get(name, -1))
        return replace(function, nodes=tuple(_marked(groups)))

    def joins(self, step: Step) -> bool:
        """Whether a step is compute sets on tensors of its own IPU, and nothing else."""
        near = all(self.schedule.tensors[name].ipu == step.origin.ipu for name in step.reads)
        return near and bool(step.plan.sets) and not any(has(step.operation, trait) for trait in _APART)

    def place(self, step: Step, groups: list[_Group], earliest: int) -> int:
        """Put a step into the group with which it shares most compute sets, the last of equals, or into a new one."""
        place = place_of(step)
        sets, touched = len(step.plan.sets), self.touched(step)
        best, saved = len(groups), 0
        for at in reversed(range(earliest, len(groups))):
            group = groups[at]
            fits = len(group.nodes) < MOST and group.touched + touched <= self.most_touched
            if group.place == place and fits and min(sets, group.sets) > saved:
                best, saved = at, min(sets, group.sets)
        if best == len(groups):
            groups.append(_Group([step], place, sets, touched))
        else:
            group = groups[best]
            group.nodes.append(step)
            group.sets, group.touched = max(sets, group.sets), group.touched + touched
        return best

    def touched(self, step: Step) -> int:
        """Bytes that the vertices of a step touch on a tile, at most, all its compute sets together."""
        plan = step.plan
        if id(plan) not in self.sizes:
            types = {f"in{i}": use.type for i, use in enumerate(step.operands)}
            types |= {f"out{i}": use.type for i, use in enumerate(step.results)}
            types |= {f"tmp{i}": type_ for i, type_ in enumerate(plan.temporaries)}
            accesses = [a for cs in plan.sets for a in (*cs.reads, *cs.writes)]
            self.sizes[id(plan)] = plan, sum(fullest(a.layout) * types[a.name].dtype.bytes for a in accesses)
        return self.sizes[id(plan)][1]


def _marked(groups: Sequence[_Group]) -> list[Node]:
    nodes: list[Node] = []
    for group in groups:
        first, *others = group.nodes
        nodes.append(first)
        nodes += [replace(step, beside=True) for step in others if isinstance(step, Step)]
    return nodes

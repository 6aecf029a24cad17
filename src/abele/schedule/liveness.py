"""Which tensors share storage, and when each storage is live, over the program as one line of time.

Calls and repeats are unrolled once into *moments*: every step, and the start and end of every call, is one. A
parameter that one call alone binds needs no storage of its own, and the carried tensor of a loop is updated in place
where nothing reads the old value any more; everything else is copied, and the copies are listed here for cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from abele.ir.graph import Origin
from abele.schedule.records import Function, Node, Repeat, Schedule, Step, abreast

Pair = tuple[str, str]
"""Source and target of a copy, names of tensors."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One point of the line.

    Attributes:
        kind: ``step``; ``enter`` and ``exit`` of a call or repeat; ``begin`` and ``end`` of the program.
        node: the step, call or repeat; ``None`` at the ends.
        function: the function that the node stands in.
        depth: how many calls are open.
        times: how often one device iteration comes by.
    """

    kind: str
    node: Node | None
    function: str
    depth: int
    times: int


@dataclass(frozen=True, slots=True)
class Interval:
    """A storage that is live from moment ``first`` to moment ``last``, both included, ``copies`` times.

    ``tensor`` names the tensor that the storage is laid out for. More than one copy is the stash of a pipeline:
    one for each micro-batch that is between the stages that make it and read it.
    """

    tensor: str
    first: int
    last: int
    copies: int = 1


@dataclass(frozen=True, slots=True)
class Copies:
    """What binding a call costs: tensors copied on ``entry``, between ``turns`` of a repeat, and on ``exit``."""

    entry: tuple[Pair, ...] = ()
    turns: tuple[Pair, ...] = ()
    exit: tuple[Pair, ...] = ()


@dataclass(frozen=True)
class Liveness:
    """The line of time, and what is live on it.

    Attributes:
        moments: in order.
        intervals: storages that are not always live.
        always: tensors whose storage is: state and hyper values.
        storage: the tensor whose storage each tensor uses (often itself).
        copies: by ``id`` of a call or repeat.
        final: state results that are copied to their state at the end.
    """

    moments: tuple[Moment, ...]
    intervals: tuple[Interval, ...]
    always: tuple[str, ...]
    storage: dict[str, str]
    copies: dict[int, Copies]
    final: tuple[Pair, ...]


def liveness(schedule: Schedule) -> Liveness:
    """Storage and live ranges of a schedule that obeys the rules."""
    sharing = _Sharing(schedule)
    sharing.run()
    line = _Line(schedule, sharing)
    line.run()
    return Liveness(
        tuple(line.moments),
        tuple(line.intervals),
        tuple(sharing.always),
        {name: sharing.find(name) for name in schedule.tensors},
        sharing.copies,
        tuple(sharing.final),
    )


class _Sharing:
    """Decides which tensors share storage, innermost functions first."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.parent: dict[str, str] = {}
        self.owner = {name: f.name for f in schedule.all_functions() for name in _made(f)}
        self.sites: dict[str, list[tuple[Function, int]]] = {name: [] for name in schedule.functions}
        self.last_read: dict[str, int] = {}
        self.maker: dict[str, tuple[Function, int]] = {}
        for function in schedule.all_functions():
            for index, node in enumerate(function.nodes):
                for name in node.reads:
                    self.last_read[name] = index
                for name in node.makes:
                    self.maker[name] = function, index
                if not isinstance(node, Step):
                    self.sites[node.function].append((function, index))
        self.always = [t.name for t in schedule.tensors.values() if t.kind in ("state", "hyper")]
        self.remote = {t.name for t in schedule.tensors.values() if t.kind == "remote"}
        self.next_of = self._states()
        self.carried = self._carried()
        self.abreast = {f.name: abreast(f.nodes) for f in schedule.all_functions()}
        self.copies: dict[int, Copies] = {}
        self.final: list[Pair] = []

    def _states(self) -> dict[str, str]:
        """State result of main to the state parameter whose next value it is."""
        s = self.schedule
        if len(s.input_ports) != len(s.main.parameters):
            return {}
        states = {p.name: n for p, n in zip(s.input_ports, s.main.parameters, strict=True) if p.kind == "state"}
        results = zip(s.output_ports, s.main.results, strict=False)
        return {name: states[p.name] for p, name in results if p.kind == "state"}

    def _carried(self) -> set[str]:
        """Parameters that every turn of a repeat overwrites, and states that the end of main does."""
        found = set(self.next_of.values())
        for sites in self.sites.values():
            if len(sites) == 1:
                node = sites[0][0].nodes[sites[0][1]]
                if isinstance(node, Repeat):
                    found.update(self.schedule.functions[node.function].parameters[: len(node.results)])
        return found

    def find(self, name: str) -> str:
        while name in self.parent:
            name = self.parent[name]
        return name

    def join(self, outer: str, inner: str) -> None:
        """Let the storage of ``inner`` be that of ``outer``."""
        a, b = self.find(outer), self.find(inner)
        if a != b:
            self.parent[b] = a

    def alike(self, a: str, b: str) -> bool:
        """True when two tensors lie in the same way on the same IPU."""
        x, y = self.schedule.tensors[a], self.schedule.tensors[b]
        return x.home == y.home and x.ipu == y.ipu and x.type.dtype == y.type.dtype

    def run(self) -> None:
        for name in _inner_first(self.schedule):
            self._bind(self.schedule.functions[name])
        main = self.schedule.main
        for name, state in self.next_of.items():
            if self.find(name) == self.find(state):
                continue
            if state in self.remote or (self.alike(name, state) and self._replaces(main, name, state)):
                self.join(state, name)
            else:
                self.final.append((name, state))

    def _bind(self, callee: Function) -> None:
        sites = self.sites[callee.name]
        for caller, index in sites:
            node = caller.nodes[index]
            assert not isinstance(node, Step)
            carried = len(node.results) if isinstance(node, Repeat) else 0
            pairs = list(zip(node.operands, callee.parameters, strict=True))
            turns: list[Pair] = []
            if carried:
                for result, parameter in zip(callee.results, callee.parameters, strict=False):
                    if self.find(result) == self.find(parameter):
                        continue
                    if self.alike(result, parameter) and self._replaces(callee, result, parameter):
                        self.join(parameter, result)
                    else:
                        turns.append((result, parameter))
            entry = [
                pair for i, pair in enumerate(pairs) if not self._by_reference(caller, index, pair, i, i < carried)
            ]
            exits = [
                (inner, outer)
                for inner, outer in zip(callee.results, node.results, strict=True)
                if len(sites) > 1 or not self._hand_out(callee, inner, outer)
            ]
            self.copies[id(node)] = Copies(tuple(entry), tuple(turns), tuple(exits))

    def _by_reference(self, caller: Function, index: int, pair: Pair, position: int, carried: bool) -> bool:
        """Let a parameter use the storage of its operand, where every call binds the same one."""
        operand, parameter = pair
        sites = self.sites[self.owner[parameter]]
        if not self.alike(operand, parameter):
            return False
        if any(f.nodes[i].operands[position] != operand for f, i in sites):
            return False
        if carried and (len(sites) > 1 or not self._overwritable(caller, index, operand)):
            return False
        self.join(operand, parameter)
        return True

    def _overwritable(self, caller: Function, index: int, name: str) -> bool:
        """True when the repeat at ``index`` may overwrite this operand: nobody reads it again."""
        node = caller.nodes[index]
        return (
            node.reads.count(name) == 1
            and self.last_read[name] == index
            and name not in caller.results
            and (name not in caller.parameters or name in self.carried)
            and self.find(name) == name
        )

    def _replaces(self, function: Function, result: str, parameter: str) -> bool:
        """True when ``result`` may be written over ``parameter``: the old value is not read any more by then."""
        if result in function.parameters or function.results.count(result) > 1 or parameter in function.results:
            return False
        if self.maker.get(result, (None,))[0] is not function or self.owner[self.find(result)] != function.name:
            return False
        if self.find(result) in function.parameters:
            return False
        made, read = self.maker[result][1], self.last_read.get(parameter, -1)
        node = function.nodes[made]
        first, last = self.abreast[function.name][made]
        if read < first:
            return True
        if any(parameter in function.nodes[i].reads for i in range(first, last + 1) if i != made):
            return False  # read by a step that runs at the same time
        return read == made and isinstance(node, Step) and _in_place(node, parameter, result)

    def _hand_out(self, callee: Function, inner: str, outer: str) -> bool:
        """Let the caller's result use the storage of the callee's, where it can."""
        if not self.alike(inner, outer) or inner in callee.parameters or callee.results.count(inner) > 1:
            return False
        root = self.find(inner)
        if self.owner[root] == callee.name:
            self.join(outer, inner)
            return True
        # The loop worked in its operand's storage: reads of its result are from now on reads of the operand.
        self.join(inner, outer)
        later = len(self.maker[outer][0].nodes) if outer in self.maker[outer][0].results else -1
        self.last_read[root] = max(self.last_read.get(root, -1), self.last_read.get(outer, -1), later)
        return True


def _in_place(step: Step, operand: str, result: str) -> bool:
    """True when the plan has read all of the operand by the compute set that first writes the result.

    A read that is not all resident goes on in place, where it is, while the set writes. A result that is written over
    temporaries is there from their first write on.
    """
    reads = {f"in{i}" for i, use in enumerate(step.operands) if use.tensor == operand}
    writes = {f"out{i}" for i, use in enumerate(step.results) if use.tensor == result}
    sets = step.plan.sets
    under = {a.name: a.over for cs in sets for a in cs.writes if a.over and not a.renews}
    for name in list(writes):
        while name in under:
            name = under[name]
            writes.add(name)
    last = max((2 * i + (not a.resident) for i, cs in enumerate(sets) for a in cs.reads if a.name in reads), default=-1)
    first = min((2 * i for i, cs in enumerate(sets) if any(a.name in writes for a in cs.writes)), default=-1)
    return last <= first or not sets


class _Line:
    """Walks the program and notes when each storage is touched."""

    def __init__(self, schedule: Schedule, sharing: _Sharing) -> None:
        self.schedule, self.sharing = schedule, sharing
        self.roots = {name: sharing.find(name) for name in schedule.tensors}
        self.moments: list[Moment] = []
        self.intervals: list[Interval] = []
        self.frames: dict[str, _Frame] = {}
        self.untimed = sharing.remote.union(sharing.always)

    def run(self) -> None:
        main = self.schedule.main
        frame = self.frames[main.name] = _Frame()
        self._moment("begin", None, main.name, 0, 1)
        self._touch(main.parameters, None)
        self._walk(main, 0, 1, None, None)
        self._moment("end", None, main.name, 0, 1)
        self._touch(main.results, None)
        self.intervals.extend(frame.intervals())

    def _moment(self, kind: str, node: Node | None, function: str, depth: int, times: int) -> None:
        self.moments.append(Moment(kind, node, function, depth, times))

    def _touch(self, names: Sequence[str], slot: int | None, before: int = 0, behind: int = 0) -> None:
        """From so many moments ``before`` now until so many ``behind`` it."""
        now = len(self.moments) - 1
        for name in names:
            root = self.roots[name]
            if root not in self.untimed:
                self.frames[self.sharing.owner[root]].touch(root, now - before, now + behind, slot)

    def _walk(self, function: Function, depth: int, times: int, origin: Origin | None, pipeline: Repeat | None) -> None:
        """``pipeline`` is the overlapped loop around, where there is one; ``origin`` that of the node of its body which
        runs this function."""
        for index, (node, (first, last)) in enumerate(
            zip(function.nodes, self.sharing.abreast[function.name], strict=True)
        ):
            where = origin or node.origin
            slot = pipeline_slot(where, pipeline.stages) if pipeline else None
            if isinstance(node, Step):
                self._moment("step", node, function.name, depth, times)
                self._touch([*node.reads, *node.makes], slot, index - first, last - index)
                continue
            callee = self.schedule.functions[node.function]
            count = node.count if isinstance(node, Repeat) else 1
            overlapped = node if isinstance(node, Repeat) and node.overlaps else None
            frame = self.frames[callee.name] = _Frame()
            self._moment("enter", node, function.name, depth, times)
            start = len(self.moments) - 1
            self._touch(node.operands, slot)
            self._touch(callee.parameters, None if overlapped else slot)
            inner = overlapped or pipeline
            self._walk(callee, depth + 1, times * count, where if pipeline and not overlapped else None, inner)
            self._moment("exit", node, function.name, depth, times)
            self._touch([*callee.results], None if overlapped else slot)
            self._touch(node.results, slot)
            if isinstance(node, Repeat):
                self._touch(callee.parameters, None if overlapped else slot)
            parameters = {self.roots[p] for p in callee.parameters}
            if overlapped is None:
                self.intervals.extend(frame.intervals())
            else:
                self.intervals.extend(frame.stashed(start, len(self.moments) - 1, overlapped, parameters))


class _Frame:
    """First and last touch of the storages of one run of a function, and the pipeline slots of the touches."""

    def __init__(self) -> None:
        self.ranges: dict[str, list[int]] = {}
        self.slots: dict[str, list[int]] = {}

    def touch(self, root: str, first: int, last: int, slot: int | None) -> None:
        known = self.ranges.setdefault(root, [first, last])
        known[:] = min(known[0], first), max(known[1], last)
        if slot is not None:
            low, high = self.slots.setdefault(root, [slot, slot])
            self.slots[root] = [min(low, slot), max(high, slot)]

    def intervals(self) -> Iterator[Interval]:
        """The live ranges."""
        for root, (first, last) in self.ranges.items():
            yield Interval(root, first, last)

    def stashed(self, start: int, end: int, loop: Repeat, parameters: set[str]) -> Iterator[Interval]:
        """The live ranges in a pipelined loop between these moments: what crosses its slots lives throughout, once for
        each micro-batch that is between the slots."""
        for root, (first, last) in self.ranges.items():
            low, high = self.slots.get(root, (0, 0))
            if high > low and root not in parameters:
                yield Interval(root, start, end, stash(high - low, loop.pipeline))
            else:
                yield Interval(root, first, last)


def pipeline_slot(origin: Origin, stages: int) -> int:
    """The place of an operation in the order in which a micro-batch goes through a pipeline: forward stages, and back.

    A grouped pipeline runs the forward and the backward of its last stage in the same slot, one after the other."""
    return origin.stage if origin.phase == "forward" else 2 * stages - 1 - origin.stage


def stash(distance: int, pipeline: str) -> int:
    """Micro-batches that wait between two places of a pipeline that are so far apart.

    A grouped pipeline takes in a micro-batch for every place that one moves on, an interleaved one for every second."""
    return -(-distance // 2) if pipeline == "interleaved" else distance


def _made(function: Function) -> Iterator[str]:
    yield from function.parameters
    for node in function.nodes:
        yield from node.makes


def _inner_first(schedule: Schedule) -> list[str]:
    """Functions, each after those that it runs."""
    done: dict[str, None] = {}

    def visit(function: Function) -> None:
        for node in function.nodes:
            if not isinstance(node, Step) and node.function not in done:
                visit(schedule.functions[node.function])
                done[node.function] = None

    visit(schedule.main)
    return list(done)

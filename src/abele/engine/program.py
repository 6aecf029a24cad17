"""From schedule to instructions: calls are written out, names become buffers, loops stay loops.

A buffer is a piece of host memory with a lifetime. Views share the buffer of what they look at; a call's parameters
are the caller's buffers. What a loop carries, and the state of the program, is written in place where the last reader
of the old value makes the new one, and copied at the end of the turn otherwise.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from abele.errors import Bug
from abele.ir.graph import Attributes, Origin
from abele.ir.operation import has
from abele.ir.types import TensorType
from abele.schedule.records import Call, Function, Repeat, Schedule, Step


@dataclass(frozen=True, slots=True)
class View:
    """A buffer seen as a tensor."""

    buffer: int
    type: TensorType


@dataclass(frozen=True, eq=False)
class Run:
    """One operation on whole tensors."""

    operation: str
    attributes: Attributes
    operands: tuple[View, ...]
    results: tuple[View, ...]
    origin: Origin


@dataclass(frozen=True, eq=False)
class Load:
    """Take the next micro-batch of a stream."""

    stream: str
    result: View


@dataclass(frozen=True, eq=False)
class Store:
    """Append to a stream."""

    stream: str
    operand: View


@dataclass(frozen=True, eq=False)
class Copy:
    """Copy a whole buffer (a loop turns, or a state takes its next value)."""

    source: View
    target: View


@dataclass(frozen=True, eq=False)
class Collective:
    """What replicas do together; of the operands only the first is read."""

    operation: str
    attributes: Attributes
    operand: View
    result: View


@dataclass(frozen=True, eq=False)
class Loop:
    """Run the body ``count`` times."""

    count: int
    body: tuple[Instruction, ...]


Instruction = Run | Load | Store | Copy | Collective | Loop


@dataclass(slots=True)
class Buffer:
    """Host memory of ``type.size`` elements, needed from instruction ``first`` to ``last`` (both included).

    ``state`` is the port that it holds for good, or ``None``; ``written`` says whether the program ever writes it.
    """

    type: TensorType
    first: int = -1
    last: int = -1
    state: str | None = None
    written: bool = False


@dataclass(frozen=True)
class Program:
    """Instructions, buffers, and the buffer that holds each state and each hyper value."""

    instructions: tuple[Instruction, ...]
    buffers: Mapping[int, Buffer]
    states: Mapping[str, View]


@dataclass
class _Flattening:
    schedule: Schedule
    buffers: dict[int, Buffer] = field(default_factory=dict)

    def new(self, type: TensorType, state: str | None = None) -> int:
        index = len(self.buffers)
        self.buffers[index] = Buffer(type, state=state)
        return index

    def body(self, function: Function, given: tuple[int, ...]) -> tuple[list[Instruction], list[int]]:
        """The instructions of a function with its parameters in the buffers ``given``, and its result buffers."""
        where: dict[str, int] = dict(zip(function.parameters, given, strict=True))
        done: list[Instruction] = []
        for node in function.nodes:
            match node:
                case Step(operation="remote_load" | "remote_store" | "transfer"):
                    # Streaming memory and other IPUs are the modelled machine's; here it is the same memory.
                    where[node.results[0].tensor] = where[node.operands[0].tensor]
                case Step():
                    done.append(self.step(node, where))
                case Call():
                    callee = self.schedule.functions[node.function]
                    inner, results = self.body(callee, tuple(where[o] for o in node.operands))
                    done += inner
                    where.update(zip(node.results, results, strict=True))
                case Repeat():
                    inner, results = self.repeat(node, where)
                    done += inner
                    where.update(zip(node.results, results, strict=True))
        return done, [where[r] for r in function.results]

    def step(self, step: Step, where: dict[str, int]) -> Instruction:
        operands = tuple(View(where[u.tensor], u.type) for u in step.operands)
        for use in step.results:
            where[use.tensor] = self.new(use.type)
        results = tuple(View(where[u.tensor], u.type) for u in step.results)
        if step.operation == "host_load":
            return Load(str(step.attributes["stream"]), results[0])
        if step.operation == "host_store":
            return Store(str(step.attributes["stream"]), operands[0])
        if has(step.operation, "collective"):
            return Collective(step.operation, step.attributes, operands[0], results[0])
        return Run(step.operation, step.attributes, operands, results, step.origin)

    def repeat(self, node: Repeat, where: dict[str, int]) -> tuple[list[Instruction], list[int]]:
        callee = self.schedule.functions[node.function]
        carried = len(node.results)
        types = [self.schedule.tensors[p].type for p in callee.parameters]
        kept = [self.new(t) for t in types[:carried]]
        start: list[Instruction] = [
            Copy(View(where[o], t), View(k, t)) for o, k, t in zip(node.operands, kept, types, strict=False)
        ]
        given = (*kept, *(where[o] for o in node.operands[carried:]))
        inner, results = self.body(callee, given)
        turn = _moves(
            [View(r, t) for r, t in zip(results, types, strict=False)],
            [View(k, t) for k, t in zip(kept, types, strict=False)],
            self.new,
        )
        return [*start, Loop(node.count, (*inner, *turn))], kept


def _moves(sources: list[View], targets: list[View], new) -> list[Instruction]:
    """Copies of all sources to all targets as if at once: a source that is also a target goes through a spare."""
    overwritten = {t.buffer for t in targets}
    first: list[Instruction] = []
    rest: list[Instruction] = []
    for source, target in zip(sources, targets, strict=True):
        if source.buffer == target.buffer:
            continue
        if source.buffer in overwritten:
            spare = View(new(source.type), source.type)
            first.append(Copy(source, spare))
            source = spare
        rest.append(Copy(source, target))
    return first + rest


def flatten(schedule: Schedule) -> Program:
    """The program of one replica."""
    work = _Flattening(schedule)
    names = [port.name for port in schedule.input_ports]
    types = [schedule.tensors[p].type for p in schedule.main.parameters]
    given = tuple(work.new(t, n) for t, n in zip(types, names, strict=True))
    states = {n: View(g, t) for n, g, t in zip(names, given, types, strict=True)}
    instructions, results = work.body(schedule.main, given)
    sources, targets = [], []
    for result, port in zip(results, schedule.output_ports, strict=True):
        if port.kind != "state":
            raise Bug(f"The program leaves the {port.kind} {port.name!r} in no stream")
        sources.append(View(result, states[port.name].type))
        targets.append(states[port.name])
    instructions += _moves(sources, targets, work.new)
    _lifetimes(instructions, work.buffers)
    merged = _write_in_place(instructions, work.buffers)
    instructions = [kept for i in instructions if (kept := _renamed(i, merged)) is not None]
    left = {i: b for i, b in work.buffers.items() if i not in merged}
    return with_lifetimes(instructions, Program((), left, states))


def with_lifetimes(instructions: Sequence[Instruction], program: Program) -> Program:
    """A program of these instructions on the buffers of ``program``: lifetimes found anew, unused buffers left out."""
    buffers = {i: Buffer(b.type, state=b.state) for i, b in program.buffers.items()}
    _lifetimes(instructions, buffers)
    used = {i: b for i, b in buffers.items() if b.first >= 0 or b.state is not None}
    return Program(tuple(instructions), used, program.states)


def reads_and_writes(instruction: Instruction) -> tuple[tuple[View, ...], tuple[View, ...]]:
    """What one instruction (not a loop) reads and writes."""
    match instruction:
        case Run():
            return instruction.operands, instruction.results
        case Load():
            return (), (instruction.result,)
        case Store():
            return (instruction.operand,), ()
        case Copy():
            return (instruction.source,), (instruction.target,)
        case Collective():
            return (instruction.operand,), (instruction.result,)
        case Loop():
            raise TypeError("a loop is not one instruction")


def label(instruction: Instruction) -> str:
    """What to call an instruction in reports."""
    if isinstance(instruction, Run):
        root = instruction.attributes.get("root")
        return f"{instruction.operation}({root})" if root else instruction.operation
    return type(instruction).__name__.lower()


def digest(program: Program) -> int:
    """A number that programs share which do the same operations on the same types."""
    found = 0
    for _, instruction, _ in numbered(program.instructions):
        if isinstance(instruction, Loop):
            text = f"loop {instruction.count}"
        else:
            reads, writes = reads_and_writes(instruction)
            text = f"{label(instruction)} {[str(v.type) for v in (*reads, *writes)]}"
        found = zlib.crc32(text.encode(), found)
    return found


def numbered(instructions, start: int = 0) -> Iterator[tuple[int, Instruction, int]]:
    """Every instruction with its position and the end of the innermost loop around it, loops after their bodies.

    Yields ``(position, instruction, loop_start)``; a loop itself is yielded once, at the position of its end, with the
    position of its beginning.
    """
    at = start
    for instruction in instructions:
        if isinstance(instruction, Loop):
            begin = at = at + 1
            for item in numbered(instruction.body, at):
                at = item[0]
                yield item
            at += 1
            yield at, instruction, begin
        else:
            at += 1
            yield at, instruction, at


def _lifetimes(instructions: Sequence[Instruction], buffers: Mapping[int, Buffer]) -> None:
    """Set first, last and written of every buffer. What a loop reads from before it lives until the loop ends."""
    loops: list[tuple[int, int]] = []
    touched: dict[int, list[int]] = {}
    for at, instruction, begin in numbered(instructions):
        if isinstance(instruction, Loop):
            loops.append((begin, at))
            continue
        reads, writes = reads_and_writes(instruction)
        for view in (*reads, *writes):
            touched.setdefault(view.buffer, []).append(at)
        for view in writes:
            buffers[view.buffer].written = True
    for index, positions in touched.items():
        buffer = buffers[index]
        buffer.first, buffer.last = min(positions), max(positions)
    for begin, end in loops:  # inner loops come before outer ones
        for index in touched:
            buffer = buffers[index]
            enters, leaves = buffer.first < begin < buffer.last <= end, begin < buffer.first <= end < buffer.last
            if enters or leaves:
                buffer.last = max(buffer.last, end)
                buffer.first = min(buffer.first, begin)


def _write_in_place(instructions: list[Instruction], buffers: Mapping[int, Buffer]) -> dict[int, int]:
    """Buffers that can be the buffer into which a ``Copy`` would move them: ``{source: target}``.

    Safe when the target is not touched from the instruction that makes the source up to the copy, or is touched last by
    that very instruction and it works element by element.
    """
    merged: dict[int, int] = {}
    everywhere = Counter(v.buffer for i in instructions for v, _ in _touched(i))
    for body in _bodies(instructions):
        maker: dict[int, int] = {}
        touches: dict[int, list[int]] = {}
        for i, instruction in enumerate(body):
            for view, writes in _touched(instruction):
                touches.setdefault(view.buffer, []).append(i)
                if writes and view.buffer not in maker:
                    maker[view.buffer] = i
        for i, instruction in enumerate(body):
            if not isinstance(instruction, Copy):
                continue
            source, target = instruction.source.buffer, instruction.target.buffer
            made = maker.get(source)
            if made is None or source in merged or target in merged or buffers[source].state is not None:
                continue
            making = body[made]
            if isinstance(making, Loop | Copy) or buffers[source].type.size != buffers[target].type.size:
                continue
            if buffers[source].type.dtype != buffers[target].type.dtype or len(touches[source]) != everywhere[source]:
                continue
            between = [t for t in touches[target] if made <= t < i and t != i]
            exact = between == [made] and _in_place(making, source, target)
            if (not between or exact) and all(t <= i for t in touches[source]):
                merged[source] = target
    return merged


def _in_place(instruction: Instruction, source: int, target: int) -> bool:
    if isinstance(instruction, Collective):
        return instruction.operation == "all_reduce"
    if not isinstance(instruction, Run):
        return False
    if not (has(instruction.operation, "elementwise") or has(instruction.operation, "in_place")):
        return False
    result = next(v.type for v in instruction.results if v.buffer == source)
    return all(v.type == result for v in instruction.operands if v.buffer == target)


def _bodies(instructions) -> Iterator:
    yield instructions
    for instruction in instructions:
        if isinstance(instruction, Loop):
            yield from _bodies(instruction.body)


def _touched(instruction: Instruction) -> Iterator[tuple[View, bool]]:
    """Views that an instruction touches (a loop: all inside), each with whether it is written."""
    if isinstance(instruction, Loop):
        for inner in instruction.body:
            yield from _touched(inner)
        return
    reads, writes = reads_and_writes(instruction)
    yield from ((v, False) for v in reads)
    yield from ((v, True) for v in writes)


def _renamed(instruction: Instruction, merged: Mapping[int, int]) -> Instruction | None:
    """The instruction on merged buffers; ``None`` for a copy of a buffer to itself."""

    def view(v: View) -> View:
        return View(merged[v.buffer], v.type) if v.buffer in merged else v

    match instruction:
        case Run(operation, attributes, operands, results, origin):
            return Run(operation, attributes, tuple(map(view, operands)), tuple(map(view, results)), origin)
        case Load(stream, result):
            return Load(stream, view(result))
        case Store(stream, operand):
            return Store(stream, view(operand))
        case Collective(operation, attributes, operand, result):
            return Collective(operation, attributes, view(operand), view(result))
        case Copy(source, target):
            source, target = view(source), view(target)
            return None if source.buffer == target.buffer else Copy(source, target)
        case Loop(count, body):
            return Loop(count, tuple(kept for i in body if (kept := _renamed(i, merged)) is not None))

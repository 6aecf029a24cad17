"""Host fusion: a convolution, the batch norm behind it and the map behind that become one ``fused`` operation.

The tiles do them one after another; the host need not. Only inference has such norms: their numbers are state. The new
operation means the same, node by node, so that any provider runs it; oneDNN takes the norm into the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from abele.engine.program import Instruction, Loop, Program, Run, View, reads_and_writes, with_lifetimes
from abele.ops.elementwise import ELEMENTWISE

NORM = "batch_norm_inference"


def norm_body(eps: float) -> tuple[tuple[Any, ...], ...]:
    """Batch norm as a map of the root (-1), scale (-2), shift (-3), mean (-4) and variance (-5)."""
    return (
        ("sub", "f32", (-1, -4), ()),
        ("constant", "f32", (), (eps,)),
        ("add", "f32", (-5, 1), ()),
        ("rsqrt", "f32", (2,), ()),
        ("mul", "f32", (-2, 3), ()),
        ("mul", "f32", (0, 4), ()),
        ("add", "f32", (5, -3), ()),
    )


def fuse(program: Program) -> Program:
    """The program with convolutions and their norms as one."""
    uses: dict[int, int] = {}
    for instruction in _flat(program.instructions):
        for view in _views(instruction):
            uses[view.buffer] = uses.get(view.buffer, 0) + 1
    changed = _fused(program.instructions, program, uses)
    return with_lifetimes(changed, program)


def _flat(body: Sequence[Instruction]):
    for instruction in body:
        if isinstance(instruction, Loop):
            yield from _flat(instruction.body)
        else:
            yield instruction


def _views(instruction: Instruction) -> tuple[View, ...]:
    reads, writes = reads_and_writes(instruction)
    return (*reads, *writes)


def _fused(body: Sequence[Instruction], program: Program, uses: dict[int, int]) -> tuple[Instruction, ...]:
    done: list[Instruction | None] = []
    makers: dict[int, int] = {}
    for instruction in body:
        if isinstance(instruction, Loop):
            done.append(Loop(instruction.count, _fused(instruction.body, program, uses)))
            continue
        joined = instruction
        if isinstance(instruction, Run):
            for view in instruction.operands:
                place = makers.get(view.buffer)
                root = done[place] if place is not None else None
                if place is None or not isinstance(root, Run) or uses[view.buffer] != 2:
                    continue
                made = _joined(root, instruction, view, program)
                if made is not None and not _disturbed(root, done[place + 1 :]):
                    done[place] = None
                    joined = made
                    break
        for view in _views(joined)[len(reads_and_writes(joined)[0]) :]:
            makers[view.buffer] = len(done)
        done.append(joined)
    return tuple(i for i in done if i is not None)


def _disturbed(root: Run, between: Sequence[Instruction | None]) -> bool:
    """Whether an operand of the root is written before the place to which the root would move."""
    read = {v.buffer for v in root.operands}
    later = [i for i in between if i is not None]
    return any(v.buffer in read for i in _flat(later) for v in reads_and_writes(i)[1])


def _joined(root: Run, run: Run, view: View, program: Program) -> Run | None:
    """Both as one, or ``None`` where they do not go together."""
    if view.type != root.results[0].type or len(root.results) != 1 or str(view.type.dtype) != "f32":
        return None
    if root.operation == "conv" and run.operation == NORM and run.operands[0] is view:
        numbers = run.operands[1:]
        if any(str(v.type.dtype) != "f32" or not _constant(v, program) for v in numbers):
            return None
        shape = (view.type.shape[1], *(1,) * (view.type.rank - 2))
        extra = tuple(View(v.buffer, v.type.with_shape(shape)) for v in numbers)
        attributes = {
            "root": "conv",
            "root_attributes": tuple(root.attributes.items()),
            "root_operands": 2,
            "body": norm_body(float(run.attributes["eps"])),  # type: ignore[arg-type]
        }
        return Run("fused", attributes, (*root.operands, *extra), run.results, root.origin)
    after_norm = root.operation == "fused" and len(root.attributes["body"]) == len(norm_body(0.0))  # type: ignore[arg-type]
    if not after_norm or root.attributes["root"] != "conv" or run.results[0].type != view.type:
        return None
    return _with_map(root, run, view)


def _constant(view: View, program: Program) -> bool:
    buffer = program.buffers[view.buffer]
    return buffer.state is not None and not buffer.written


def _with_map(root: Run, run: Run, view: View) -> Run | None:
    """A convolution and its norm with the elementwise operation that alone reads them."""
    before: Any = root.attributes["body"]
    if run.operation == "map":
        body: Any = run.attributes["body"]
    elif run.operation in ELEMENTWISE:
        dtype = str(run.results[0].type.dtype)
        arguments = tuple(-1 - i for i in range(len(run.operands)))
        body = ((run.operation, dtype, arguments, tuple(run.attributes.values())),)
    else:
        return None
    others = [v for v in run.operands if v is not view]
    if len(others) != len(run.operands) - 1:
        return None
    first = len(root.operands) - 2 + 1
    numbers = {}
    for i, operand in enumerate(run.operands):
        numbers[-1 - i] = len(before) - 1 if operand is view else -1 - first - others.index(operand)
    nodes = tuple(
        (fn, dtype, tuple(numbers[a] if a < 0 else a + len(before) for a in args), params)
        for fn, dtype, args, params in body
    )
    attributes = dict(root.attributes) | {"body": (*before, *nodes)}
    return Run("fused", attributes, (*root.operands, *others), run.results, root.origin)

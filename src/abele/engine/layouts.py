"""Which buffers lie channels-last: one pass over a program, before anything is bound.

oneDNN's convolutions are fastest on images whose channels are neighbours in memory, and so are norms over channels. A
buffer lies so when it only ever holds one four-dimensional tensor, a convolution or pool reads or makes it (or it meets
such a one element by element), and all that touch it work on any strides. Weights and other state stay row-major.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from abele.engine.program import (
    Collective,
    Copy,
    Instruction,
    Load,
    Loop,
    Program,
    Run,
    Store,
    View,
    numbered,
    reads_and_writes,
)
from abele.ir.operation import has

CHANNELS_LAST = (0, 2, 3, 1)
_IMAGES = {
    "conv": ((0,), (0,)),
    "conv_input_grad": ((0,), (0,)),
    "conv_weight_grad": ((0, 1), ()),
    "max_pool": ((0,), (0,)),
    "max_pool_grad": ((0, 1, 2), (0,)),
    "avg_pool": ((0,), (0,)),
    "avg_pool_grad": ((0,), (0,)),
}
"""For operations on images: which operands and which results are images."""


def orders(program: Program) -> dict[int, tuple[int, ...]]:
    """For every buffer that does not lie row-major: its dimensions as they lie in memory, outermost first."""
    body = [i for _, i, _ in numbered(program.instructions) if not isinstance(i, Loop)]
    fit = _fitting(program, body)
    chosen = {v.buffer for i in body for v in _images(i) if v.buffer in fit}
    while True:
        more = {b for i in body if isinstance(i, Run | Copy | Collective) for b in _neighbours(i, chosen) if b in fit}
        if more <= chosen:
            return dict.fromkeys(sorted(chosen), CHANNELS_LAST)
        chosen |= more


def _alike(operation: str) -> bool:
    """Whether operands and results of one shape should lie alike."""
    return has(operation, "elementwise") or has(operation, "alike")


def _root(run: Run) -> str:
    return str(run.attributes.get("root", run.operation))


def _images(instruction: Instruction) -> Iterator[View]:
    if isinstance(instruction, Run) and _root(instruction) in _IMAGES:
        operands, results = _IMAGES[_root(instruction)]
        views = [*(instruction.operands[i] for i in operands), *(instruction.results[i] for i in results)]
        yield from (v for v in views if v.type.rank == 4)


def _fitting(program: Program, body: Sequence[Instruction]) -> set[int]:
    """Buffers that may lie channels-last."""
    fit = {i for i, b in program.buffers.items() if b.type.rank == 4 and b.state is None}
    for instruction in body:
        reads, writes = reads_and_writes(instruction)
        free = set(map(id, _images(instruction)))
        takes = isinstance(instruction, Load | Store | Copy | Collective) or (
            isinstance(instruction, Run)
            and (_alike(instruction.operation) or has(instruction.operation, "any_strides"))
        )
        root = _root(instruction) if isinstance(instruction, Run) else ""
        for place, view in enumerate((*reads, *writes)):
            extra = root in _IMAGES and place >= 2
            if view.buffer in fit and (
                view.type.shape != program.buffers[view.buffer].type.shape or not (takes or extra or id(view) in free)
            ):
                fit.discard(view.buffer)
    return fit


def _neighbours(instruction: Instruction, chosen: set[int]) -> Iterator[int]:
    """Buffers that should lie as those in ``chosen`` that the instruction touches."""
    reads, writes = reads_and_writes(instruction)
    views = [*reads, *writes]
    if isinstance(instruction, Run) and not _alike(instruction.operation):
        if _root(instruction) not in _IMAGES:
            return
        views = [*instruction.operands[2:], *_images(instruction)] if instruction.operation == "fused" else []
    shapes = {v.type.shape for v in views if v.buffer in chosen}
    yield from (v.buffer for v in views if v.type.shape in shapes)

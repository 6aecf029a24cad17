"""Collectives as the engine runs them: over the replicas of this process, then over those of the others.

Sums are in order, in float64 where there are more than two floats to add; so it makes no difference beyond the last
bit over how many processes the replicas are spread. All-reduces in a row travel together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from abele.engine.processes import Processes
from abele.engine.program import Collective
from abele.errors import Bug
from abele.ir.types import DType
from abele.ops.collectives.replicas import groups, over_replicas

Run = Callable[[], None]
BUFFER = 1 << 22
"""Elements that travel at a time."""


@dataclass(frozen=True)
class Arrays:
    """A collective with its operand and its result on each replica of this process."""

    instruction: Collective
    sources: Sequence[np.ndarray]
    targets: Sequence[np.ndarray]

    @property
    def reduces(self) -> bool:
        """Whether it sums, so that a half result is to be rounded."""
        return "reduction" in self.instruction.attributes

    @property
    def half(self) -> bool:
        """Whether results are to be rounded to half: sums of what is half."""
        return self.reduces and self.instruction.operand.type.dtype is DType.F16

    def wide(self, members: int) -> np.dtype:
        """The type in which it computes."""
        kind = self.sources[0].dtype
        return np.dtype(np.float64) if self.reduces and kind.kind == "f" and members > 2 else kind


@dataclass(frozen=True)
class Part:
    """Which replicas this process has: ``count`` from ``first``, of ``total``."""

    first: int
    count: int
    total: int


def stays(instruction: Collective, part: Part) -> bool:
    """Whether every group of a collective lies within one process, so that nothing is sent."""
    size, stride = _members(instruction, part), int(instruction.attributes.get("stride", 1))
    return size == 1 or part.count == part.total or part.count % (size * stride) == 0


def travels(instruction: Collective, part: Part) -> bool:
    """Whether a collective is an all-reduce over all replicas of several processes, which may travel with others."""
    everyone = _members(instruction, part) == part.total
    return instruction.operation == "all_reduce" and everyone and not stays(instruction, part)


def _members(instruction: Collective, part: Part) -> int:
    """How many replicas a group has."""
    return int(instruction.attributes.get("group", 0)) or part.total


def apart(arrays: Arrays, batch: Sequence[Arrays]) -> bool:
    """Whether a collective neither reads nor overwrites what those of a batch make."""
    made = [_extent(other.targets[0]) for other in batch]
    touched = [_extent(arrays.sources[0]), _extent(arrays.targets[0])]
    return not any(low < end and begin < high for low, high in touched for begin, end in made)


def _extent(array: np.ndarray) -> tuple[int, int]:
    return array.ctypes.data, array.ctypes.data + array.nbytes


def local(arrays: Arrays) -> Run:
    """A collective over the replicas of this process."""
    instruction, sources, targets = arrays.instruction, arrays.sources, arrays.targets
    attributes, half = instruction.attributes, arrays.half
    members = len(groups(len(sources), attributes)[0])
    wide = arrays.wide(members)

    def run() -> None:
        made = over_replicas(instruction.operation, [s.astype(wide, copy=False) for s in sources], attributes)
        for target, value in zip(targets, made, strict=True):
            _put(target, value, half)

    def copy() -> None:
        for source, target in zip(sources, targets, strict=True):
            np.copyto(target, source)

    return copy if members == 1 and sources[0].shape == targets[0].shape else run


def across(arrays: Arrays, part: Part, processes: Processes) -> Run:
    """A collective over replicas of several processes, other than those that travel together."""
    instruction, sources, targets = arrays.instruction, arrays.sources, arrays.targets
    operation, attributes, half = instruction.operation, instruction.attributes, arrays.half
    members = _members(instruction, part)
    wide = arrays.wide(members)
    own = slice(part.first, part.first + part.count)

    def everyone() -> list[np.ndarray]:
        if operation == "replica_shard":  # each takes its part of what it has itself
            return [sources[0]] * part.first + list(sources) + [sources[0]] * (part.total - own.stop)
        stacked = np.stack(sources)
        gathered = processes.gather(stacked, operation).reshape(part.total, *sources[0].shape)
        return list(gathered)

    def run() -> None:
        made = over_replicas(operation, [v.astype(wide, copy=False) for v in everyone()], attributes)
        for target, value in zip(targets, made[own], strict=True):
            _put(target, value, half)

    def scatter() -> None:
        total = sources[0].astype(wide)
        for source in sources[1:]:
            total += source
        processes.sum(total, operation)
        if attributes["reduction"] == "mean":
            total /= members
        size = targets[0].size
        flat = np.zeros(size * members, wide)
        flat[: total.size] = total.reshape(-1)
        for target, value in zip(targets, flat.reshape(members, size)[own], strict=True):
            _put(target, value, half)

    return scatter if operation == "reduce_scatter" and members == part.total else run


def together(batch: Sequence[Arrays], part: Part, processes: Processes) -> Run:
    """All-reduces over all replicas, that do not read each other's results, in as few messages as fit the buffer."""
    pieces = [piece for arrays in batch for piece in _pieces(arrays, part.total)]
    messages: list[list[_Piece]] = []
    for piece in pieces:
        last = messages[-1] if messages else []
        filled = sum(p.size for p in last)
        if last and last[0].wide == piece.wide and filled + piece.size <= BUFFER:
            last.append(piece)
        else:
            messages.append([piece])
    buffers = [np.empty(sum(p.size for p in message), message[0].wide) for message in messages]
    copies = [
        (source, target)
        for arrays in batch
        for source, target in zip(arrays.sources, arrays.targets, strict=True)
        if source.ctypes.data != target.ctypes.data
    ]

    def run() -> None:
        for source, target in copies:
            np.copyto(target, source)
        for message, buffer in zip(messages, buffers, strict=True):
            at = 0
            for piece in message:
                summed = buffer[at : at + piece.size]
                np.copyto(summed, piece.flats[0])
                for flat in piece.flats[1:]:
                    summed += flat
                at += piece.size
            processes.sum(buffer, "all_reduce")
            at = 0
            for piece in message:
                summed = buffer[at : at + piece.size]
                if piece.divide:
                    summed /= part.total
                for flat in piece.flats:
                    _put(flat, summed, piece.half)
                at += piece.size

    return run


@dataclass(frozen=True)
class _Piece:
    """A run of elements of one tensor on each replica of this process, and how it is reduced."""

    flats: Sequence[np.ndarray]
    wide: np.dtype
    divide: bool
    half: bool

    @property
    def size(self) -> int:
        return self.flats[0].size


def _pieces(arrays: Arrays, members: int) -> list[_Piece]:
    wide, divide = arrays.wide(members), arrays.instruction.attributes["reduction"] == "mean"
    flats = [_flat(target) for target in arrays.targets]
    starts = range(0, flats[0].size, BUFFER)
    return [_Piece([f[at : at + BUFFER] for f in flats], wide, divide, arrays.half) for at in starts]


def _flat(array: np.ndarray) -> np.ndarray:
    """The elements of an array of the arena as they lie in memory, without a copy."""
    order = np.argsort([-stride for stride in array.strides], kind="stable")
    flat = array.transpose(order).reshape(-1)
    if not np.may_share_memory(flat, array):
        raise Bug(f"An array of shape {array.shape} has gaps between its elements: strides {array.strides}")
    return flat


def _put(target: np.ndarray, value: np.ndarray, half: bool) -> None:
    if half:
        with np.errstate(over="ignore"):
            value = value.astype(np.float16)
    target[...] = value

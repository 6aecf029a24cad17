"""Kinds of vertex: what a small program on one tile computes, and what it costs.

Plans name a kind; its meaning runs in the reference executor, its cycles are charged by cost. A kind is registered
by the family of operations that uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from abele.errors import Bug
from abele.ir.graph import Attribute, Attributes
from abele.ir.types import DType, TensorType
from abele.machine.chip import Chip


@dataclass(frozen=True, slots=True)
class Block:
    """One vertex: for every axis of the grid, by name, the steps ``[start, stop)`` that are its own, the view shapes
    of what it reads and writes, and the regions of those views that it touches."""

    axes: Mapping[str, tuple[int, int]]
    reads: tuple[tuple[slice, ...], ...]
    writes: tuple[tuple[slice, ...], ...]


@dataclass(frozen=True, slots=True)
class Work:
    """All vertices of a compute set, by class: vertices of a class do the same amount of work.

    Attributes:
        lengths: axis name to part length, ``int64[classes]``.
        reads, writes: elements touched through each access by a vertex of each class, ``int64[classes]`` (at most).
        read_types, write_types: types of the tensors touched.
        attributes: the compute set's.
    """

    lengths: Mapping[str, np.ndarray]
    reads: tuple[np.ndarray, ...]
    writes: tuple[np.ndarray, ...]
    read_types: tuple[TensorType, ...]
    write_types: tuple[TensorType, ...]
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class VertexKind:
    """A kind of vertex.

    Attributes:
        name: as plans write it.
        compute: the meaning: given the block, the pieces it reads (views cut to its regions, floats as float64) and
            the attributes, the pieces it writes, which the caller rounds to their types.
        cycles: tile cycles of one vertex of each class, ``[classes]``, all worker threads of the tile used.
        code: names of the estimates in ``machine.cycles`` whose code the tile must hold.
        temporary_bytes: bytes of scratch on the tile beside what is read and written, ``[classes]``.
    """

    name: str
    compute: Callable[[Block, Sequence[np.ndarray], Attributes], Sequence[np.ndarray]]
    cycles: Callable[[Chip, Work], np.ndarray]
    code: tuple[str, ...] = ()
    temporary_bytes: Callable[[Work], np.ndarray] | None = None


KINDS: dict[str, VertexKind] = {}


def register_vertex(kind: VertexKind) -> VertexKind:
    """Add a kind; a name is registered once."""
    if kind.name in KINDS:
        raise ValueError(f"vertex {kind.name!r} is registered twice")
    KINDS[kind.name] = kind
    return kind


THEN = "Then"
"""Between the names of two kinds: a vertex that runs one and hands its only result to the other."""


def then(
    first: str,
    given: Attributes,
    reads: int,
    made: TensorType,
    second: str,
    other: Attributes,
) -> tuple[str, dict[str, Attribute]]:
    """Name and attributes of the kind that runs ``first`` on its ``reads`` operands, and ``second`` on what that made
    (a tensor of type ``made``) and the operands left."""
    attributes: dict[str, Attribute] = {"reads": reads, "dtype": str(made.dtype), "shape": made.shape}
    return first + THEN + second, attributes | {"first": tuple(given.items()), "second": tuple(other.items())}


def _handed_on(name: str) -> VertexKind:
    first, second = (vertex_kind(part) for part in name.split(THEN))

    def parts(attributes: Attributes) -> tuple[int, TensorType, dict, dict]:
        made = TensorType(attributes["shape"], DType(str(attributes["dtype"])))
        return int(attributes["reads"]), made, dict(attributes["first"]), dict(attributes["second"])

    def compute(block: Block, pieces: Sequence[np.ndarray], attributes: Attributes):
        n, made, given, other = parts(attributes)
        (piece,) = first.compute(Block(block.axes, block.reads[:n], block.writes), pieces[:n], given)
        piece = piece.astype(made.dtype.numpy).astype(piece.dtype)
        then = Block(block.axes, (block.writes[0], *block.reads[n:]), block.writes)
        return second.compute(then, [piece, *pieces[n:]], other)

    def split(work: Work) -> tuple[Work, Work]:
        n, made, given, other = parts(work.attributes)
        size = work.writes[0]
        return (
            Work(work.lengths, work.reads[:n], (size,), work.read_types[:n], (made,), given),
            Work(
                work.lengths,
                (size, *work.reads[n:]),
                work.writes,
                (made, *work.read_types[n:]),
                work.write_types,
                other,
            ),
        )

    def cycles(chip: Chip, work: Work) -> np.ndarray:
        a, b = split(work)
        return np.asarray(first.cycles(chip, a)) + np.asarray(second.cycles(chip, b))

    def scratch(work: Work) -> np.ndarray:
        """What is handed on, and the larger scratch of the two."""
        each = [
            np.asarray(kind.temporary_bytes(w) if kind.temporary_bytes else 0)
            for kind, w in zip((first, second), split(work), strict=True)
        ]
        return work.writes[0] * parts(work.attributes)[1].dtype.bytes + np.maximum(each[0], each[1])

    return VertexKind(name, compute, cycles, tuple(dict.fromkeys(first.code + second.code)), scratch)


def vertex_kind(name: str) -> VertexKind:
    """The registered kind, or the one that two registered kinds make together."""
    if name not in KINDS and THEN in name:
        KINDS[name] = _handed_on(name)
    if name not in KINDS:
        raise Bug(f"A plan names the vertex {name!r}, which no family registers")
    return KINDS[name]

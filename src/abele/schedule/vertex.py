"""Kinds of vertex: what a small program on one tile computes, and what it costs.

Plans name a kind; its meaning runs in the reference executor, its cycles are charged by cost. A kind is registered
by the family of operations that uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from abele.errors import Bug
from abele.ir.graph import Attribute
from abele.ir.types import TensorType
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
    attributes: Mapping[str, Attribute]


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
    compute: Callable[[Block, Sequence[np.ndarray], Mapping[str, Attribute]], Sequence[np.ndarray]]
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


def vertex_kind(name: str) -> VertexKind:
    """The registered kind."""
    if name not in KINDS:
        raise Bug(f"A plan names the vertex {name!r}, which no family registers")
    return KINDS[name]

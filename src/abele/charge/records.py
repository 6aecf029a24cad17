"""What charging finds: tile cycles by kind, and what the compute sets of a plan take and move."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abele.charge.runs import Runs

PARTS = ("compute", "exchange", "links", "sync", "host", "bubble", "overhead")
"""Kinds of cycles. ``exchange`` is between tiles of one IPU, ``links`` between IPUs and replicas; ``sync`` holds the
start of compute sets too; ``bubble`` is the time in which the slowest stage of a pipeline waits; ``overhead`` is the
host's between two device iterations, which no program shortens (``System.host_return_seconds``)."""


@dataclass(frozen=True, slots=True)
class Cycles:
    """Tile cycles by kind."""

    compute: float = 0.0
    exchange: float = 0.0
    links: float = 0.0
    sync: float = 0.0
    host: float = 0.0
    bubble: float = 0.0
    overhead: float = 0.0

    @property
    def total(self) -> float:
        return self.compute + self.exchange + self.links + self.sync + self.host + self.bubble + self.overhead

    def __add__(self, other: Cycles) -> Cycles:
        return Cycles(
            self.compute + other.compute,
            self.exchange + other.exchange,
            self.links + other.links,
            self.sync + other.sync,
            self.host + other.host,
            self.bubble + other.bubble,
            self.overhead + other.overhead,
        )

    def __mul__(self, factor: float) -> Cycles:
        return Cycles(*(getattr(self, part) * factor for part in PARTS))

    def as_dict(self) -> dict[str, float]:
        return {part: getattr(self, part) for part in PARTS}


@dataclass(frozen=True)
class Moved:
    """What is exchanged before a compute set.

    Attributes:
        received: bytes received by each tile, other IPUs' included.
        sent: bytes that one tile sends, at most; what several tiles receive is sent once.
        linked: bytes that cross from other IPUs, each element once.
        exchange, links: cycles between the tiles, and those that the links take longer.
        code: bytes of exchange code on each tile.
    """

    received: Runs
    sent: int
    linked: int
    exchange: float
    links: float
    code: Runs


@dataclass(frozen=True)
class SetCost:
    """One compute set: cycles, and what moves.

    Attributes:
        vertex: the kind of its vertices, ``vertices`` of them.
        each: cycles of a vertex of each class of the grid, ``float64[classes]``.
        compute, sync: tile cycles.
        moved: its exchange.
        busy: cycles of all vertices together, for the balance of tiles.
        touched: bytes that the vertices load and store.
        scratch: bytes of scratch on a tile, at most.
    """

    vertex: str
    vertices: int
    each: np.ndarray
    compute: float
    sync: float
    moved: Moved
    busy: float
    touched: int
    scratch: int


@dataclass(frozen=True)
class PlanCost:
    """All compute sets of a plan."""

    sets: tuple[SetCost, ...]
    cycles: Cycles
    vertices: int
    received: int
    linked: int
    touched: int
    busy: float

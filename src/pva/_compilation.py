"""What was compiled: the target, tiles and their memory, programs, compute sets, and what lives when."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import cached_property, lru_cache

import numpy as np

from pva._code import VertexMemory
from pva._data import Data, Lazy, missing
from pva._lowered import CATEGORIES, LoweredVariables, Variable
from pva._programs import ComputeSet, Program, Programs


class Architecture(Enum):
    Unknown = 0
    Ipu1 = 1
    Ipu2 = 2
    Ipu21 = 21


class TargetType(Enum):
    Ipu = 0
    IpuModel = 1
    Cpu = 2
    Unknown = 3


_CHIPS = {
    "mk1": Architecture.Ipu1,
    "gc200": Architecture.Ipu2,
    "c600": Architecture.Ipu2,
    "bow": Architecture.Ipu21,
}

NO_SUCH = (
    *("constant", "controlId", "controlTable", "copyDescriptor", "globalExchangeCode", "globalExchangePacketHeader"),
    *("globalMessage", "hostExchangeCode", "hostExchangePacketHeader", "hostMessage", "instrumentationResults"),
    *("internalExchange", "message", "multiple", "outputEdge", "rearrangement", "sharedCodeStorage"),
    *("sharedDataStorage", "vectorListDescriptor", "vertexFieldData"),
)
"""The vendor's categories that Abele counts within others: they are 0."""


class Target:
    """The machine that was compiled for, all replicas together."""

    Type = TargetType

    def __init__(self, data: Data) -> None:
        self._data = data

    @property
    def architecture(self) -> Architecture:
        """``Unknown`` for a chip that is none of the vendor's."""
        return _CHIPS.get(self._data.summary["chip"], Architecture.Unknown)

    @property
    def type(self) -> TargetType:
        """Cycles and memory are modelled."""
        return TargetType.IpuModel

    @property
    def clockFrequency(self) -> float:
        """Hz."""
        return float(self._data.summary["clock_hz"])

    @property
    def numReplicas(self) -> int:
        return self._data.replicas

    @property
    def ipusPerReplica(self) -> int:
        return self._data.ipus

    @property
    def numIPUs(self) -> int:
        return self._data.ipus * self._data.replicas

    @property
    def tilesPerIpu(self) -> int:
        """Tiles that the program lies on, without those that are set aside for transfers."""
        return self._data.tiles

    @property
    def tilesPerReplica(self) -> int:
        return self._data.tiles * self._data.ipus

    @property
    def numTiles(self) -> int:
        return self.tilesPerReplica * self._data.replicas

    @property
    def bytesPerTile(self) -> int:
        return int(self._data.summary["tile_memory"]["limit"])

    @property
    def bytesPerIPU(self) -> int:
        return self.bytesPerTile * self.tilesPerIpu

    @property
    def memoryPerReplica(self) -> int:
        return self.bytesPerIPU * self._data.ipus

    @property
    def totalMemory(self) -> int:
        return self.memoryPerReplica * self._data.replicas

    minSyncDelay = missing("target.minSyncDelay", "Syncs are programs of their own, with their cycles.")
    relativeSyncDelayByTile = missing("target.relativeSyncDelayByTile", "Every tile is charged the same sync.")


class Graph:
    """Counts over the compiled graph."""

    def __init__(self, compilation: CompilationReport) -> None:
        self._compilation = compilation

    @property
    def numComputeSets(self) -> int:
        return len(self._compilation.computeSets)

    @property
    def numVertices(self) -> int:
        """Of all compute sets."""
        programs = self._compilation._programs
        sets = programs.set[programs.runs_set]
        return int(programs.data.numbers("sets", "vertices")[sets[sets >= 0]].sum())

    @property
    def numVars(self) -> int:
        """Storages of tensors, each once, however many tiles it lies on."""
        return len([each for each in self._compilation._data.words("tensors", "type") if each])

    @property
    def numEdges(self) -> int:
        """Of the vertices of all compute sets, one to each tensor that a vertex touches."""
        return self._compilation._programs.code.edges


class Bytes:
    """Bytes with the gaps between them and without. Abele's model of a tile has no gaps, so that the two are equal."""

    def __init__(self, count: int) -> None:
        self.includingGaps = self.excludingGaps = count


class Total:
    """Bytes of a category."""

    def __init__(self, total: int) -> None:
        self.total = total

    interleaved = missing("category.interleaved", "Memory elements are not told apart.")
    nonInterleaved = missing("category.nonInterleaved", "Memory elements are not told apart.")


class Category:
    """Bytes of a tile by the vendor's categories: see ``CATEGORIES`` and ``NO_SUCH``."""

    def __init__(self, held: dict[str, int]) -> None:
        self._held = held

    def __getattr__(self, name: str) -> Total:
        if name in NO_SUCH or name in CATEGORIES:
            return Total(self._held.get(name, 0))
        raise AttributeError(f"Memory has no category {name!r}")

    def __dir__(self) -> list[str]:
        return sorted([*CATEGORIES, *NO_SUCH])


class TileMemory:
    """Memory of a tile."""

    def __init__(self, data: Data, row: int) -> None:
        self._data, self._row = data, row

    @property
    def total(self) -> Bytes:
        """The most that is held at any moment."""
        return Bytes(int(self._data.numbers("tiles", "total")[self._row]))

    @property
    def overflowed(self) -> Bytes:
        """What is more than a tile has."""
        limit = int(self._data.summary["tile_memory"]["limit"])
        return Bytes(max(0, self.total.excludingGaps - limit))

    @property
    def alwaysLiveBytes(self) -> int:
        return sum(self._always.values())

    @property
    def notAlwaysLiveBytes(self) -> int:
        return self.total.excludingGaps - self.alwaysLiveBytes

    @property
    def category(self) -> Category:
        always = self._always
        held = {theirs: always.get(ours, 0) for theirs, ours in CATEGORIES.items()}
        held["variable"] += always.get("hyper", 0) + self.notAlwaysLiveBytes
        return Category(held)

    @property
    def _always(self) -> dict[str, int]:
        columns = self._data.tables["tiles"].columns
        return {n: int(self._data.numbers("tiles", n)[self._row]) for n in columns if n not in ("ipu", "tile", "total")}

    @property
    def vertices(self) -> list[VertexMemory]:
        """The kinds of vertices of which the tile holds code; together they are ``category.vertexCode``."""
        ipu, tile = divmod(self._row, self._data.tiles)
        return [VertexMemory(name, size) for of, name, size, on in self._data.codelets if of == ipu and on[tile]]


class Tile:
    """A tile that the program lies on."""

    def __init__(self, data: Data, row: int) -> None:
        self.memory = TileMemory(data, row)


class IPU:
    """An IPU in use."""

    Architecture = Architecture

    def __init__(self, data: Data, number: int) -> None:
        first = number * data.tiles
        self.tiles: Sequence[Tile] = Lazy(data.tiles, lambda tile: Tile(data, first + tile))


class LiveMemory:
    """What lives at a moment and not always, on all tiles of a replica, of one IPU, or on one tile of it."""

    def __init__(self, data: Data, moment: int, total: int, ipu: int | None = None, tile: int | None = None) -> None:
        self._data, self._moment, self._ipu, self._tile = data, moment, ipu, tile
        self.bytes = total

    @property
    def variables(self) -> list[Variable]:
        d, at = self._data, self._moment
        live = (d.numbers("tensors", "first") <= at) & (d.numbers("tensors", "last") >= at)
        live &= d.numbers("tensors", "always") == 0
        if self._ipu is not None:
            live &= d.numbers("tensors", "ipu") == self._ipu
        if self._tile is None:
            return [Variable(d, row) for row in np.flatnonzero(live).tolist()]
        held = d.on_tile(self._tile)
        return [Variable(d, row, int(held[row])) for row in np.flatnonzero(live & (held != 0)).tolist()]


class LivenessStep:
    """A program at its place in the order of execution, of loops the first turn."""

    def __init__(self, liveness: Liveness, place: int) -> None:
        self._liveness, self._place = liveness, place

    @property
    def program(self) -> Program:
        return self._liveness.programs[int(self._liveness.program[self._place])]

    @property
    def notAlwaysLiveMemory(self) -> LiveMemory:
        moment = int(self._liveness.moment[self._place])
        return LiveMemory(self._liveness.data, moment, int(self._liveness.bytes[:, moment].sum()))

    def notAlwaysLiveMemoryForIpu(self, ipu: int) -> LiveMemory:
        """On the tiles of one IPU, counted over all replicas."""
        ipu = self._liveness.data.ipu(ipu)
        moment = int(self._liveness.moment[self._place])
        return LiveMemory(self._liveness.data, moment, int(self._liveness.bytes[ipu, moment]), ipu)

    def notAlwaysLiveMemoryForTile(self, tile: int) -> LiveMemory:
        """On one of all tiles."""
        data, moment = self._liveness.data, int(self._liveness.moment[self._place])
        _, ipu, own = data.place(tile)
        return LiveMemory(data, moment, int(self._liveness.of_tile(ipu, own)[moment]), ipu, own)


class Liveness(Lazy[LivenessStep]):
    """The steps of liveness: the programs of every moment.

    Attributes:
        program, moment: of each step.
        bytes: of what does not live always, ``int64[ipus of a replica, moments]``.
    """

    def __init__(self, data: Data, programs: Programs) -> None:
        self.data, self.programs = data, programs
        operation = data.numbers("moments", "operation").tolist()
        steps = [(n, at) for at, row in enumerate(operation) if row >= 0 for n in programs.leaves[row]]
        self.program, self.moment = np.array(steps, np.int64).reshape(-1, 2).T
        self.bytes = self._line(data.numbers("tensors", "bytes").astype(np.int64))
        self.of_tile = lru_cache(maxsize=16)(self._of_tile)
        super().__init__(len(steps), lambda place: LivenessStep(self, place))

    def _of_tile(self, ipu: int, tile: int) -> np.ndarray:
        """Bytes of what does not live always on one tile, ``int64[moments]``."""
        return self._line(self.data.on_tile(tile))[ipu]

    def _line(self, size: np.ndarray) -> np.ndarray:
        """What storages of that size that do not live always take at each moment, ``int64[ipus, moments]``."""
        data, line = self.data, np.zeros((self.data.ipus, self.data.tables["moments"].count + 1), np.int64)
        changing = np.flatnonzero(data.numbers("tensors", "always") == 0)
        ipu, first, last = (data.numbers("tensors", n)[changing].astype(np.int64) for n in ("ipu", "first", "last"))
        np.add.at(line, (np.maximum(ipu, 0), first), size[changing])
        np.subtract.at(line, (np.maximum(ipu, 0), last + 1), size[changing])
        return np.cumsum(line, axis=1)


class CompilationReport:
    """What the compiler made."""

    def __init__(self, data: Data, programs: Programs) -> None:
        self._data, self._programs = data, programs
        self.target, self.graph = Target(data), Graph(self)

    @property
    def ipus(self) -> Sequence[IPU]:
        """Of all replicas, one replica after another."""
        data = self._data
        return Lazy(data.ipus * data.replicas, lambda number: IPU(data, number % data.ipus))

    @property
    def tiles(self) -> Sequence[Tile]:
        """Of all IPUs of all replicas."""
        data = self._data
        one = data.ipus * data.tiles
        return Lazy(one * data.replicas, lambda number: Tile(data, number % one))

    @property
    def programs(self) -> Sequence[Program]:
        """All of them; those that others run are their ``children`` too."""
        return self._programs

    @cached_property
    def computeSets(self) -> Sequence[ComputeSet]:
        places = np.flatnonzero(self._programs.runs_set)
        return Lazy(len(places), lambda i: ComputeSet(self._programs, int(places[i])))

    @property
    def livenessProgramSteps(self) -> Sequence[LivenessStep]:
        return self._liveness

    @cached_property
    def _liveness(self) -> Liveness:
        return Liveness(self._data, self._programs)

    @cached_property
    def alwaysLiveVariables(self) -> Sequence[Variable]:
        data = self._data
        rows = np.flatnonzero(data.numbers("tensors", "always")).tolist()
        return Lazy(len(rows), lambda i: Variable(data, rows[i]))

    def alwaysLiveVariablesForTile(self, tile: int) -> list[Variable]:
        """The same on one of all tiles."""
        data = self._data
        _, ipu, own = data.place(tile)
        held, on = data.on_tile(own), np.maximum(data.numbers("tensors", "ipu"), 0)
        rows = np.flatnonzero((data.numbers("tensors", "always") != 0) & (on == ipu) & (held > 0)).tolist()
        return [Variable(data, row, int(held[row])) for row in rows]

    @cached_property
    def loweredVariables(self) -> LoweredVariables:
        """The parts of all variables on single tiles."""
        return LoweredVariables(self._data, self._liveness.moment)

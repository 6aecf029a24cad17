"""Bins of what is too fine to draw: of moments × tiles the most, the least and the sum.

The cell of a moment and a tile is the share of the moment's time in which the tile works, or exchanges. A bin of level
n is 16ⁿ moments of one IPU, neighbours in its own line of moments, and 4ⁿ⁻¹ tiles. ``max`` and ``min`` are of the
shares, ``sum`` is the time: cycles of all its tiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from abele.report.store.schema import PHASES

MOMENTS, TILES = 16, 4
"""Moments (tiles) of a bin that one of the next level holds."""

FEWEST = 512
"""An IPU of fewer moments has no bins: its cells themselves are soon drawn."""


def rasters(
    moments: Mapping[str, Any],
    like: Any,
    sets: Mapping[str, Any],
    columns: Mapping[str, Any],
    *,
    ipus: int,
    tiles: int,
) -> Iterator[tuple[tuple[int, int], dict[str, Any]]]:
    """Every level of every IPU, as ``ProgramRecord.rasters`` has them.

    Args:
        moments, sets, columns: the tables of these names.
        like: that column of the operations.
        ipus, tiles: of the program, and of an IPU.
    """
    if not len(sets["id"]):
        return
    cells = _Cells(moments, np.asarray(like), sets, _Columns(columns, tiles))
    place = np.asarray(moments["ipu"])
    for ipu in range(ipus):
        own = np.flatnonzero(place == ipu)
        if len(own) < FEWEST:
            continue
        found = cells.binned(own)
        n = 1
        while True:
            flat = {f"{what}.{how}": array.ravel() for what, of in found.items() for how, array in of.items()}
            height, width = found["work"]["max"].shape
            yield (n, ipu), {**flat, "bins": height, "tile_bins": width}
            if height <= MOMENTS:
                break
            found = {what: coarser(of) for what, of in found.items()}
            n += 1


def coarser(level: Mapping[str, np.ndarray], moments: int = MOMENTS, tiles: int = TILES) -> dict[str, np.ndarray]:
    """The next level of bins ``max``, ``min`` and ``sum``, each ``[bins, tile bins]``."""
    found: dict[str, np.ndarray] = {}
    for name, ufunc in (("max", np.maximum), ("min", np.minimum), ("sum", np.add)):
        array = level[name]
        for axis, size in enumerate((moments, tiles)):
            array = ufunc.reduceat(array, np.arange(0, array.shape[axis], size), axis=axis)
        found[name] = array
    return found


AT_ONCE = 64 * MOMENTS
"""So many moments are laid out over the tiles together."""


class _Cells:
    """The cells of moments × tiles, laid out for some moments at a time."""

    def __init__(
        self, moments: Mapping[str, Any], like: np.ndarray, sets: Mapping[str, Any], columns: _Columns
    ) -> None:
        self.columns = columns
        order = np.argsort(sets["operation"], kind="stable")
        owner = np.asarray(sets["operation"])[order]
        self.work, self.received = (np.asarray(sets[name])[order] for name in ("work", "received"))
        self.rate = np.asarray(sets["exchange"], float)[order] / np.maximum(columns.most(self.received), 1)
        operation = like[np.asarray(moments["operation"])]
        self.first, self.last = (np.searchsorted(owner, operation, side) for side in ("left", "right"))
        self.length = np.sum([np.asarray(moments[name], float) for name in PHASES], axis=0)

    def binned(self, own: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
        """Bins of level 1 of these moments: ``work`` and ``exchange``, each ``max``, ``min`` and ``sum``."""
        parts = [self._binned(own[at : at + AT_ONCE]) for at in range(0, len(own), AT_ONCE)]
        return {
            what: {how: np.concatenate([part[what][how] for part in parts]) for how in ("max", "min", "sum")}
            for what in ("work", "exchange")
        }

    def _binned(self, own: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
        counts = self.last[own] - self.first[own]
        rows = _ranges(self.first[own], counts)
        busy = np.flatnonzero(counts)
        starts = (np.cumsum(counts) - counts)[busy]
        at = np.arange(0, len(own), MOMENTS)
        found: dict[str, dict[str, np.ndarray]] = {}
        for what, of, times in (("work", self.work, None), ("exchange", self.received, self.rate[rows])):
            cycles = np.zeros((len(own), self.columns.tiles), np.float32)
            if len(rows):
                dense = self.columns.dense(of[rows])
                if times is not None:
                    dense *= times.astype(np.float32)[:, None]
                cycles[busy] = dense if len(busy) == len(rows) else np.add.reduceat(dense, starts, axis=0)
            total = np.add.reduceat(cycles, at, axis=0)
            cycles *= (1 / np.maximum(self.length[own], 1e-9)).astype(np.float32)[:, None]
            most, least = (ufunc.reduceat(cycles, at, axis=0) for ufunc in (np.maximum, np.minimum))
            found[what] = {"max": most, "min": least, "sum": total}
        return found


class _Columns:
    """The tile columns, laid out many at a time."""

    def __init__(self, columns: Mapping[str, Any], tiles: int) -> None:
        self.tiles = tiles
        number, stops, self.values = (np.asarray(columns[c]) for c in ("column", "stop", "value"))
        self.lengths = np.diff(stops, prepend=0)
        self.lengths[self.lengths <= 0] += tiles  # the first run of a column follows the last one of another
        self.count = int(number[-1]) + 1
        self.first = np.searchsorted(number, np.arange(self.count + 1))

    def most(self, which: np.ndarray) -> np.ndarray:
        """The largest number of each of these columns."""
        return np.maximum.reduceat(self.values, self.first[:-1])[which]

    def dense(self, which: np.ndarray) -> np.ndarray:
        """These columns, ``float32[columns, tiles]``."""
        runs = _ranges(self.first[which], self.first[which + 1] - self.first[which])
        return np.repeat(self.values[runs].astype(np.float32), self.lengths[runs]).reshape(len(which), self.tiles)


def _ranges(first: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The numbers of each range, one range after another."""
    return np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))

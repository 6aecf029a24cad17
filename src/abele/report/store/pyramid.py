"""Bins of what is too fine to draw: of moments × tiles the most, the least and the sum.

The cell of a moment and a tile is the share of the moment's time in which the tile works, or exchanges. A bin of level
n is 16ⁿ moments of one IPU, neighbours in its own line of moments, and 4ⁿ⁻¹ tiles. ``max`` and ``min`` are of the
shares, ``sum`` is the time: cycles of all its tiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

MOMENTS, TILES = 16, 4
"""Moments (tiles) of a bin that one of the next level holds."""

FEWEST = 512
"""An IPU of fewer moments has no bins: its cells themselves are soon drawn."""


def rasters(
    moments: Mapping[str, Any], sets: Mapping[str, Any], columns: Mapping[str, Any], *, ipus: int, tiles: int
) -> Iterator[tuple[tuple[int, int], dict[str, Any]]]:
    """Every level of every IPU, as ``ProgramRecord.rasters`` has them, from the tables of these names."""
    if not len(sets["id"]):
        return
    table = _Columns(columns, tiles)
    order = np.argsort(sets["operation"], kind="stable")
    owner = np.asarray(sets["operation"])[order]
    operation, place = np.asarray(moments["operation"]), np.asarray(moments["ipu"])
    lengths = {name: np.asarray(moments[name], float) for name in ("sync", "exchange", "compute", "host")}
    length = np.sum(list(lengths.values()), axis=0)
    for ipu in range(ipus):
        own = np.flatnonzero(place == ipu)
        if len(own) < FEWEST:
            continue
        bins = -(-len(own) // MOMENTS)
        level = {name: np.zeros((bins, tiles), np.float32) for name in ("max", "min", "sum")}
        found = {"work": level, "exchange": {name: array.copy() for name, array in level.items()}}
        starts = np.searchsorted(owner, operation[own], "left")
        stops = np.searchsorted(owner, operation[own], "right")
        for b in range(bins):
            here = slice(b * MOMENTS, (b + 1) * MOMENTS)
            for what in found:
                cycles = np.stack(
                    [
                        table.cycles(sets, order[start:stop], what)
                        for start, stop in zip(starts[here], stops[here], strict=True)
                    ]
                )
                share = cycles / np.maximum(length[own[here]], 1e-9)[:, None]
                for how, array in found[what].items():
                    array[b] = cycles.sum(0) if how == "sum" else getattr(share, how)(0)
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


class _Columns:
    """The tile columns, laid out one at a time."""

    def __init__(self, columns: Mapping[str, Any], tiles: int) -> None:
        self.tiles = tiles
        self.number, self.stops, self.values = (np.asarray(columns[c]) for c in ("column", "stop", "value"))
        self.nothing = np.zeros(tiles)

    def dense(self, column: int) -> np.ndarray:
        first, last = np.searchsorted(self.number, [column, column + 1])
        return np.repeat(self.values[first:last], np.diff(self.stops[first:last], prepend=0)).astype(float)

    def cycles(self, sets: Mapping[str, Any], rows: np.ndarray, what: str) -> np.ndarray:
        """Cycles in which each tile works (exchanges) in these compute sets."""
        total = self.nothing
        for row in rows.tolist():
            if what == "work":
                total = total + self.dense(sets["work"][row])
            else:
                received = self.dense(sets["received"][row])
                total = total + received * (sets["exchange"][row] / max(received.max(), 1.0))
        return total

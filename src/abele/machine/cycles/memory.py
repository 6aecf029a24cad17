"""Cycles of moving data within a tile: gather, scatter-add, slices, copies, transposes, fills."""

from __future__ import annotations

from typing import Any

from abele.machine.constants import dtype_bytes
from abele.machine.cycles.arith import Count, ceil_div, largest
from abele.machine.cycles.registry import estimate

_POPOPS = "graphcore/poplibs, popops/popopsCycleEstimators.cpp"


def _in_range(chip: Any, rows: Count, others: Count, spread: bool) -> tuple[Count, Count]:
    """Offsets that the busiest worker copies, and those that it only looks at.

    Every worker walks all offsets and copies those in its part of the table.
    """
    mine = ceil_div(rows, chip.workers) if spread else rows
    return mine, rows - mine + others


@estimate("Gather", source=f"{_POPOPS}, multiSlice", confidence="published", code_bytes=480)
def gather(
    chip: Any, *, rows: Count, row_elements: Count, dtype: str = "f16", others: Count = 0, spread: bool = True
) -> Count:
    """Tile cycles to copy ``rows`` rows of ``row_elements`` by offsets.

    Args:
        others: offsets that the tile is given and that lie outside its part of the table.
        spread: offsets fall evenly on the workers' parts; False is the worst case, all on one.
    """
    vector, cycles = (4, 3) if dtype_bytes(dtype) == 1 else (2, 2)
    mine, rest = _in_range(chip, rows, others, spread)
    return chip.workers * (30 + mine * (19 + ceil_div(row_elements, vector) * cycles) + rest * 8)


@estimate("ScatterAdd", source=f"{_POPOPS}, multiUpdateAdd", confidence="published", code_bytes=560)
def scatter_add(
    chip: Any, *, rows: Count, row_elements: Count, dtype: str = "f16", others: Count = 0, spread: bool = True
) -> Count:
    """Tile cycles to add ``rows`` rows of ``row_elements`` into a table by offsets; fields as for ``Gather``."""
    size = dtype_bytes(dtype)
    atom = max(1, chip.atomic_store_bytes // size)
    mine, rest = _in_range(chip, rows, others, spread)
    each = (11 if size >= 4 else 12) + largest(ceil_div(row_elements, atom) - 1, 0) * 3
    return chip.workers * ((32 if size >= 4 else 40) + mine * each + rest * 5)


@estimate("DynamicSlice", source=f"{_POPOPS}, dynamicSlice", confidence="published", code_bytes=360)
def dynamic_slice(chip: Any, *, n: Count, slices: Count = 1, dtype: str = "f16") -> Count:
    """Tile cycles of ``slices`` slices of ``n`` elements each, their offsets known at run time."""
    vectors = largest(n // chip.workers // chip.vector_width(dtype), 1)
    start, each = (76, 72) if dtype_bytes(dtype) == 1 else (39, 24)
    return 25 + chip.workers * (start + (each + 2 * vectors) * slices)


@estimate("Copy", source="assumed, at the memcpy rate of a public IPU21 compiler", confidence="assumed", code_bytes=160)
def copy(chip: Any, *, bytes: Count) -> Count:
    """Tile cycles to copy ``bytes`` within the tile, in whole words."""
    return ceil_div(bytes, chip.memcpy_bytes_per_cycle) + 20 + 6 * chip.workers


@estimate(
    "Rearrange", source="graphcore/poplibs, poplin/ConvModel.cpp (regression)", confidence="published", code_bytes=640
)
def rearrange(chip: Any, *, bytes: Count, atom: int = 8) -> Count:
    """Tile cycles to put ``bytes`` into another layout, in runs of ``atom`` (2, 4 or 8) bytes.

    587 cycles and, for each byte, 0.44 in runs of 8, 3.125 of 4, 5.15 of 2.
    """
    hundredths = 44 if atom >= 8 else 312 if atom >= 4 else 515
    return 587 + ceil_div(bytes * hundredths, 100)


@estimate("Transpose", source="assumed: 5 cycles for a block of 4 × 4 half", confidence="assumed", code_bytes=400)
def transpose(chip: Any, *, rows: Count, cols: Count, dtype: str = "f16", blocks: Count = 1) -> Count:
    """Tile cycles to transpose ``blocks`` matrices of ``rows`` × ``cols`` within the tile."""
    size = max(1, dtype_bytes(dtype) // 2)
    squares = blocks * ceil_div(rows, 4) * ceil_div(cols, 4)
    return 20 + 6 * chip.workers + chip.workers * ceil_div(squares, chip.workers) * 5 * size


@estimate("Fill", source="graphcore/poplibs, popops/FillModelling", confidence="published", code_bytes=120)
def fill(chip: Any, *, n: Count, dtype: str = "f16") -> Count:
    """Tile cycles to set ``n`` elements to one value."""
    vectors = ceil_div(ceil_div(n, chip.workers), chip.vector_width(dtype))
    return chip.workers * ((26 if dtype_bytes(dtype) <= 2 else 23) + vectors)

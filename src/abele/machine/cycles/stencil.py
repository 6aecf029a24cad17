"""Cycles of stencils: a loop over the rows of a block whose every element is computed from its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from abele.machine.constants import dtype_bytes
from abele.machine.cycles.arith import Count, ceil_div, choose
from abele.machine.cycles.elementwise import operation_cycles
from abele.machine.cycles.registry import estimate

LOOP_INSTRUCTIONS = 3
"""Of every turn of a compiled loop beside its loads and its arithmetic: the store, the count and the branch."""


@estimate(
    "Stencil",
    source="derived: one instruction a cycle of each worker, as of a compiled codelet that bundles none",
    confidence="derived",
    code_bytes=560,
)
def stencil(
    chip: Any,
    *,
    rows: Count,
    width: Count,
    ops: Sequence[str] | str,
    loads: int,
    unaligned: int = 0,
    pointers: int = 1,
    dtype: str = "f32",
    vector: int | None = None,
) -> Count:
    """Tile cycles of a stencil over ``rows`` rows of ``width`` elements, split over the workers.

    A turn of the loop makes ``vector`` elements: it loads each neighbour, computes, and stores once. A row begins with
    the addresses of the rows about it.

    Args:
        ops: operations of one element, by the names of ``Elementwise``; each takes its cycles for a vector.
        loads: neighbours that a turn loads; ``unaligned`` of them do not start at a word, and come element by element.
        pointers: rows that are read and written at once; each takes two instructions at the start of a row.
        dtype: of the arithmetic.
        vector: elements of a turn; those of a word unless given. 1: code that works on single elements.
    """
    made = vector or chip.vector_width(dtype)
    turn = loads + unaligned * (made - 1) + LOOP_INSTRUCTIONS
    turn += sum(operation_cycles(chip, op, dtype, made) for op in ([ops] if isinstance(ops, str) else ops))
    whole = ceil_div(rows, chip.workers) * (2 * pointers + turn * ceil_div(width, made))
    cut = rows * (2 * pointers + turn * ceil_div(ceil_div(width, chip.workers), made))
    return chip.workers * (20 + choose(rows >= chip.workers, whole, cut)) + 11


@estimate("Assemble", source="graphcore/poplibs, popops dynamicSlice2D", confidence="published", code_bytes=240)
def assemble(chip: Any, *, rows: Count, width: Count, pieces: int = 3, dtype: str = "f32") -> Count:
    """Tile cycles to put rows together of pieces that lie apart, such as a block's own row between its neighbours'.

    Each worker takes whole rows: for each piece 29 cycles and one for each word; of half 31, and 2.

    Args:
        rows, width: rows on the tile, and elements of each.
        pieces: that a row is put together of.
    """
    entry, each = (29, 1) if dtype_bytes(dtype) >= 4 else (31, 2)
    words = ceil_div(width * dtype_bytes(dtype), chip.data_path_bytes)
    return 27 + 13 + chip.workers * ceil_div(rows, chip.workers) * (entry * pieces + each * words)

"""Cycles of the matrix unit: the 1×1 convolution that a matmul is, and convolutions with larger kernels.

Per tile and vertex. A conv group's ``field`` output positions are split evenly over the workers; weights of one
block of input × output channels are loaded once per pass over them.
"""

from __future__ import annotations

from typing import Any

from abele.errors import InvalidOption
from abele.machine.constants import dtype_bytes
from abele.machine.cycles.arith import Count, ceil_div, choose, largest, most, smallest, worker_sums
from abele.machine.cycles.registry import estimate

_SOURCE = "graphcore/poplibs, poplin/PerformanceEstimation.hpp"


def _units(chip: Any, dtype: str, partials: str) -> int:
    units = chip.amp_units(dtype, partials)
    if units == 0:
        raise InvalidOption(
            f"The matrix unit of '{chip.name}' does not take {dtype} with {partials} partials",
            remedy="Use Hmac, or other partials.",
        )
    return units


def weight_load_cycles(chip: Any, dtype: str, units: int, wide: bool = False) -> int:
    """Cycles to load one block of weights: units × chain × load elements, in bytes, over the load rate; ``wide``: that
    of interleaved memory, where the chip has one."""
    rate = max(chip.coefficient_load_bytes_per_cycle, chip.coefficient_wide_load_bytes_per_cycle if wide else 0)
    return units * chip.amp_in_group(dtype) * dtype_bytes(dtype) // rate


def _short(n: Count, none: int, one: int, two: int, more: Count) -> Count:
    """A worker's cycles by its number of positions: the loop is full only from three on."""
    return choose(n <= 0, none, choose(n == 1, one, choose(n == 2, two, more)))


def _worker_1x1(chip: Any, n: Count, dtype: str, partials: str, units: int, zero: bool) -> Count:
    """One worker's cycles for ``n`` positions in one pass; ``zero``: the pass clears its outputs first."""
    loop = chip.amp_loop_cycles_f32 if dtype_bytes(dtype) >= 4 else chip.amp_loop_cycles_f16
    if dtype_bytes(dtype) == 1:
        q = 5 if zero else 0
        return 17 + _short(n, 4, 18 - q, 23 - q, 27 - q + loop * (n - 3))
    if dtype_bytes(dtype) == 2 and (partials == "f32" or units >= 16):
        z = 1 if zero else 2
        retained = 7  # worker state kept between passes
        return _short(n, 20 + z, 31 + z, 40 + z, 36 + z + loop * (n - 3)) - retained
    per_position = 8 if (dtype_bytes(dtype) >= 4 and units >= 16) else 4 if partials == "f32" else 2
    clearing = 2 + per_position * n if zero else 0
    if dtype_bytes(dtype) == 2:
        return choose(n <= 0, 24, clearing + _short(n, 0, 39, 40, 41 + loop * (n - 3)))
    return choose(n <= 0, 24, clearing + _short(n, 0, 47, 46, 46 + loop * (n - 3)))


def _all_workers(chip: Any, most: Count, least: Count, wait: int) -> Count:
    """Tile cycles of workers that take ``most`` and ``least``: the slower, or the quicker and its start."""
    slow, quick = largest(most, least), smallest(most, least)
    return choose(
        slow == quick,
        chip.workers * slow,
        largest(chip.workers * slow, chip.workers * quick + wait),
    )


@estimate("Amp1x1", source=_SOURCE, confidence="published", code_bytes=1600)
def amp_1x1(
    chip: Any,
    *,
    field: Count,
    in_chans: Count,
    out_chans: Count,
    groups: Count = 1,
    dtype: str = "f16",
    partials: str = "f16",
    out_group: int | None = None,
    one_group: bool = False,
    adds: bool = False,
    wide: bool = False,
) -> Count:
    """Tile cycles of a matmul or 1×1 convolution on the matrix unit.

    Args:
        field: output positions (rows of the matmul) on the tile.
        in_chans: input channels (the summed dimension) per conv group.
        out_chans: output channels per conv group.
        groups: conv groups (batch of the matmul).
        out_group: output channels held together in memory; the unit count unless given.
        one_group: all output channels are held together.
        adds: what is there is added to; else the first pass over it clears it.
        wide: weights lie in interleaved memory, from which the unit loads them at the wide rate.

    Checked against 14 measured sizes on Bow (tessellate-ipu, IPU Peak Flops) with nothing fitted.
    """
    units = _units(chip, dtype, partials)
    out_group = out_group or units
    ins = ceil_div(in_chans, chip.amp_in_group(dtype))
    outs = 1 if one_group else ceil_div(out_chans, out_group)
    passes = ceil_div(out_chans if one_group else out_group, units)
    most, least = ceil_div(field, chip.workers), field // chip.workers
    load = weight_load_cycles(chip, dtype, units, wide)

    def inner(zero: bool) -> Count:
        return _all_workers(
            chip,
            _worker_1x1(chip, most, dtype, partials, units, zero),
            _worker_1x1(chip, least, dtype, partials, units, zero),
            wait=14,
        )

    retains = dtype_bytes(dtype) == 2 and (partials == "f32" or units >= 16)
    k, first, later = (1, 7, 3) if retains else (0, 0, 0)
    one = 16 - k + outs * (19 + passes * (6 + load + inner(False)))
    adding = (ins if adds else ins - 1) * one
    clearing = 0 if adds else 11 + outs * (19 - k + passes * (7 + load + inner(True)))
    restore = chip.workers * (first + later * (ins * groups - 1))
    return 50 + restore + groups * (12 + k + adding + clearing)


def zero_cycles(chip: Any, elements: Count, dtype: str) -> Count:
    """Tile cycles to clear ``elements`` accumulators (poplin's zeroing vertex), all workers."""
    each = ceil_div(elements, chip.workers)
    return chip.workers * (ceil_div(each, chip.vector_width(dtype)) + 5)


@estimate("AmpNx1", source=_SOURCE, confidence="published", code_bytes=2400)
def amp_nx1(
    chip: Any,
    *,
    field: Count,
    in_chans: Count,
    out_chans: Count,
    kernel: Count,
    groups: Count = 1,
    dtype: str = "f16",
    partials: str = "f32",
    row: Count = 0,
    kernel_height: int = 1,
    out_group: int | None = None,
    wide: bool = False,
) -> Count:
    """Tile cycles of a convolution with ``kernel`` positions on the matrix unit.

    Args:
        field: output positions on the tile.
        kernel: kernel positions (height × width × …).
        row: length of an output row on the tile; a worker's share is cut at row ends (0: never cut).
        kernel_height: kernel rows taken by one load of weights (1, 2 or 4), each with that much fewer
            input channels in a block.
        groups, in_chans, out_chans, out_group, wide: as for ``Amp1x1``; blocks of four rows are never loaded wide.

    The published formula takes the 9 cycles that a worker saves by keeping its state off every run of positions;
    what was measured (60 points of the T10/Elk cost model, to within 1 %) takes 8 of them off once for a worker.
    """
    if kernel_height not in (1, 2, 4):
        raise InvalidOption(f"A kernel height of {kernel_height}", remedy="It is 1, 2 or 4.")
    units = _units(chip, dtype, partials)
    out_group = out_group or units
    ins = ceil_div(in_chans, max(1, chip.amp_in_group(dtype) // kernel_height))
    outs = ceil_div(out_chans, out_group)
    passes = ceil_div(out_group, units)
    steps = ceil_div(kernel, kernel_height)
    load = weight_load_cycles(chip, dtype, units, wide and kernel_height < 4)
    load += {1: 15, 2: 46, 4: 60}[kernel_height] + 3

    half_partials = dtype_bytes(partials) == 2

    def run(n: Count) -> Count:
        if dtype_bytes(dtype) >= 4:
            return 2 + _short(n, 17, 33, 44, 45 + chip.amp_loop_cycles_f32 * (n - 3))
        full = units >= 16 if half_partials else units >= 8
        return 2 + _short(n, 17, 29, 33 + int(full), 34 + chip.amp_loop_cycles_f16 * (n - 3))

    worker = 9 + int(half_partials) + most(worker_sums(field, row, chip.workers, run))
    sweep = steps * passes * chip.workers * worker
    inner = 14 + steps * (12 + passes * load) + sweep
    clear_entry = 9 if not half_partials else 10
    entry = 109 + 9 * chip.workers + chip.workers * clear_entry
    pointers = groups * (17 * outs + 6 * (outs - 1) + 1) + 6 * (groups - 1) + 1
    zeroing = zero_cycles(chip, field * outs * out_group, partials) * groups
    return entry + pointers + groups * (16 + ins * (14 + outs * (14 + inner))) + zeroing

"""Cycles of convolutions beside the matrix unit, and of summing the partial results of either.

Hmac multiplies along the input channels on the vector unit, Vmac takes one channel group at a time (depthwise),
Slic slides short kernels over grouped channels, OuterProduct has a summed dimension of one.
"""

from __future__ import annotations

from typing import Any

from abele.machine.constants import dtype_bytes
from abele.machine.cycles.arith import Count, ceil_div, choose, common_divisor, largest, row_pieces
from abele.machine.cycles.matrix import zero_cycles
from abele.machine.cycles.registry import estimate

_SOURCE = "graphcore/poplibs, poplin/PerformanceEstimation.hpp"


def dot_cycles(chip: Any, size: Count, dtype: str, partials: str) -> Count:
    """One worker's dot product of ``size`` channels: the widest load that divides them, then the sum stored."""
    half = dtype_bytes(dtype) <= 2
    outs = 2 if half and dtype_bytes(partials) == 2 else 1
    vector = chip.vector_width(dtype)
    width = common_divisor(size, vector)  # the largest power of two up to the vector that divides size
    whole = width == vector
    narrow = choose(whole, 0, outs)
    loop = size // width * choose(whole, 1, 2)
    return 3 * outs + int(outs == 2) + 4 + narrow + loop - int(half)


@estimate("Hmac", source=_SOURCE, confidence="published", code_bytes=900)
def hmac(
    chip: Any,
    *,
    field: Count,
    in_chans: Count,
    out_chans: Count,
    kernel: Count = 1,
    groups: Count = 1,
    dtype: str = "f16",
    partials: str = "f32",
) -> Count:
    """Tile cycles of a convolution or matmul by dot products on the vector unit; fields as for ``AmpNx1``."""
    half = dtype_bytes(dtype) <= 2
    half_partials = half and dtype_bytes(partials) == 2
    point = half and not half_partials and not hasattr(kernel, "shape") and kernel == 1
    savings = 15 if point else 6 if half else 0
    dot = dot_cycles(chip, in_chans, dtype, partials)
    channels = ceil_div(out_chans, 2) if half_partials else out_chans
    positions = ceil_div(field, chip.workers)
    busy = (13 if point else 19) + positions * (7 + channels * dot)
    if point:
        busy = choose(channels == 1, 14 + positions * (2 + dot), busy)
    worker = 16 - savings + choose(positions == 0, 7, busy) + 16
    inner = kernel * chip.workers * worker
    outer = (65 if half else 58) - (10 if point else 0)
    clear_entry = 10 if half_partials else 9
    zeroing = zero_cycles(chip, field * out_chans, partials) * groups
    return outer + chip.workers * (clear_entry + savings) + groups * (23 + 15 + 10 + inner) + zeroing


@estimate("Vmac", source=_SOURCE, confidence="derived", code_bytes=1100)
def vmac(
    chip: Any,
    *,
    field: Count,
    channels: Count,
    kernel: Count,
    dtype: str = "f16",
    partials: str = "f32",
    channel_group: int = 8,
) -> Count:
    """Tile cycles of a depthwise convolution: ``channels`` in groups of 4, 8 or 16, ``kernel`` positions each.

    One item is one output position of one channel group; its products are summed over the kernel.
    """
    vector = chip.vector_width(dtype)
    if channel_group >= 8:
        dot = 3 + 3 * (kernel - 1) * channel_group // 8
    else:
        dot = 3 + 2 * (kernel - 1) * ceil_div(channel_group, 4)
    store = 15 if channel_group == 8 else 5 if dtype_bytes(partials) >= 4 else 3
    base = {4: 18, 8: 13, 16: 25}.get(channel_group, 18)
    positions = ceil_div(field, chip.workers)
    slots = ceil_div(channel_group, max(vector, 4)) if channel_group < 8 else 1
    worker = base + positions * slots * (7 + store + dot)
    zeroing = chip.workers * (4 + ceil_div(ceil_div(field * channel_group, chip.workers), chip.vector_width(partials)))
    outs = ceil_div(channels, channel_group)
    return 61 + 14 + 25 + outs * (zeroing + 32 + 24 + chip.workers * worker)


@estimate("Slic", source=_SOURCE, confidence="derived", code_bytes=1500)
def slic(
    chip: Any,
    *,
    field: Count,
    row: Count,
    kernel: Count,
    channels: Count,
    partials: str = "f16",
    channel_group: int = 4,
    stride: int = 1,
) -> Count:
    """Tile cycles of a grouped half convolution with few channels, its kernel cut in 1×4 blocks.

    ``channels`` in groups of 1, 2 or 4 (times 4 in all); ``row`` is the length of an output row on the tile.
    """
    blocks = ceil_div(kernel, chip.slic_window)
    passes = ceil_div(chip.slic_chains_f16, chip.slic_chains_f16 if partials == "f16" else chip.slic_chains_f32)
    load = 16 + (18 if channel_group == 4 else 21 + chip.workers * 10)
    positions = ceil_div(field, chip.workers)
    pieces = row_pieces(positions, row)
    run = ceil_div(positions, pieces)
    sweep = 15 + (largest(run - 5, 0) if stride == 1 else 2 * largest(run - 3, 0))
    worker = 17 + (0 if channel_group == 4 else 4) + pieces * (10 + passes * sweep)
    outs = ceil_div(channels, channel_group)
    return outs * (blocks * (load + chip.workers * worker) + zero_cycles(chip, field * channel_group, partials))


@estimate("OuterProduct", source=_SOURCE, confidence="published", code_bytes=500)
def outer_product(chip: Any, *, field: Count, out_chans: Count, groups: Count = 1, dtype: str = "f16") -> Count:
    """Tile cycles of a product with a summed dimension of one: ``field`` × ``out_chans`` for each group."""
    width = ceil_div(field, chip.workers)
    if dtype_bytes(dtype) <= 2:
        quick = 10 + width * (6 + (out_chans - 12) // 4)
        slow = width * (10 + ceil_div(5 * out_chans, 2))
        fits = (out_chans >= 12) & (out_chans % 4 == 0)
    else:
        quick = 11 + width * (6 + (out_chans - 6) // 2)
        slow = width * (10 + 2 * out_chans)
        fits = (out_chans >= 6) & (out_chans % 2 == 0)
    return chip.workers * (25 + groups * choose(fits, quick, slow))


@estimate("ReducePartials", source="graphcore/poplibs, poplin/ConvReduce", confidence="published", code_bytes=700)
def reduce_partials(
    chip: Any, *, outputs: Count, depth: Count, dtype: str = "f32", out: str = "f16", interleaved: bool = False
) -> Count:
    """Tile cycles to sum ``depth`` partial results of ``dtype`` into ``outputs`` elements of ``out``.

    A size that fills whole accumulators takes the single-input path; others the general one; a depth of one is
    a cast.
    """
    acc = chip.accumulator_width(dtype)
    half = dtype_bytes(dtype) <= 2
    narrow = dtype_bytes(out) <= 2
    loads = 1 if interleaved else 2
    store = (10 if half else 8) - int(narrow)
    single = chip.workers * (20 + (loads * depth + store) * ceil_div(outputs // acc, chip.workers)) + 33
    loops, ragged = outputs // acc, outputs % acc
    rest = choose(ragged > 0, 2 * depth + (11 if narrow else 13), 0)
    general = chip.workers * (32 + (3 * depth + store - 1) * ceil_div(loops, chip.workers) + rest)
    each = ceil_div(outputs, chip.workers)
    cast = chip.workers * (
        largest(ceil_div(each, chip.vector_width(dtype)), ceil_div(each, chip.vector_width(out))) + 26
    )
    return choose(depth <= 1, cast, choose(ragged == 0, single, general))

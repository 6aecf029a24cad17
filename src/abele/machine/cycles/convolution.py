"""Cycles of convolutions beside the matrix unit, and of summing the partial results of either.

Hmac multiplies along the input channels on the vector unit, Vmac takes one channel group at a time (depthwise),
Slic slides short kernels over grouped channels, OuterProduct has a summed dimension of one.
"""

from __future__ import annotations

from typing import Any

from abele.errors import InvalidOption
from abele.machine.constants import dtype_bytes
from abele.machine.cycles.arith import Count, ceil_div, choose, common_divisor, largest, most, worker_sums
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
    row: Count = 0,
    out_group: int = 0,
) -> Count:
    """Tile cycles of a convolution or matmul by dot products on the vector unit; fields as for ``AmpNx1``.

    ``out_group``: output channels that a pass over the kernel takes together, 0 for all of them.
    """
    half = dtype_bytes(dtype) <= 2
    half_partials = half and dtype_bytes(partials) == 2
    point = half and not half_partials and not hasattr(kernel, "shape") and kernel == 1
    savings = 15 if point else 6 if half else 0
    dot = dot_cycles(chip, in_chans, dtype, partials)
    passes = ceil_div(out_chans, out_group) if out_group else 1
    together = ceil_div(out_chans, passes) if out_group else out_chans
    channels = ceil_div(together, 2) if half_partials else together
    start = 13 if point else 19

    def run(n: Count) -> Count:
        cycles = start + n * (7 + channels * dot)
        return choose(channels == 1, start + 1 + n * (2 + dot), cycles) if point else cycles

    worker = most([choose(sums == 0, 7, sums) for sums in worker_sums(field, row, chip.workers, run)])
    inner = chip.workers * (kernel * (16 - savings + worker) + 16)
    outer = (65 if half else 58) - (10 if point else 0)
    clear_entry = 10 if half_partials else 9
    zeroing = zero_cycles(chip, field * out_chans, partials) * groups
    return outer + chip.workers * (clear_entry + savings) + groups * (23 + 15 + passes * (10 + inner)) + zeroing


@estimate("Vmac", source=_SOURCE, confidence="published", code_bytes=1100)
def vmac(
    chip: Any,
    *,
    field: Count,
    channels: Count,
    kernel: Count,
    kernel_row: Count = 0,
    partials: str = "f16",
    channel_group: int = 8,
) -> Count:
    """Tile cycles of a depthwise half convolution: ``channels`` in groups of 4, 8 or 16, ``kernel`` positions each.

    One item is a row of the kernel (``kernel_row`` positions; 0: all of it) at one output position; each worker keeps
    sums of its own, which are added up at the end.
    """
    if channel_group not in (4, 8, 16):
        raise InvalidOption(f"Channel groups of {channel_group}", remedy="They are of 4, 8 or 16.")
    wide = dtype_bytes(partials) >= 4
    length = choose(kernel_row > 0, kernel_row, kernel)
    items = ceil_div(field * ceil_div(kernel, length), chip.workers)
    if channel_group >= 8 and not wide:
        worker = (13 if channel_group == 8 else 25) + channel_group // 8 * items * (7 + 15 + 3 + 3 * (length - 1))
    else:
        lanes = 3 * channel_group // 8 if channel_group >= 8 else 2
        worker = (19 if wide else 18) + items * (7 + (5 if wide else 3) + 3 + lanes * (length - 1))
    made = field * channel_group
    clearing = 4 + ceil_div(made, chip.vector_width(partials))
    own = ceil_div(made, chip.workers)
    adding = 10 - int(wide) + (7 + 2 * int(wide) + (1 + int(wide)) * (chip.workers - 1)) * own // channel_group
    groups = ceil_div(channels, channel_group)
    return 61 + 14 + 25 + int(wide) + groups * (clearing + 32 + 24 + chip.workers * worker + adding)


SLIC_CHANNELS = 4
"""Channels that a Slic vertex takes together: one group of 4, two of 2, or four of 1."""


@estimate("Slic", source=_SOURCE, confidence="measured", code_bytes=1500)
def slic(
    chip: Any,
    *,
    field: Count,
    row: Count = 0,
    blocks: Count = 1,
    channels: Count = SLIC_CHANNELS,
    partials: str = "f16",
    channel_group: int = 4,
    stride: int = 1,
) -> Count:
    """Tile cycles of a half convolution with as many input as output channels in a group, at most 4.

    Args:
        field: output positions on the tile; ``row``: the length of an output row (0: never cut).
        blocks: 1×4 blocks of the kernel, its rows filled up to them.
        channels: of all groups, four at a time; ``channel_group``: in a group (1, 2 or 4).
        stride: along a row, 1 or 2.

    To the published formula are added 29 cycles a call, 13 a block, and 1 or 2 a run of positions (the first block,
    later ones): with them 90 measured points (T10/Elk cost model) come out to within 0.2 %.
    """
    if channel_group not in (1, 2, 4) or stride not in (1, 2):
        raise InvalidOption(
            f"Slic in groups of {channel_group} channels with a stride of {stride}",
            remedy="Groups have 1, 2 or 4 channels, strides are 1 or 2.",
        )
    wide = dtype_bytes(partials) >= 4
    passes = ceil_div(chip.slic_chains_f16, chip.slic_chains_f32 if wide else chip.slic_chains_f16)
    arranging = 27 + chip.workers * (12 if channel_group == 2 else 10)
    load = 16 + (18 if channel_group == 4 else arranging)

    def sweep(first: bool) -> Count:
        """All workers over the field, for the first block of the kernel (which clears the sums) or a later one."""

        def run(n: Count) -> Count:
            if stride == 2:
                cycles = choose(n >= 3, 15 + 2 * (n - 3), choose(n == 1, 13, 15))
            elif first:
                cycles = choose(n >= 5, 10 + n, choose(n > 1, 13 + n, 13))
            else:
                cycles = choose(n >= 5, 10 + n, choose(n > 1, 17 + n, 13))
            return 12 + (3 if wide else 0) + passes * (cycles - int(wide))

        return chip.workers * (17 + most(worker_sums(field, row, chip.workers, run)))

    together = ceil_div(channels, SLIC_CHANNELS)
    entry = 57 + 15 * together + _looped(together)
    weights = blocks * (load + 33) + _looped(blocks)
    return entry + weights + together * (sweep(True) + (blocks - 1) * sweep(False))


def _looped(turns: Count) -> Count:
    """Supervisor cycles of the branches of a loop: 6 back, 1 out."""
    return 6 * (turns - 1) + 1


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

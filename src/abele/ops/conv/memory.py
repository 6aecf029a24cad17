"""Temporary memory of a convolution as the vendor's planner estimates it, for the planner ``poplibs``.

The terms are those of graphcore/poplibs, poplin/ConvModel.cpp (``totalTempBytes``), alike in all published versions
from SDK 1.2 to 3.4. A plan needs the largest of

- *rearranging*: twice the largest of what is brought into groups of channels before or after: the input where its
  channels are filled up, the weights where either side's are, and the result where its groups are filled up or are
  not those that the next convolution will want. Each lies evenly over the tiles in use;
- *the vertex*: its input, its weights and its sums, channels filled up, and zeros that widen kernel and field; Slic
  keeps its sums twice;
- *the reduction*: partial sums of a split sum.

Gradients of weights rearrange both operands. The estimate is not what Abele lays out: it decides which plans are
looked at, as it did there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.machine.chip import Chip
from abele.ops.conv.maps import Map
from abele.ops.plans.search import Parts

SLIC_CHANNELS = 4
"""Channels, of one or more groups, that a Slic vertex works on at once."""

SLIC_SPARE = 200
"""Bytes that a Slic vertex takes beside its second copy of the sums."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """How a vertex wants channels.

    Attributes:
        ins, outs: in groups of so many, the last filled up.
        rows, columns: positions by which kernel and field grow.
        regroups: the result's groups are not those of the next convolution's input.
    """

    ins: int
    outs: int
    rows: int = 0
    columns: int = 0
    regroups: bool = True

    @classmethod
    def of(cls, chip: Chip, it: Map, method: str, ins: int, outs: int) -> Grouping:
        """The grouping of a map with so many channels by ``method``."""
        dtype, partials = str(it.dtype), str(it.partials)
        block = max(1, chip.amp_in_group(dtype))
        if method == "slic":
            size = 1 << (max(ins, outs) - 1).bit_length()
            return cls(size, size, columns=-it.kernel[-1] % chip.slic_window, regroups=size != block)
        if method in ("hmac", "vmac"):
            together = 2 if partials == "f16" and method == "hmac" else 1
            return cls(1, together)
        units = max(1, chip.amp_units(dtype, partials))
        together = block if outs % block == 0 else units
        if math.prod(it.kernel) == 1:
            return cls(block, together, regroups=together != block)
        # few input channels come with two or four rows of the kernel
        height = next((h for h in (1, 2, 4) if ins % (block // h or 1) == 0), 4)
        return cls(max(1, block // height), together, rows=-it.kernel[0] % height, regroups=together != block)


def temporary_bytes(
    chip: Chip,
    it: Map,
    method: str,
    parts: Parts,
    lengths: Mapping[str, Any],
    padding: tuple[tuple[int, int], ...],
    turns: int = 1,
) -> Any:
    """Bytes of a tile, for columns of part counts.

    Args:
        it: the map of one turn.
        lengths: of the longest part of every axis.
        padding: of the field, before and behind.
        turns: in which the result's channels are done.
    """
    sizes = {d.name: d.size for d in it.dimensions}
    wide, sums = it.dtype.bytes, it.partials.bytes
    tiles: Any = math.prod((parts[d.name] for d in it.dimensions), start=np.int64(1))
    made: Any = it.result.elements(parts, lengths)
    depth: Any = math.prod((parts[name] for name in it.summed), start=np.int64(1))
    whole = [math.prod(operand.sizes) for operand in it.operands]
    if it.name == "conv_weight_grad":
        read = sum(operand.elements(parts, lengths) for operand in it.operands)
        moved = np.ceil(max(whole) / tiles) * wide
        return np.maximum(2 * moved, read * wide + made * sums)
    ins, outs = ("o", "c") if it.name == "conv_input_grad" else ("c", "o")
    group = Grouping.of(chip, it, method, sizes[ins], sizes[outs] * turns)
    more_in, more_out = _filled(lengths[ins], group.ins), _filled(lengths[outs], group.outs)
    fields = [name for name in lengths if name.startswith("f")]

    read = it.operands[0].elements(parts, lengths) * more_in
    taps = math.prod(it.kernel)
    taps_now = (it.kernel[0] + group.rows) * taps // it.kernel[0]
    if len(it.kernel) > 1:
        taps_now += group.columns * taps // it.kernel[-1]
    weights = it.operands[1].elements(parts, lengths) * more_in * more_out * taps_now / taps
    made = made * more_out

    grown = [0] * len(fields)
    grown[0] += group.rows
    grown[-1] += group.columns
    if method == "slic":  # the vertex takes no padding: it is written out
        grown = [g + before + behind for g, (before, behind) in zip(grown, padding, strict=True)]
    positions: Any = math.prod((lengths[f] for f in fields), start=np.int64(1))
    larger: Any = math.prod((lengths[f] + g for f, g in zip(fields, grown, strict=True)), start=np.int64(1))
    zeros = lengths["n"] * lengths["g"] * lengths[ins] * more_in * (larger - positions)

    vertex = (read + weights + zeros) * wide + made * sums
    if method == "slic":
        each = max(1, SLIC_CHANNELS // group.ins)
        vertex = vertex + made * sums / np.maximum(1, lengths["g"] // each) + SLIC_SPARE

    fill_in = _filled(sizes[ins], group.ins)
    fill_out = _filled(sizes[outs] * turns, group.outs)
    moved = [np.zeros(())]
    if fill_in > 1:
        moved.append(whole[0] * fill_in)
    if fill_in > 1 or fill_out > 1:
        moved.append(whole[1] * fill_in * fill_out)
    if fill_out > 1 or group.regroups:
        moved.append(math.prod(it.result.sizes) * fill_out)
    rearranged = 2 * np.ceil(max(moved) / tiles) * wide
    return np.maximum(np.maximum(rearranged, vertex), np.where(depth > 1, made * sums, 0))


def _filled(channels: Any, group: int) -> Any:
    """By how much channels grow that come in whole groups."""
    return -(-channels // group) * group / channels

"""Cycles of a block of a convolution or a gradient by each method: matrix unit, Slic, vertical and horizontal MAC."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from abele.ir.types import DType
from abele.machine.chip import Chip
from abele.ops.plans.planning import Question


def dots_together(question: Question, partials: DType) -> int:
    """Output channels of which a vertex makes the dot products together; 0 is all of them.

    The vendor's planner knows one, or two with half sums (graphcore/poplibs, poplin/ConvVertexType.cpp).
    """
    if question.options.planner != "poplibs" or "Hmac" in question.chip.vertex_costs:
        return 0
    return 2 if partials is DType.F16 else 1


def vertex_cycles(
    chip: Chip,
    name: str,
    method: str,
    lengths: Mapping[str, Any],
    kernel: Sequence[int],
    strides: Sequence[int],
    dtype: str,
    partials: str,
    turned: Sequence[bool],
    wide: bool = False,
    out_group: int = 0,
) -> Any:
    """Tile cycles of one block of a map by ``method``; ``wide``: see ``loads_wide``, ``out_group``: ``dots_together``.

    The gradient of the input meets ``kernel / stride`` taps at a position, or none where the stride is longer. That of
    the weights is a product: output channels by (input channels and taps), summed over batch and field. Input
    channels that do not fill blocks of 16 may come in blocks of 8 or 4, with two or four rows of the kernel at once.
    """
    field_names = [key for key in lengths if key.startswith("f")]
    lengths = {key: np.maximum(value, 1) for key, value in lengths.items()}
    n, g, o, c = (lengths[key] for key in "ngoc")
    field = math.prod((lengths[key] for key in field_names), start=n)
    taps = math.prod(kernel)
    types = {"dtype": dtype, "partials": partials}
    amp: dict[str, Any] = types | ({"wide": True} if wide else {})
    dots: dict[str, Any] = types | ({"out_group": out_group} if out_group else {})
    if name == "conv_weight_grad":
        outs, positions = (c * taps, o) if method == "amp_swapped" else (o, c * taps)
        vertex = "Hmac" if method == "hmac" else "Amp1x1"
        how = dots if method == "hmac" else amp
        cycles = chip.estimate(vertex, field=positions, in_chans=field, out_chans=outs, groups=g, **how)
        for turn, rows in zip(turned, (o, c), strict=True):
            if turn:
                cycles = cycles + chip.estimate("Transpose", rows=rows, cols=field, dtype=dtype, blocks=g)
        return cycles
    ins, outs = (o, c) if name == "conv_input_grad" else (c, o)
    if name == "conv_input_grad":
        taps = math.prod(-(-k // s) for k, s in zip(kernel, strides, strict=True))
        field = n
        for key, k, s in zip(field_names, kernel, strides, strict=True):
            field = field * (-(-lengths[key] * k // s) if k < s else lengths[key])
    row = lengths[field_names[-1]]
    if method == "amp" and taps == 1:
        cycles = chip.estimate("Amp1x1", field=field, in_chans=ins, out_chans=outs, groups=g, **amp)
    elif method == "amp":
        shape = {"field": field, "in_chans": ins, "out_chans": outs, "groups": g, "row": row}
        group = chip.amp_in_group(dtype)
        uneven = len(kernel) > 1 and np.any(ins % group)
        rows = kernel[0] if name == "conv" else -(-kernel[0] // strides[0])
        # the rows of the kernel are filled up to the height of a block of weights
        steps = {h: taps // rows * h * -(-rows // h) for h in ((1, 2, 4) if uneven and rows > 1 else (1,))}
        most = int(np.max(ins))
        if most <= group:  # one size of blocks is enough: the one that takes the fewest loads
            h = min(steps, key=lambda h: steps[h] // h * -(-most // max(1, group // h)))
            steps = {h: steps[h]}
        found = []
        for h, count in steps.items():
            block = max(1, group // h)
            arranged = _arranging(chip, lengths, field_names, kernel, strides, ins, block, dtype, h > 1)
            found.append(chip.estimate("AmpNx1", **shape, kernel=count, kernel_height=h, **amp) + arranged)
        cycles = np.minimum.reduce(found)
    elif method == "hmac":
        shape = {"field": field, "in_chans": ins, "out_chans": outs, "groups": g, "row": row}
        cycles = chip.estimate("Hmac", kernel=taps, **shape, **dots)
    elif method == "vmac":
        shape = {"field": field, "channels": g, "kernel": taps, "kernel_row": kernel[-1], "partials": partials}
        cycles = np.minimum.reduce([chip.estimate("Vmac", channel_group=together, **shape) for together in (4, 8, 16)])
    else:
        # rows of the kernel are filled up to whole blocks
        blocks = taps // kernel[-1] * -(-kernel[-1] // chip.slic_window)
        shape = {"field": field, "row": row, "blocks": blocks, "partials": partials, "stride": max(strides)}
        # a group of 3 channels is filled up to 4
        size = 1 << (int(np.max(np.maximum(o, c))) - 1).bit_length()
        cycles = chip.estimate("Slic", channels=g * size, channel_group=size, **shape)
        cycles = cycles + _arranging(chip, lengths, field_names, kernel, strides, ins, size, dtype, True)
    if name == "conv_input_grad" and turned[1]:
        cycles = cycles + chip.estimate("Transpose", rows=o, cols=c, dtype=dtype, blocks=g * taps)
    return cycles


def _arranging(
    chip: Chip,
    lengths: Mapping[str, Any],
    field_names: Sequence[str],
    kernel: Sequence[int],
    strides: Sequence[int],
    ins: Any,
    block: int,
    dtype: str,
    fills: bool,
) -> Any:
    """Tile cycles to fill up the window of a block with zeros: to whole blocks of channels, and where the vertex wants
    its kernel filled up (``fills``) at the borders too (graphcore/poplibs, poplin/ConvModel.cpp: the padding of tile
    level transforms)."""
    window = math.prod(
        ((lengths[f] - 1) * s + k for f, k, s in zip(field_names, kernel, strides, strict=True)), start=lengths["n"]
    )
    channels = lengths["g"] * block * -(-ins // block)
    cycles = chip.estimate("Rearrange", bytes=window * channels * DType(dtype).bytes)
    return np.where(fills | (ins % block > 0), cycles, 0)

"""Summing partial results: the vertex that adds up what the tiles of a split sum have left, and its costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from abele.ir.graph import Attribute
from abele.ir.types import DType, TensorType
from abele.machine.chip import Chip
from abele.machine.exchange import exchange_cycles
from abele.ops.plans.layouts import even, flat, fullest
from abele.ops.plans.planning import Question
from abele.ops.plans.vertices import region_shape
from abele.schedule.layout import Layout, Span
from abele.schedule.records import Access, ComputeSet
from abele.schedule.vertex import Block, VertexKind, Work, register_vertex


def partials_type(dtype: DType, partials: object) -> DType:
    """The type in which products of ``dtype`` are summed: half only where the program asks for it."""
    return DType.F16 if dtype is DType.F16 and partials == "f16" else DType.F32


def _compute(block: Block, pieces: Sequence[np.ndarray], attributes: Mapping[str, Attribute]) -> Sequence[np.ndarray]:
    return [pieces[0].sum(axis=0).reshape(region_shape(block.writes[0]))]


def _cycles(chip: Chip, work: Work) -> np.ndarray:
    outputs = work.writes[0]
    depth = work.read_types[0].shape[0]
    return chip.estimate(
        "ReducePartials",
        outputs=np.maximum(outputs, 1),
        depth=depth,
        dtype=str(work.read_types[0].dtype),
        out=str(work.write_types[0].dtype),
    )


register_vertex(VertexKind("ReducePartials", _compute, _cycles, ("ReducePartials",)))


MOST_UNEVEN = 1.1
"""A sum over the result's own dimensions may cost so many times what a flat one does: what comes next then aligns."""


def reduce_set(
    question: Question, result: int, temporary: int, depth: int, first: int = 0
) -> tuple[ComputeSet, Layout]:
    """The compute set that sums ``depth`` partials of a result, and where the result then lies: evenly over the tiles.

    Split over its own dimensions where that is about as even as in one flat row: a map behind it that broadcasts (a
    bias of the channels) then aligns. The temporary's first dimension numbers the partials; the rest is the result,
    row-major.
    """
    type, chip = question.results[result], question.chip
    partials = partials_type(type.dtype, question.attribute("partials"))
    row, own = flat(type, chip, first), even(type, chip, first)
    costs = (_summing(chip, type, max(1, fullest(home)), depth, partials) for home in (row, own))
    least, other = (float(cycles) for cycles in costs)
    home = own if type.size and other <= MOST_UNEVEN * least else row
    read = Layout(home.grid, (depth, *home.shape), (Span(), *home.spans))
    reads = (Access(f"tmp{temporary}", read),)
    return ComputeSet("ReducePartials", home.grid, reads, (Access(f"out{result}", home),)), home


def _summing(chip: Chip, result: TensorType, outputs: int, depth: Any, partials: DType) -> Any:
    """Cycles of the sum of ``depth`` partials of ``outputs`` elements on a tile, and of their exchange."""
    types = {"dtype": str(partials), "out": str(result.dtype)}
    outs = np.full_like(depth, outputs)
    return chip.estimate("ReducePartials", outputs=outs, depth=depth, **types) + exchange_cycles(
        chip, depth * outs * partials.bytes
    )


def set_cycles(chip: Chip) -> int:
    """Cycles that every compute set costs beside its work: sync and start."""
    return chip.sync_cycles + chip.compute_set_cycles


def reduce_costs(chip: Chip, result: TensorType, depth: np.ndarray, partials: DType) -> tuple[np.ndarray, np.ndarray]:
    """Cycles of a reduction of ``depth`` partials with its exchange, and bytes received by the fullest tile."""
    outputs = max(1, fullest(flat(result, chip)) if result.size else 1)
    received = np.where(depth > 1, depth * outputs * partials.bytes, 0)
    return np.where(depth > 1, set_cycles(chip) + _summing(chip, result, outputs, depth, partials), 0), received

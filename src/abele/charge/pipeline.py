"""The slots of a pipelined loop, from the first micro-batch that goes in to the last one that comes out.

In every slot only the stages that have a micro-batch run: while the pipeline fills, forward stages alone, and while it
drains, backward ones (PopART's ``PopPrograms::addPipelineCycle`` leaves the others out). So of S stages a grouped
pipeline fills and drains in 2 · (S − 1) slots, which are shorter than those between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from abele.schedule.records import Place, Repeat


@dataclass(frozen=True, slots=True)
class Slots:
    """How long the slots of a loop are, in cycles.

    Attributes:
        length: of a slot in which all stages run.
        count: micro-batches.
        ramp: slots in which the pipeline fills and drains.
        halves: parts of a slot in which other stages run, 1 or 2.
        parts: lengths of all parts if ``whole`` micro-batches go through, which are enough to fill the pipeline.
        full: from which of those on all stages run, until no more micro-batches come.
    """

    length: float
    count: int
    ramp: int = 0
    halves: int = 1
    parts: np.ndarray = field(default_factory=lambda: np.empty(0))
    full: int = 0
    whole: int = 0

    @property
    def bubble(self) -> float:
        """What the loop takes beyond a full slot for each micro-batch."""
        return float(self.parts.sum()) - self.whole * self.length if self.ramp else 0.0

    def starts(self) -> np.ndarray:
        """Where each part begins, and the end of the last, from the start of the loop: ``float64[parts + 1]``."""
        if not self.ramp:
            return np.arange(self.count * self.halves + 1) * (self.length / self.halves)
        middle = np.tile(self.parts[self.full : self.full + self.halves], max(0, self.count - self.whole))
        lengths = np.concatenate([self.parts[: self.full], middle, self.parts[self.full :]])
        return np.concatenate([[0.0], np.cumsum(lengths)])


def first_part(place: Place, loop: Repeat, halves: int) -> int:
    """The part of a slot in which a place works on the first micro-batch: see ``schedule.records.PIPELINES``."""
    _, stage, back = place
    if not back:
        return stage
    return 2 * loop.stages - 1 - stage if halves == 2 else 2 * (loop.stages - 1) - stage


def pipelined(loop: Repeat, work: Mapping[Place, float], slot: float, wait: float) -> Slots:
    """The slots of a loop of which each place takes ``work`` cycles for a micro-batch.

    Args:
        slot: cycles of one in which all places run.
        wait: cycles at the end of each part of a slot, which are in ``slot`` too.
    """
    backward = any(back for _, _, back in work)
    halves = 2 if loop.pipeline == "interleaved" and backward else 1
    last = 2 * loop.stages - 3 + halves if backward else loop.stages - 1  # part in which a micro-batch comes out
    whole = min(loop.count, last // halves + 2)
    parts = np.arange(last + halves * (whole - 1) + 1)
    since = parts[:, None] - np.array([first_part(place, loop, halves) for place in work], np.int64)
    runs = (since >= 0) & (since % halves == 0) & (since // halves < whole)
    ipus = sorted({ipu for ipu, _, _ in work})
    cycles = np.zeros((len(work), len(ipus)))
    for row, ((ipu, _, _), taken) in enumerate(work.items()):
        cycles[row, ipus.index(ipu)] = taken
    lengths = (runs @ cycles).max(axis=1, initial=0.0) + wait
    return Slots(slot, loop.count, (last - halves + 1) // halves, halves, lengths, last, whole)

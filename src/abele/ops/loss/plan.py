"""How CTC lies on the tiles: split over the samples; the lattice of a sample, or its beams, lie on one tile.

All other losses are composites that are expanded.
"""

from __future__ import annotations

import numpy as np

from abele.machine.chip import Chip
from abele.ops.plans.layouts import split_dims
from abele.ops.plans.planning import Question, plan_for, read
from abele.ops.plans.vertices import reference_vertex
from abele.schedule.layout import Grid, Layout, Span
from abele.schedule.records import Access, ComputeSet, Plan
from abele.schedule.vertex import VertexKind, Work, register_vertex

_KINDS = {"ctc_loss": "CtcLoss", "ctc_loss_gradient": "CtcGradient", "ctc_beam_search": "CtcBeamSearch"}


def _along(grid: Grid, shape: tuple[int, ...], batch: int) -> Layout:
    """Whole samples; ``batch`` is their dimension."""
    return Layout(grid, shape, tuple(Span(0) if i == batch else Span() for i in range(len(shape))))


@plan_for(*_KINDS)
def plan_ctc(question: Question) -> Plan:
    """One compute set with a vertex for each block of samples."""
    logp, *rest = question.operands
    grid = split_dims(logp.shape[1:2], question.chip.tiles, first=question.first, names=("n",))
    timed = _along(grid, logp.shape, 1)
    reads = [read(question, 0, timed)]
    reads += [read(question, i, _along(grid, t.shape, 0)) for i, t in enumerate(rest, 1)]
    slopes = question.operation == "ctc_loss_gradient"
    homes = tuple(timed if slopes else _along(grid, t.shape, 0) for t in question.results)
    writes = tuple(Access(f"out{i}", home) for i, home in enumerate(homes))
    done = ComputeSet(_KINDS[question.operation], grid, tuple(reads), writes, dict(question.attributes))
    return Plan((done,), homes=homes)


def _lattice_cycles(walks: int):
    """``walks``: how often the lattice is walked over."""

    def cycles(chip: Chip, work: Work) -> np.ndarray:
        steps, _, classes = work.read_types[0].shape
        places = 2 * work.read_types[1].shape[1] + 1
        return chip.estimate("Ctc", steps=steps, places=places, samples=work.lengths["n"], walks=walks, classes=classes)

    return cycles


def _search_cycles(chip: Chip, work: Work) -> np.ndarray:
    steps, _, classes = work.read_types[0].shape
    candidates = int(work.attributes["beam_width"]) * classes
    return chip.estimate("CtcBeamSearch", steps=steps, candidates=candidates, samples=work.lengths["n"])


for _name, _cycles, _code in (
    ("ctc_loss", _lattice_cycles(1), "Ctc"),
    ("ctc_loss_gradient", _lattice_cycles(2), "Ctc"),
    ("ctc_beam_search", _search_cycles, "CtcBeamSearch"),
):
    register_vertex(VertexKind(_KINDS[_name], reference_vertex(_name), _cycles, (_code,)))

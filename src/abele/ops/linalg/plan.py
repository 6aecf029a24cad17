"""How matrices lie on the tiles for linear algebra: split over the batch; a matrix lies whole on one tile.

The vendor's library cuts large matrices into blocks over many tiles. This does not: a single large matrix takes as
long as one tile needs, which the profile shows.
"""

from __future__ import annotations

import numpy as np

from abele.machine.chip import Chip
from abele.ops.linalg.op import factorize_flops
from abele.ops.plans.layouts import split_dims
from abele.ops.plans.planning import Question, plan_for, read
from abele.ops.plans.vertices import reference_vertex
from abele.schedule.layout import Grid, Layout, Span
from abele.schedule.records import Access, ComputeSet, Plan
from abele.schedule.vertex import VertexKind, Work, register_vertex

_KINDS = {
    "cholesky": "Cholesky",
    "solve": "LinearSolve",
    "triangular_solve": "TriangularSolve",
    "slogdet": "LogDeterminant",
    "qr": "QrFactors",
    "eigh": "Eigenvalues",
    "svd": "SingularValues",
}


def _whole(grid: Grid, shape: tuple[int, ...]) -> Layout:
    """Whole matrices, or their vectors and numbers."""
    return Layout(grid, shape, tuple(Span(0) if i == 0 else Span() for i in range(len(shape))))


@plan_for(*_KINDS)
def plan_linalg(question: Question) -> Plan:
    """One compute set with a vertex for each block of matrices."""
    first = question.operands[0]
    grid = split_dims(first.shape[:1], question.chip.tiles, first=question.first, names=("b",))
    reads = tuple(read(question, i, _whole(grid, t.shape)) for i, t in enumerate(question.operands))
    homes = tuple(_whole(grid, t.shape) for t in question.results)
    writes = tuple(Access(f"out{i}", home) for i, home in enumerate(homes))
    done = ComputeSet(_KINDS[question.operation], grid, reads, writes, dict(question.attributes))
    return Plan((done,), homes=homes)


def _cycles(operation: str):
    def cycles(chip: Chip, work: Work) -> np.ndarray:
        types = [t.with_shape((1, *t.shape[1:])) for t in work.read_types]
        flops = factorize_flops(operation, types)
        return chip.estimate("Factorize", flops=flops, columns=types[0].shape[2], matrices=work.lengths["b"])

    return cycles


for _name, _kind in _KINDS.items():
    register_vertex(VertexKind(_kind, reference_vertex(_name), _cycles(_name), ("Factorize",)))

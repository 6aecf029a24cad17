"""How random numbers lie on the tiles: evenly, each tile making its own elements from the key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.ir.graph import Attributes
from abele.machine.chip import Chip
from abele.ops.plans.layouts import flat, own, single, whole
from abele.ops.plans.planning import Question, plan_for, read
from abele.ops.plans.vertices import reference_vertex
from abele.ops.random.op import normal, uniform
from abele.schedule.records import Access, ComputeSet, Plan
from abele.schedule.vertex import Block, VertexKind, Work, register_vertex

_KINDS = {"random_uniform": "RandomUniform", "random_normal": "RandomNormal"}


@plan_for(*_KINDS)
def plan_numbers(question: Question) -> Plan:
    """One vertex a tile; the key is sent to all."""
    (result,) = question.results
    out = flat(result, question.chip, question.first)
    attributes = {k: v for k, v in question.attributes if k != "shape"}
    key = read(question, 0, whole((2,), out.grid))
    done = ComputeSet(_KINDS[question.operation], out.grid, (key,), (Access("out0", out),), attributes)
    return Plan((done,), homes=(out,))


@plan_for("random_key")
def plan_key(question: Question) -> Plan:
    """On one tile."""
    out = single((2,), question.chip.tiles, question.first)
    done = ComputeSet(
        "RandomKey", out.grid, (read(question, 0, out),), (Access("out0", out),), dict(question.attributes)
    )
    return Plan((done,), homes=(own(out.grid, (2,)),))


def _numbers(make):
    def compute(block: Block, pieces: Sequence[np.ndarray], attributes: Attributes) -> Sequence[np.ndarray]:
        return [make(pieces[0], *block.axes["n"], attributes)]

    return compute


def _cycles(kind: str):
    def cycles(chip: Chip, work: Work) -> np.ndarray:
        made = chip.estimate("Random", n=work.writes[0], dtype=str(work.write_types[0].dtype), kind=kind)
        return chip.estimate("SetSeed") + made

    return cycles


register_vertex(VertexKind(_KINDS["random_uniform"], _numbers(uniform), _cycles("uniform"), ("Random", "SetSeed")))
register_vertex(VertexKind(_KINDS["random_normal"], _numbers(normal), _cycles("normal"), ("Random", "SetSeed")))
register_vertex(
    VertexKind(
        "RandomKey",
        reference_vertex("random_key"),
        lambda chip, work: np.broadcast_to(chip.estimate("SetSeed"), work.reads[0].shape),
        ("SetSeed",),
    )
)

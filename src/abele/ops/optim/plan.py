"""How an update lies on the tiles: where the parameter lies, in one loop over parameter, gradient and state.

LAMB and LARS have no plan of their own: they need two norms over the whole tensor, and are expanded.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from abele.ir import DType, TensorType, evaluate, expansion
from abele.ir.graph import Attributes
from abele.machine.chip import Chip
from abele.ops.optim.op import HYPER, MAY_BE_ZERO
from abele.ops.plans.chains import chain_cycles
from abele.ops.plans.layouts import LEAST_GAIN, flat, fullest, least_of, read_like, whole
from abele.ops.plans.planning import Question, plan_for, read
from abele.ops.plans.vertices import region_shape
from abele.schedule.layout import Layout
from abele.schedule.records import Access, ComputeSet, Plan
from abele.schedule.vertex import Block, VertexKind, Work, register_vertex


@plan_for("sgd", "adam", "rmsprop")
def plan_update(question: Question) -> Plan:
    """One set that writes the parameter and all state; the scalars are sent to every tile."""
    place = _place(question)
    tensors = len(question.operands) - len(HYPER[question.operation])
    reads = [read_like(question, i, place) for i in range(tensors)]
    reads += [read(question, i, whole((), place.grid)) for i in range(tensors, len(question.operands))]
    done = ComputeSet(
        "ScaledUpdate" if _scales(question) else "Update",
        place.grid,
        tuple(reads),
        tuple(Access(f"out{i}", place) for i in range(len(question.results))),
        {
            "operation": question.operation,
            "dtypes": tuple(str(t.dtype) for t in question.operands),
            "given": question.attributes,
        },
    )
    return Plan((done,), homes=(place,) * len(question.results))


def _place(question: Question) -> Layout:
    """The home of the parameter, else of its state, else of the gradient; even where none is, or it is too lopsided."""
    param = question.results[0]
    fresh = flat(param, question.chip, question.first)
    limit = LEAST_GAIN * max(fullest(fresh), least_of(param.dtype))
    scalars = len(HYPER[question.operation])
    param_home, grad_home, *state_homes = question.homes[: len(question.homes) - scalars]
    for home in (param_home, *state_homes, grad_home):
        if home is not None and home.is_partition and fullest(home) <= limit:
            return home
    return fresh


def _update(block: Block, pieces: Sequence[np.ndarray], attributes: Attributes) -> Sequence[np.ndarray]:
    """The optimiser's own graph on the pieces of one block."""
    shape = region_shape(block.writes[0])
    name, dtypes = str(attributes["operation"]), attributes["dtypes"]
    scalars = len(HYPER[name])
    shapes = [shape] * (len(pieces) - scalars) + [()] * scalars
    types = [TensorType(s, DType(str(d))) for s, d in zip(shapes, dtypes, strict=True)]
    values = [p.reshape(t.shape).astype(t.dtype.numpy) for p, t in zip(pieces, types, strict=True)]
    return evaluate(expansion(name, types, dict(attributes["given"])), values)


@lru_cache
def _chain(name: str, dtypes: tuple[str, ...], given: tuple) -> tuple[tuple[str, str], ...]:
    """The elementwise operations of an update, each with its dtype; those on scalars cost next to nothing."""
    scalars = len(HYPER[name])
    shapes = [(2,)] * (len(dtypes) - scalars) + [()] * scalars
    types = [TensorType(s, DType(d)) for s, d in zip(shapes, dtypes, strict=True)]
    graph = expansion(name, types, dict(given))
    return tuple((op.name, str(op.result.dtype)) for op in graph.operations if op.result.shape == (2,))


def _update_cycles(chip: Chip, work: Work) -> np.ndarray:
    name, dtypes = str(work.attributes["operation"]), work.attributes["dtypes"]
    body = _chain(name, dtypes, work.attributes["given"])
    return chain_cycles(chip, work.writes[0], body, len(work.reads) - len(HYPER[name]))


def _scaled_cycles(chip: Chip, work: Work) -> np.ndarray:
    """``velocity *= momentum``, ``velocity += grad``, ``param -= lr · velocity``; or one loop where that is quicker."""
    param, grad, velocity = (str(t.dtype) for t in work.read_types[:3])
    n = work.writes[0]
    loops: Any = chip.estimate("ScaledAdd", n=n, dtype=param, other=velocity)
    loops = loops + chip.estimate("Elementwise", n=n, ops="mul", dtype=velocity, broadcast="scalar")
    loops = loops + chip.estimate("ScaledAdd", n=n, dtype=velocity, other=grad)
    return np.minimum(loops, _update_cycles(chip, work))


def _scales(question: Question) -> bool:
    """Whether an update is scaled additions in place, each rounded as the whole is: SGD with its state in float."""
    if question.operation != "sgd" or question.options.planner == "poplibs":
        return False
    momentum, nesterov, zero = (question.attribute(name) for name in ("use_momentum", "nesterov", "zero"))
    plain = momentum and not nesterov and set(zero) == set(MAY_BE_ZERO)
    return bool(plain) and question.operands[2].dtype is DType.F32


register_vertex(VertexKind("Update", _update, _update_cycles, ("Elementwise",)))
register_vertex(VertexKind("ScaledUpdate", _update, _scaled_cycles, ("Elementwise", "ScaledAdd")))

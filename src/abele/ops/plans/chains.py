"""A chain of elementwise functions as one vertex: what it computes, its cycles, and which published vertex does it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from abele.ir.types import DType
from abele.machine.chip import Chip
from abele.ops.elementwise.activations import last_activation, with_activations
from abele.ops.elementwise.expression import Body, body_of, evaluate_body
from abele.ops.plans.vertices import like, region_shape
from abele.ops.rules import Attributes
from abele.schedule.vertex import Block, VertexKind, Work, register_vertex

Pieces = Sequence[np.ndarray]


def chain_cycles(chip: Chip, n: np.ndarray, body: Sequence, operands: int) -> np.ndarray:
    """Tile cycles of a fused chain over ``n`` elements.

    One loop in the widest float type that the body uses; constants cost nothing, casts a move between registers.
    """
    names = loop_operations(body)
    return chip.estimate("Elementwise", n=n, ops=names or "copy", dtype=loop_dtype(body), operands=operands)


def loop_operations(body: Sequence) -> tuple[str, ...]:
    """Names of the operations of one turn of the loop."""
    return tuple(fn for fn, *_ in body if fn != "constant")


def loop_dtype(body: Sequence) -> str:
    """The type of the loop's arithmetic: the widest float that the body uses, or what else it uses."""
    dtypes = ["f16" if DType(node[1]).is_float8 else node[1] for node in body]
    return "f32" if "f32" in dtypes else "f16" if "f16" in dtypes else next((d for d in dtypes if d != "bool"), "bool")


def _map(block: Block, pieces: Pieces, attributes: Attributes) -> Pieces:
    shape = region_shape(block.writes[0])
    done = evaluate_body(body_of(attributes), [like(p, shape) for p in pieces])
    return [np.broadcast_to(done, shape)]


def _map_cycles(chip: Chip, work: Work) -> np.ndarray:
    return chain_cycles(chip, work.writes[0], with_activations(body_of(work.attributes)), len(work.reads))


def _nonlinearity_cycles(chip: Chip, work: Work) -> np.ndarray:
    """The published vertex; after a loop for what comes before it, or in one with that if this is quicker."""
    n, dtype = work.writes[0], str(work.write_types[0].dtype)
    before, kind = last_activation(body_of(work.attributes))
    cycles = chip.estimate("Nonlinearity", n=n, kind=kind, dtype=dtype)
    if not before:
        return cycles
    return np.minimum(cycles + chain_cycles(chip, n, before, len(work.reads)), _map_cycles(chip, work))


register_vertex(VertexKind("Map", _map, _map_cycles, ("Elementwise",)))
register_vertex(VertexKind("Nonlinearity", _map, _nonlinearity_cycles, ("Nonlinearity",)))
register_vertex(VertexKind("MapNonlinearity", _map, _nonlinearity_cycles, ("Elementwise", "Nonlinearity")))


def map_vertex(body: Body) -> tuple[str, Attributes]:
    """Vertex and attributes of a chain: the published vertex where it is one activation and nothing beside."""
    before, kind = last_activation(body)
    return "Map" if kind is None else "MapNonlinearity" if before else "Nonlinearity", {"body": body}

"""What the vertices of many families share: running a primitive's reference on the pieces of one block."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from abele.ir.graph import Attributes
from abele.ir.operation import Primitive, lookup
from abele.ir.types import DType, TensorType
from abele.schedule.vertex import Block

Compute = Callable[[Block, Sequence[np.ndarray], Attributes], Sequence[np.ndarray]]


def region_shape(region: Sequence[slice]) -> tuple[int, ...]:
    """Shape of a region of a view."""
    return tuple(max(0, piece.stop - piece.start) for piece in region)


def reference_vertex(name: str) -> Compute:
    """A vertex that does on its block what the primitive ``name`` does on whole tensors.

    The compute set's attributes must be the primitive's, and the views of its accesses the operands' own shapes (or
    shapes in which the primitive means the same). Result types have the shapes of the written regions; a reference
    that rounds inside by the result's dtype needs a vertex of its own.
    """

    def compute(block: Block, pieces: Sequence[np.ndarray], attributes: Attributes) -> Sequence[np.ndarray]:
        primitive = lookup(name)
        assert isinstance(primitive, Primitive), name
        results = [TensorType(region_shape(region), DType.F32) for region in block.writes]
        return primitive.reference(pieces, attributes, results)

    return compute


def like(piece: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A piece of an operand as it broadcasts against a written piece of ``shape``.

    A piece with as many elements holds the same ones in the same order, whatever its view; others broadcast.
    """
    if piece.size == math.prod(shape):
        return piece.reshape(shape)
    return np.broadcast_to(piece.reshape(()) if piece.size == 1 else piece, shape)

"""What the compiler makes of chains: ``map``, several elementwise functions in one loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from abele.ir.operation import REQUIRED, Arg, Primitive, Sample, register
from abele.ir.types import TensorType, boolean, f16, f32
from abele.ops.elementwise.expression import FUSED_LATE, body_of, body_types, evaluate_body, map_flops
from abele.ops.rules import Attributes, broadcast


def _infer_map(operands: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    types = body_types(body_of(attributes), operands)
    return (TensorType(broadcast("map", operands), types[-1].dtype),)


def _map(operands: Sequence[np.ndarray], attributes: Attributes, results: Sequence[TensorType]):
    return (np.broadcast_to(evaluate_body(body_of(attributes), operands), results[0].shape),)


_SCALED_TANH = (("mul", "f32", (-1, -2), ()), ("tanh", "f32", (0,), ()), ("add", "f32", (1, -3), ()))
_HALF_GATE = (
    ("cast", "f32", (-1,), ("f32",)),
    ("constant", "f32", (), (0.5,)),
    ("mul", "f32", (0, 1), ()),
    ("sigmoid", "f32", (2,), ()),
    ("cast", "f16", (3,), ("f16",)),
    ("mul", "f16", (4, -2), ()),
)
_MASKED = (("constant", "f32", (), (0.0,)), ("gt", "bool", (-2, 0), ()), ("logical_and", "bool", (1, -1), ()),
           ("select", "f32", (2, -2, 0), ()))  # fmt: skip


def _map_samples() -> Iterable[Sample]:
    yield Sample((Arg(f32(4, 19)), Arg(f32(19)), Arg(f32())), {"body": _SCALED_TANH})
    yield Sample((Arg(f32(2, 1, 3)), Arg(f32(4, 1)), Arg(f32(3))), {"body": _SCALED_TANH})
    yield Sample((Arg(f16(70)), Arg(f16(70))), {"body": _HALF_GATE})
    yield Sample((Arg(boolean(3, 5), "boolean"), Arg(f32(3, 5))), {"body": _MASKED})
    yield Sample((Arg(f32(0, 3)), Arg(f32(3)), Arg(f32())), {"body": _SCALED_TANH})


register(
    Primitive(
        "map",
        {"body": REQUIRED},
        _infer_map,
        _map,
        FUSED_LATE,
        lambda operands, results, attributes: map_flops(body_of(attributes), operands),
        _map_samples,
        traits=frozenset({"in_place", "alike"}),
    )
)

"""Collectives as operations: replicas that run the same program reduce, spread, gather or exchange a tensor.

``group`` and ``stride`` say which replicas take part together, see ``replicas.groups``. A tensor is spread over a group
as it lies in row-major order, in equal parts, the last filled up with zeros: a reduce-scatter makes ``[part]`` of any
tensor, and an all-gather makes the tensor again. The references are those of one replica alone, which is all that a
group of one is; what several do is ``replicas.over_replicas``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from abele.errors import Bug, InvalidOperand
from abele.ir.builder import Builder
from abele.ir.graph import Operation, Value
from abele.ir.operation import REQUIRED, Arg, NotDifferentiable, Primitive, Sample, register
from abele.ir.types import TensorType, f16, f32, i32
from abele.ops.collectives.replicas import over_replicas, shard_size
from abele.ops.rules import Attributes, need_dtype, need_operands, no_flops

REDUCTIONS = ("sum", "mean")


def _alone(name: str):
    def reference(operands: Sequence[np.ndarray], attributes: Attributes, results: Sequence[TensorType]):
        if int(attributes["group"]) > 1:
            raise Bug(f"{name} over {attributes['group']} replicas has no meaning on one of them")
        return over_replicas(name, operands[:1], attributes)

    return reference


def _checked(name: str, operands: Sequence[TensorType], attributes: Attributes, least: int, most: int = 1) -> int:
    """Members of a group, after checks of what all collectives share; ``least`` is 0 where 0 means all replicas."""
    if most == 1:
        need_operands(name, operands, 1)
    elif not 1 <= len(operands) <= most:
        raise InvalidOperand(f"{name} takes 1 to {most} operands, not {len(operands)}")
    if "reduction" in attributes:
        need_dtype(name, operands, lambda d: d.is_float, "f32 or f16")
        if attributes["reduction"] not in REDUCTIONS:
            raise InvalidOperand(f"{name} has reduction {attributes['reduction']!r}; it must be 'sum' or 'mean'")
    group, stride = int(attributes["group"]), int(attributes["stride"])
    if group < least or stride < 1:
        raise InvalidOperand(f"{name} has group {group} and stride {stride}; they are at least {least} and 1")
    return group


def _infer_all_reduce(operands: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    _checked("all_reduce", operands, attributes, 0)
    return (operands[0],)


def _infer_shard(name: str):
    def infer(operands: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        group = _checked(name, operands, attributes, 1)
        return (TensorType((shard_size(operands[0].size, group),), operands[0].dtype),)

    return infer


def _infer_gather(operands: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    group = _checked("all_gather", operands, attributes, 1, 2)
    shape = tuple(attributes["shape"])
    made = TensorType(shape, operands[0].dtype)
    if operands[0].shape != (shard_size(made.size, group),):
        raise InvalidOperand(
            f"all_gather makes {list(shape)} of {group} parts: they are [{shard_size(made.size, group)}], not "
            f"{list(operands[0].shape)}"
        )
    if len(operands) > 1 and operands[1] != made:
        raise InvalidOperand(f"all_gather makes {made}, which does not replace {operands[1]}")
    return (made,)


def _infer_all_to_all(operands: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    group = _checked("all_to_all", operands, attributes, 1)
    shape = operands[0].shape
    if not shape or shape[0] % group:
        raise InvalidOperand(f"all_to_all of {list(shape)}: {group} members must divide the first dimension")
    return (operands[0],)


def _over(op: Operation) -> dict:
    """``group`` and ``stride`` of an operation."""
    given = op.attributes
    return {"group": given["group"], "stride": given["stride"]}


def _one(given: Sequence[Value | None]) -> Value:
    (dy,) = given
    assert dy is not None
    return dy


def _all_reduce_gradient(b: Builder, op: Operation, given: Sequence[Value | None]) -> Sequence[Value | None]:
    """Every replica's operand reaches every replica's result, so that the gradients are reduced likewise."""
    return (b.all_reduce(_one(given), reduction=op.attributes["reduction"], **_over(op)),)


def _scatter_gradient(b: Builder, op: Operation, given: Sequence[Value | None]) -> Sequence[Value | None]:
    """Each part of every operand reaches the result of one member: the gradients of the parts are gathered."""
    dx = b.all_gather(_one(given), shape=op.operands[0].shape, **_over(op))
    if op.attributes["reduction"] == "mean":
        dx = b.mul(dx, b.constant(1.0 / int(op.attributes["group"]), dx.dtype))
    return (dx,)


def _gather_gradient(b: Builder, op: Operation, given: Sequence[Value | None]) -> Sequence[Value | None]:
    """A member's part reaches all results: its gradient is the sum of theirs."""
    return (b.reduce_scatter(_one(given), reduction="sum", **_over(op)), *[None] * (len(op.operands) - 1))


def _all_to_all_gradient(b: Builder, op: Operation, given: Sequence[Value | None]) -> Sequence[Value | None]:
    return (b.all_to_all(_one(given), **_over(op)),)


def _adds(operands: Sequence[TensorType], results: Sequence[TensorType], attributes: Attributes) -> int:
    return operands[0].size


_SHAPES = (f32(3, 5), f32(), f16(67), f32(0, 2))


def _samples(attributes: Attributes, types: Sequence[TensorType] = _SHAPES):
    def samples() -> Iterable[Sample]:
        for type_ in types:
            draw = "normal" if type_.dtype.is_float else "integers"
            yield Sample((Arg(type_, draw),), attributes)

    return samples


def _gather_samples() -> Iterable[Sample]:
    for type_ in (*_SHAPES, i32(4)):
        draw = "normal" if type_.dtype.is_float else "integers"
        attributes = {"group": 1, "shape": type_.shape}
        part = TensorType((math.prod(type_.shape),), type_.dtype)
        yield Sample((Arg(part, draw),), attributes)
        yield Sample((Arg(part, draw), Arg(type_, draw)), attributes)


_GROUPS = {"group": REQUIRED, "stride": 1}
_SPREAD = {**_GROUPS, "alone": 0}  # alone: not done together with equal ones beside it
_TRAITS = frozenset({"collective"})

register(
    Primitive(
        "all_reduce",
        {"reduction": "sum", "group": 0, "stride": 1},
        _infer_all_reduce,
        _alone("all_reduce"),
        _all_reduce_gradient,
        _adds,
        _samples({"reduction": "sum"}),
        traits=_TRAITS,
    )
)
register(
    Primitive(
        "reduce_scatter",
        {"reduction": "sum", **_SPREAD},
        _infer_shard("reduce_scatter"),
        _alone("reduce_scatter"),
        _scatter_gradient,
        _adds,
        _samples({"reduction": "mean", "group": 1}),
        traits=_TRAITS,
    )
)
# A second operand is what the result replaces: it lies where that lies.
register(
    Primitive(
        "all_gather",
        {"shape": REQUIRED, **_SPREAD},
        _infer_gather,
        _alone("all_gather"),
        _gather_gradient,
        no_flops,
        _gather_samples,
        traits=_TRAITS,
    )
)
register(
    Primitive(
        "all_to_all",
        dict(_GROUPS),
        _infer_all_to_all,
        _alone("all_to_all"),
        _all_to_all_gradient,
        no_flops,
        _samples({"group": 1}, (f32(3, 5), f16(67), f32(2, 0), i32(4))),
        traits=_TRAITS,
    )
)
register(
    Primitive(
        "replica_shard",
        dict(_GROUPS),
        _infer_shard("replica_shard"),
        _alone("replica_shard"),
        NotDifferentiable("each replica takes its part of a tensor that all of them hold alike"),
        no_flops,
        _samples({"group": 1}, (*_SHAPES, i32(4))),
        traits=_TRAITS,
    )
)

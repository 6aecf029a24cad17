"""How the norms and their gradients lie on the tiles: statistics where the operand lies (see ``rows``)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from abele.ops.plans.planning import Question, plan_for
from abele.ops.plans.rows import ROW_CHOICES, ROWS, Arrays, RowOperation, Segment, plan_rows, register_rows
from abele.schedule.records import Plan

Extra = Mapping[str, Any]


def _moments(values: Arrays, axes: tuple[int, ...], a: Extra) -> Arrays:
    """Count, mean and sum of squared distances from it, of a block."""
    x = values[0]
    count = max(1, math.prod(x.shape[i] for i in axes))
    mean = x.sum(axis=axes, keepdims=True) / count
    return [np.full_like(mean, count), mean, ((x - mean) ** 2).sum(axis=axes, keepdims=True)]


def _mean_and_variance(parts: Arrays, a: Extra) -> Arrays:
    """Moments of several blocks together, by their distances from the common mean (Chan, Golub and LeVeque)."""
    count, mean, squares = parts
    total = count.sum(axis=0)
    common = (count * mean).sum(axis=0) / total
    spread = squares.sum(axis=0) + (count * (mean - common) ** 2).sum(axis=0)
    return [common, spread / total]


def _normal(v: Arrays, s: Arrays, a: Extra) -> np.ndarray:
    y = (v[0] - s[0]) / np.sqrt(s[1] + a["eps"])
    return _scaled(y, v[1:])


def _scaled(y: np.ndarray, affine: Arrays) -> np.ndarray:
    if len(affine):
        y = y * affine[0]
    return y + affine[1] if len(affine) > 1 else y


_FORWARD: dict[str, Any] = {
    "wide": 1, "given": 0, "partial": _moments, "combine": _mean_and_variance, "apply": _normal,
    "columns": 3, "combined": 2, "reductions": ("add", "square_add"), "applied": ("sub", "mul"),
}  # fmt: skip


def _with_deviation(s: Arrays, a: Extra) -> Arrays:
    return [s[0], 1.0 / np.sqrt(s[1] + a["eps"])]


def _rstd(v: Arrays, a: Extra) -> np.ndarray:
    """The fourth operand of a gradient: a variance for batch norm, else the reciprocal deviation itself."""
    return 1.0 / np.sqrt(v[3] + a["eps"]) if a["operation"] == "batch_norm_grad" else v[3]


def _normal_of(v: Arrays, a: Extra) -> np.ndarray:
    return (v[1] - v[2]) * _rstd(v, a)


def _inner(v: Arrays) -> np.ndarray:
    return v[0] * v[4] if len(v) > 4 else v[0]


def _grad_sums(v: Arrays, axes: tuple[int, ...], a: Extra) -> Arrays:
    g = _inner(v)
    return [g.sum(axis=axes, keepdims=True), (g * _normal_of(v, a)).sum(axis=axes, keepdims=True)]


def _grad_apply(v: Arrays, s: Arrays, a: Extra) -> np.ndarray:
    return _rstd(v, a) * (_inner(v) - (s[0] + _normal_of(v, a) * s[1]) / a["count"])


_BACKWARD: dict[str, Any] = {
    "wide": 2, "given": 2, "partial": _grad_sums, "combine": lambda parts, a: [p.sum(axis=0) for p in parts],
    "apply": _grad_apply, "columns": 2, "combined": 2, "products": lambda v, a: [v[0] * _normal_of(v, a), v[0]],
    "reductions": ("add", "add"), "prepared": ("sub", "mul", "mul"), "applied": ("sub", "mul", "sub", "mul"),
}  # fmt: skip

ROWS["layer_norm"] = ROWS["group_norm"] = RowOperation(**_FORWARD, returned=_with_deviation)
ROWS["batch_norm"] = RowOperation(**_FORWARD, returned=lambda s, a: list(s))
for _name in ("layer_norm_grad", "group_norm_grad", "batch_norm_grad"):
    ROWS[_name] = RowOperation(**_BACKWARD)
ROWS["rms_norm"] = RowOperation(
    1, 0, lambda v, axes, a: [(v[0] ** 2).sum(axis=axes, keepdims=True)],
    lambda parts, a: [parts[0].sum(axis=0)],
    lambda v, s, a: _scaled(v[0] / np.sqrt(s[0] / a["count"] + a["eps"]), v[1:]),
    columns=1, combined=1, reductions=("square_add",), applied=("mul",),
)  # fmt: skip
ROWS["batch_norm_inference"] = RowOperation(
    1, 0, None, lambda parts, a: [],
    lambda v, s, a: (v[0] - v[3]) * (v[1] / np.sqrt(v[4] + a["eps"])) + v[2],
    applied=("sub", "mul"),
)  # fmt: skip
register_rows("Norm", ("Elementwise", "Reduce", "InvStd"))


def _eps(question: Question) -> dict[str, float]:
    return {key: value for key, value in question.attributes if key == "eps"}  # type: ignore[misc]


@plan_for("layer_norm", "layer_norm_grad", "rms_norm", choices=ROW_CHOICES)
def plan_trailing(question: Question) -> Plan:
    """Statistics over the trailing axes, which scale and shift have too."""
    shape = question.operands[0].shape
    lead = len(shape) - int(question.attribute("axes"))
    segments = (Segment(math.prod(shape[:lead]), False), Segment(math.prod(shape[lead:]), True, scaled=True))
    return plan_rows(question, segments, "Norm", _eps(question))


@plan_for("batch_norm", "batch_norm_grad", "batch_norm_inference", choices=ROW_CHOICES)
def plan_channels(question: Question) -> Plan:
    """Statistics over all axes but the channels, which scale and shift have."""
    shape = question.operands[0].shape
    gathers = question.operation != "batch_norm_inference"
    segments = (
        Segment(shape[0], gathers),
        Segment(shape[1], False, scaled=True),
        Segment(math.prod(shape[2:]), gathers),
    )
    return plan_rows(question, segments, "Norm", _eps(question))


@plan_for("group_norm", "group_norm_grad", choices=ROW_CHOICES)
def plan_groups(question: Question) -> Plan:
    """Statistics of every group of every sample; scale and shift have groups and channels within."""
    shape, groups = question.operands[0].shape, int(question.attribute("groups"))
    segments = (
        Segment(shape[0], False),
        Segment(groups, False, scaled=True),
        Segment(shape[1] // groups, True, scaled=True),
        Segment(math.prod(shape[2:]), True),
    )
    return plan_rows(question, segments, "Norm", _eps(question))

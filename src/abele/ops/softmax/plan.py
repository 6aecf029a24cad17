"""How softmax, log-softmax and their gradients lie on the tiles: rows where their operand lies (see ``norm.rows``)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from abele.ops.plans.planning import Question, plan_for
from abele.ops.plans.rows import ROW_CHOICES, ROWS, Arrays, RowOperation, Segment, plan_rows, register_rows
from abele.ops.rules import LOWEST
from abele.schedule.records import Plan


def _largest_and_sum(values: Arrays, axes: tuple[int, ...], attributes: Mapping[str, Any]) -> Arrays:
    (x,) = values
    # finite also where all of a part is minus infinity: such a part adds nothing, and a whole row of it divides 0 by 0
    largest = x.max(axis=axes, keepdims=True, initial=LOWEST)
    return [largest, np.exp(x - largest).sum(axis=axes, keepdims=True)]


def _rescaled(parts: Arrays, attributes: Mapping[str, Any]) -> Arrays:
    """Sums of exponentials relative to the largest element of all parts."""
    largest, total = parts
    over = largest.max(axis=0)
    return [over, (total * np.exp(largest - over)).sum(axis=0)]


def _added(parts: Arrays, attributes: Mapping[str, Any]) -> Arrays:
    return [parts[0].sum(axis=0)]


ROWS["softmax"] = RowOperation(
    1, 0, _largest_and_sum, _rescaled,
    lambda v, s, a: np.exp(v[0] - s[0]) / (np.maximum(s[1], 1) if a.get("safe") else s[1]),
    columns=2, combined=2,
    reductions=("max", "add"), prepared=("sub", "exp"), applied=("mul",),
)  # fmt: skip
ROWS["log_softmax"] = RowOperation(
    1, 0, _largest_and_sum, _rescaled,
    lambda v, s, a: v[0] - s[0] - np.log(s[1]),
    columns=2, combined=2,
    reductions=("max", "add"), prepared=("sub", "exp"), applied=("sub",),
)  # fmt: skip
ROWS["softmax_grad"] = RowOperation(
    2, 0, lambda v, axes, a: [(v[0] * v[1]).sum(axis=axes, keepdims=True)], _added,
    lambda v, s, a: v[1] * (v[0] - s[0]),
    columns=1, combined=1,
    reductions=("add",), prepared=("mul",), applied=("sub", "mul"),
)  # fmt: skip
ROWS["log_softmax_grad"] = RowOperation(
    2, 0, lambda v, axes, a: [v[0].sum(axis=axes, keepdims=True)], _added,
    lambda v, s, a: v[0] - np.exp(v[1]) * s[0],
    columns=1, combined=1,
    reductions=("add",), applied=("exp", "mul", "sub"),
)  # fmt: skip
register_rows("Softmax", ("Softmax",))


@plan_for("softmax", "log_softmax", "softmax_grad", "log_softmax_grad", choices=ROW_CHOICES)
def plan_softmax(question: Question) -> Plan:
    """Rows along ``axis``."""
    shape = question.operands[0].shape
    axis = int(question.attribute("axis")) % len(shape)
    segments = (
        Segment(math.prod(shape[:axis]), False),
        Segment(shape[axis], True),
        Segment(math.prod(shape[axis + 1 :]), False),
    )
    safe = {"safe": True} if dict(question.attributes).get("safe") else {}
    return plan_rows(question, segments, "Softmax", safe)

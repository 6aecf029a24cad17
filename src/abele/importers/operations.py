"""The one operation that importers add: a tensor through which no gradient flows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from abele.errors import InvalidOperand
from abele.ir import OPERATIONS, Arg, Builder, Composite, NotDifferentiable, Sample, Value, f16, f32, register
from abele.ir.operation import Attributes


def _stop_gradient(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    if len(operands) != 1:
        raise InvalidOperand(f"stop_gradient takes one operand, not {len(operands)}")
    return operands


def _samples() -> Iterable[Sample]:
    yield Sample((Arg(f32(3, 5)),), {})
    yield Sample((Arg(f16(7)),), {})


if "stop_gradient" not in OPERATIONS:
    register(
        Composite("stop_gradient", {}, _stop_gradient, _samples, NotDifferentiable("the program detached its operand"))
    )

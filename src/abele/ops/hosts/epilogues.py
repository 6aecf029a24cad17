"""Products that can take a map behind them: the kernels of ``fused``, registered by the families of its roots.

A root's planner gets the request of the root alone, and the map as expressions over its sum. So the family of ``fused``
knows no other family, and a family that can take a map says so beside its own kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from abele.codegen import Expr, Operand
from abele.ops.hosts.kernels import HostPlan, Ref, Request


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What is done with a sum before it is written; by default it is written as it is.

    Attributes:
        exprs: the map as expressions. Node 0 is the sum in float32, the next ones are the operands.
        operands: what else the map reads: memory, and dtype and strides over the result.
        node: the node that is written.
    """

    exprs: tuple[Expr, ...] = ()
    operands: tuple[tuple[Ref, Operand], ...] = ()
    node: int = 0


PLAIN = Epilogue()
RootPlanner = Callable[[Request, Epilogue], HostPlan | None]
ROOTS: dict[str, RootPlanner] = {}


def root_for(*names: str) -> Callable[[RootPlanner], RootPlanner]:
    """Register how the host runs these operations with a map behind them."""

    def add(planner: RootPlanner) -> RootPlanner:
        for name in names:
            if name in ROOTS:
                raise ValueError(f"operation {name!r} has two kernels with an epilogue")
            ROOTS[name] = planner
        return planner

    return add

"""A root and its map on the host: one kernel, where the family of the root has one that takes an epilogue."""

from __future__ import annotations

from typing import Any

from abele.codegen import Expr
from abele.ops.hosts.epilogues import ROOTS, Epilogue
from abele.ops.hosts.expressions import body_exprs, host_operand, known
from abele.ops.hosts.kernels import HostPlan, Ref, Request, kernel_for


@kernel_for("fused")
def _fused(request: Request) -> HostPlan | None:
    a: Any = request.attributes
    planner, roots = ROOTS.get(a["root"]), int(a["root_operands"])
    epilogue = _epilogue(request, a["body"], roots)
    if planner is None or epilogue is None:
        return None
    return planner(Request(a["root"], dict(a["root_attributes"]), request.operands[:roots], request.results), epilogue)


def _epilogue(request: Request, body: Any, roots: int) -> Epilogue | None:
    """The map as an epilogue; a half root is rounded before the map reads it."""
    root_dtype, others = request.operands[0].dtype, request.operands[roots:]
    shape = request.results[0].shape
    if not known(others):
        return None
    count = 1 + len(others)
    first = list(range(count))
    exprs: list[Expr] = []
    if root_dtype == "f16":
        exprs.append(Expr("cast", (0,), "f16"))
        first[0] = count
    nodes = body_exprs(body, [root_dtype, *(s.dtype for s in others)], first)
    if nodes is None:
        return None
    exprs += nodes
    operands = tuple((Ref("in", roots + i), host_operand(s, shape)) for i, s in enumerate(others))
    return Epilogue(tuple(exprs), operands, count + len(exprs) - 1)

"""Elementwise operations on the host: one native loop for a single function and for a whole map."""

from __future__ import annotations

from typing import Any

from abele.codegen import Expr
from abele.ops.elementwise.functions import FUNCTIONS
from abele.ops.hosts.expressions import body_exprs, host_name, map_plan, node
from abele.ops.hosts.kernels import HostPlan, Request, kernel_for


@kernel_for("map")
def _map(request: Request) -> HostPlan | None:
    body: Any = request.attributes["body"]
    exprs = body_exprs(body, [s.dtype for s in request.operands])
    return None if exprs is None else map_plan(request, exprs, [len(request.operands) + len(exprs) - 1])


@kernel_for("select", "cast", *FUNCTIONS)
def _single(request: Request) -> HostPlan | None:
    operands = request.operands
    args = range(len(operands))
    params = tuple(request.attributes.values())
    expr = node(request.operation, str(request.results[0].type.dtype), args, [s.dtype for s in operands], params)
    return None if expr is None else map_plan(request, [expr], [len(operands)])


@kernel_for("fill")
def _fill(request: Request) -> HostPlan | None:
    expr = node("constant", request.results[0].dtype, (), (), (request.attributes["value"],))
    return None if expr is None else map_plan(request, [expr], [0])


@kernel_for("iota")
def _iota(request: Request) -> HostPlan | None:
    (result,), a = request.results, request.attributes
    dtype = host_name(result.dtype)
    if dtype is None or dtype == "bool":
        return None
    exprs = [Expr("index", (), "i32", dim=int(a["axis"]))]
    wide = "f32" if dtype in ("f32", "f16") else "i32"
    for fn, number in (("mul", a["step"]), ("add", a["start"])):
        before = len(exprs) - 1
        if wide == "f32" and exprs[-1].dtype == "i32":
            exprs.append(Expr("cast", (before,), "f32"))
            before += 1
        exprs.append(Expr("const", (), wide, value=float(number)))
        exprs.append(Expr(fn, (before, before + 1), wide))
    exprs.append(Expr("cast", (len(exprs) - 1,), dtype))
    return map_plan(request, exprs, [len(exprs) - 1])

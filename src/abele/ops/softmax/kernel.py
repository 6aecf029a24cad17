"""Softmax and its gradients on the host: one kernel each, statistics in float32."""

from __future__ import annotations

from abele.codegen.recipe import softmax, softmax_gradient
from abele.ops.hosts.kernels import HostPlan, Request, in_order, ins, kernel_for, outs


@kernel_for("softmax", "log_softmax")
def _softmax(request: Request) -> HostPlan | None:
    (x,), (y,) = request.operands, request.results
    if not (x.plain and y.plain) or not x.type.size:
        return None
    axis, safe = int(request.attributes["axis"]), bool(request.attributes.get("safe"))
    kernels = softmax(x.shape, axis, x.dtype, log=request.operation == "log_softmax", safe=safe)
    return in_order(kernels, (*ins(1), *outs(1)))


@kernel_for("softmax_grad", "log_softmax_grad")
def _softmax_grad(request: Request) -> HostPlan | None:
    dy, y = request.operands
    (dx,) = request.results
    if not (dy.plain and y.plain and dx.plain) or not y.type.size or dy.dtype != y.dtype:
        return None
    axis = int(request.attributes["axis"])
    kernels = softmax_gradient(y.shape, axis, y.dtype, log=request.operation == "log_softmax_grad")
    return in_order(kernels, (*reversed(ins(2)), *outs(1)))

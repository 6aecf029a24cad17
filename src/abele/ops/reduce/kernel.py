"""Reductions on the host, for any strides, and running sums; a long reduction over few results is split in chunks."""

from __future__ import annotations

import math
from typing import Any

from abele.codegen import Expr, Output, reduce_kernels
from abele.codegen.scan import cumsum_kernel
from abele.ops.hosts.expressions import host_name, host_operand
from abele.ops.hosts.kernels import HostPlan, Request, in_order, ins, kernel_for, outs

_ARGS = {"arg_max": "reduce_argmax", "arg_min": "reduce_argmin"}


@kernel_for("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_any", "reduce_all", "arg_max", "arg_min")
def _reduce(request: Request) -> HostPlan | None:
    (x,), (y,) = request.operands, request.results
    a: Any = request.attributes
    by_position = request.operation in _ARGS
    axes: tuple[int, ...] = (a["axis"],) if by_position else a["axes"]
    dtype, result = host_name(x.dtype), host_name(y.dtype)
    if not axes or not x.type.size or dtype is None or result is None or "u32" in (x.dtype, y.dtype):
        return None
    places = iter(zip(y.shape, y.strides, strict=True))
    strides = []
    for d in range(len(x.shape)):
        if d in axes:
            strides.append(0)
            if a["keep"]:
                next(places)
        else:
            strides.append(next(places)[1])
    fn = _ARGS.get(request.operation, request.operation)
    # Half is summed in float and rounded once.
    exprs = [Expr(fn, (0,), "i32" if by_position else "f32" if dtype == "f16" else dtype)]
    kernels = reduce_kernels(x.shape, axes, [host_operand(x, x.shape)], exprs, [Output(1, result, tuple(strides))])
    return in_order(kernels, (*ins(1), *outs(1)))


@kernel_for("cumsum")
def _cumsum(request: Request) -> HostPlan | None:
    (x,), (y,) = request.operands, request.results
    axis, dtype = int(request.attributes["axis"]), host_name(x.dtype)
    if dtype is None or not (x.plain and y.plain) or not x.type.size:
        return None
    kernel = cumsum_kernel(math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :]), dtype)
    return in_order(kernel, (*ins(1), *outs(1)))

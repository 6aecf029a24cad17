"""Gathering and scattering rows on the host."""

from __future__ import annotations

import math

from abele.codegen import Operand, Output, map_kernel
from abele.codegen.indexing import copy_kernel, gather_kernel, put_kernel, scatter_kernel, take_kernel
from abele.ops.hosts.expressions import host_name
from abele.ops.hosts.kernels import HostPlan, Launch, Ref, Request, kernel_for


@kernel_for("gather", "embedding")
def _gather(request: Request) -> HostPlan | None:
    x, indices = request.operands
    axis = int(request.attributes.get("axis", 0))
    dtype = host_name(x.dtype)
    if dtype is None or indices.dtype != "i32" or not all(s.plain for s in (*request.operands, *request.results)):
        return None
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    kernel = gather_kernel(outer, x.shape[axis], inner, indices.type.size, dtype)
    return HostPlan((Launch(kernel, (Ref("in", 0), Ref("in", 1), Ref("out", 0))),))


def _rounded(request: Request) -> tuple[Launch, ...]:
    """Half is summed in float32 and rounded once, in place."""
    (y,) = request.results
    if y.dtype != "f16":
        return ()
    kernel = map_kernel((y.type.size,), [Operand("f32", (1,))], [], [Output(0, "f16", (1,))])
    return (Launch(kernel, (Ref("out", 0), Ref("out", 0))),)


@kernel_for("scatter_add")
def _scatter_add(request: Request) -> HostPlan | None:
    base, indices, _ = request.operands
    if (
        not base.type.dtype.is_float
        or indices.dtype != "i32"
        or not all(s.plain for s in (*request.operands, *request.results))
    ):
        return None
    axis, shape = int(request.attributes["axis"]), base.shape
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    start = copy_kernel(shape, "f32", base.strides, base.strides)
    kernel = scatter_kernel(outer, shape[axis], inner, indices.type.size, "f32")
    return HostPlan(
        (
            Launch(start, (Ref("in", 0), Ref("out", 0))),
            Launch(kernel, (Ref("in", 2), Ref("in", 1), Ref("out", 0))),
            *_rounded(request),
        )
    )


@kernel_for("gather_elements")
def _gather_elements(request: Request) -> HostPlan | None:
    x, indices = request.operands
    axis = int(request.attributes["axis"])
    dtype = host_name(x.dtype)
    same = all(a == b for d, (a, b) in enumerate(zip(x.shape, indices.shape, strict=True)) if d != axis)
    plain = all(s.plain for s in (*request.operands, *request.results))
    if dtype is None or indices.dtype != "i32" or not same or not plain:
        return None
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    kernel = take_kernel(outer, x.shape[axis], inner, indices.shape[axis], dtype, "i32")
    return HostPlan((Launch(kernel, (Ref("in", 0), Ref("in", 1), Ref("out", 0))),))


@kernel_for("scatter_elements")
def _scatter_elements(request: Request) -> HostPlan | None:
    base, indices, updates = request.operands
    axis, how = int(request.attributes["axis"]), request.attributes["reduction"]
    dtype = host_name(base.dtype)
    same = all(a == b for d, (a, b) in enumerate(zip(base.shape, indices.shape, strict=True)) if d != axis)
    plain = all(s.plain for s in (*request.operands, *request.results))
    if indices.dtype != "i32" or not same or not plain:
        return None
    if dtype is None or updates.shape != indices.shape or (how != "none" and not base.type.dtype.is_float):
        return None
    outer, inner = math.prod(base.shape[:axis]), math.prod(base.shape[axis + 1 :])
    start = copy_kernel(base.shape, dtype, base.strides, base.strides)
    host = "f32" if dtype == "f16" else dtype
    kernel = put_kernel(outer, base.shape[axis], inner, indices.shape[axis], host, "i32", how=str(how))
    return HostPlan(
        (
            Launch(start, (Ref("in", 0), Ref("out", 0))),
            Launch(kernel, (Ref("in", 2), Ref("in", 1), Ref("out", 0))),
            *_rounded(request),
        )
    )

"""Moves of data on the host: copies between strides, from and to places inside arrays."""

from __future__ import annotations

from typing import Any

from abele.codegen import Kernel, Operand, Output, map_kernel
from abele.codegen.expression import Expr
from abele.codegen.indexing import copy_kernel
from abele.ops.elementwise.kernel import host_name, over
from abele.ops.kernels import HostPlan, Launch, Ref, Request, Spec, host_bytes, kernel_for

Strides = tuple[int, ...]


def _moved(shape: tuple[int, ...], dtype: str, source: Strides, target: Strides) -> Kernel:
    """A copy; one whose source runs backwards or is repeated is a map."""
    if min((*source, *target), default=1) < 1:
        return map_kernel(shape, [Operand(dtype, source)], [], [Output(0, dtype, target)])
    return copy_kernel(shape, dtype, source, target)


def _copy(request: Request, shape: tuple[int, ...], strides: Strides, start: int = 0) -> HostPlan | None:
    """The whole result from an operand walked with ``strides`` from element ``start``."""
    (x,), (y,) = request.operands, request.results
    dtype = host_name(x.dtype)
    if dtype is None:
        return None
    begin = Ref("in", 0, start * host_bytes(x.type.dtype))
    return HostPlan((Launch(_moved(shape, dtype, strides, y.strides), (begin, Ref("out", 0))),))


@kernel_for("transpose")
def _transpose(request: Request) -> HostPlan | None:
    (x,), (y,) = request.operands, request.results
    order: Any = request.attributes["permutation"]
    return _copy(request, y.shape, tuple(x.strides[d] for d in order))


@kernel_for("expand")
def _expand(request: Request) -> HostPlan | None:
    return _copy(request, request.results[0].shape, over(request.operands[0], request.results[0].shape))


@kernel_for("slice")
def _slice(request: Request) -> HostPlan | None:
    (x,), (y,), a = request.operands, request.results, request.attributes
    starts: Any = a["starts"]
    steps: Any = a["steps"]
    begin = sum(s * t for s, t in zip(starts, x.strides, strict=True))
    return _copy(request, y.shape, tuple(s * t for s, t in zip(steps, x.strides, strict=True)), begin)


@kernel_for("flip")
def _flip(request: Request) -> HostPlan | None:
    (x,) = request.operands
    axes: Any = request.attributes["axes"]
    if not x.type.size:
        return None
    begin = sum((x.shape[d] - 1) * x.strides[d] for d in axes)
    return _copy(request, x.shape, tuple(-s if d in axes else s for d, s in enumerate(x.strides)), begin)


def _into(source: Ref, spec: Spec, result: Spec, place: int, dtype: str) -> Launch:
    """A copy of a whole operand to element ``place`` of the result."""
    to = Ref("out", 0, place * host_bytes(result.type.dtype))
    return Launch(_moved(spec.shape, dtype, spec.strides, result.strides), (source, to))


@kernel_for("concat")
def _concat(request: Request) -> HostPlan | None:
    (y,) = request.results
    dtype, axis = host_name(y.dtype), int(request.attributes["axis"])  # type: ignore[arg-type]
    if dtype is None:
        return None
    launches, place = [], 0
    for i, part in enumerate(request.operands):
        launches.append(_into(Ref("in", i), part, y, place * y.strides[axis], dtype))
        place += part.shape[axis]
    return HostPlan(tuple(launches))


@kernel_for("pad")
def _pad(request: Request) -> HostPlan | None:
    (x,), (y,), a = request.operands, request.results, request.attributes
    dtype, low = host_name(y.dtype), a["low"]
    if dtype is None or not isinstance(low, tuple) or y.dtype == "u32":
        return None
    value = Expr("const", (), dtype, value=a["value"])  # type: ignore[arg-type]
    fill = Launch(map_kernel(y.shape, [], [value], [Output(0, dtype, y.strides)]), (Ref("out", 0),))
    place = sum(s * t for s, t in zip(low, y.strides, strict=True))  # type: ignore[operator]
    return HostPlan((fill, _into(Ref("in", 0), x, y, place, dtype)))

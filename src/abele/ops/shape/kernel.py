"""Moves of data on the host: copies between strides, from and to places inside arrays, also those known only then."""

from __future__ import annotations

import math
from typing import Any

from abele.codegen import Kernel, Operand, Output, map_kernel
from abele.codegen.expression import Expr
from abele.codegen.indexing import copy_kernel, gather_kernel, scatter_kernel
from abele.ops.hosts.expressions import host_name, over
from abele.ops.hosts.kernels import HostPlan, Launch, Ref, Request, Spec, host_bytes, kernel_for, row_major

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
    dtype, axis = host_name(y.dtype), int(request.attributes["axis"])
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
    value = Expr("const", (), dtype, value=a["value"])
    fill = Launch(map_kernel(y.shape, [], [value], [Output(0, dtype, y.strides)]), (Ref("out", 0),))
    place = sum(s * t for s, t in zip(low, y.strides, strict=True))
    return HostPlan((fill, _into(Ref("in", 0), x, y, place, dtype)))


def _rows(shape: tuple[int, ...], part: tuple[int, ...], starts: Ref) -> tuple[Launch, int, int, int]:
    """Which rows of a tensor a part of it is made of, when where it starts is known only then.

    A row is what the trailing dimensions hold that the part has whole. Returns what writes the numbers of the part's
    rows to scratch, moved so that the part lies inside; their count; the rows of the tensor; and elements of a row.
    """
    cut = max((d + 1 for d, (n, m) in enumerate(zip(shape, part, strict=True)) if n != m), default=0)
    strides = row_major(shape[:cut])
    exprs: list[Expr] = []

    def node(fn: str, *args: int, **attributes: Any) -> int:
        exprs.append(Expr(fn, args, "i32", **attributes))
        return cut + len(exprs) - 1

    number = node("const", value=0)
    for d in range(cut):
        first = node("max", d, node("const", value=0))
        first = node("min", first, node("const", value=shape[d] - part[d]))
        at = node("mul", node("add", first, node("index", dim=d)), node("const", value=strides[d]))
        number = node("add", number, at)
    operands = [Operand("i32", (0,) * cut)] * cut
    kernel = map_kernel(part[:cut], operands, exprs, [Output(number, "i32", row_major(part[:cut]))])
    pointers = tuple(Ref(starts.kind, starts.index, 4 * d) for d in range(cut))
    launch = Launch(kernel, (*pointers, Ref("scratch", 0)))
    return launch, math.prod(part[:cut]), math.prod(shape[:cut]), math.prod(shape[cut:])


@kernel_for("dynamic_slice")
def _dynamic_slice(request: Request) -> HostPlan | None:
    (x, starts), (y,), dtype = request.operands, request.results, host_name(request.results[0].dtype)
    if dtype is None or not (x.plain and y.plain and starts.plain) or not y.type.size:
        return None
    find, count, rows, inner = _rows(x.shape, y.shape, Ref("in", 1))
    take = gather_kernel(1, rows, inner, count, dtype)
    return HostPlan((find, Launch(take, (Ref("in", 0), Ref("scratch", 0), Ref("out", 0)))), (4 * count,))


@kernel_for("dynamic_update")
def _dynamic_update(request: Request) -> HostPlan | None:
    (x, update, starts), (y,), dtype = request.operands, request.results, host_name(request.results[0].dtype)
    if dtype is None or not all(s.plain for s in (x, update, starts, y)) or not update.type.size:
        return None
    find, count, rows, inner = _rows(x.shape, update.shape, Ref("in", 2))
    copy = Launch(_moved(x.shape, dtype, x.strides, y.strides), (Ref("in", 0), Ref("out", 0)))
    put = scatter_kernel(1, rows, inner, count, dtype, add=False)
    return HostPlan((copy, find, Launch(put, (Ref("in", 1), Ref("scratch", 0), Ref("out", 0)))), (4 * count,))

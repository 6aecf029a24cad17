"""A stencil on the host: one loop over the operands at their shifted places, those that reach outside padded before."""

from __future__ import annotations

import math
from collections.abc import Sequence

from abele.codegen import Expr, Operand, Output, copy_kernel, map_kernel
from abele.ops.elementwise.expression import body_of
from abele.ops.hosts.expressions import body_exprs, host_name, host_operand, known
from abele.ops.hosts.kernels import HostPlan, Launch, Ref, Request, Spec, host_bytes, kernel_for, row_major
from abele.ops.stencil.op import taps_of


@kernel_for("stencil")
def _stencil(request: Request) -> HostPlan | None:
    (result,), shape = request.results, request.results[0].shape
    taps, body = taps_of(request.attributes), body_of(request.attributes)
    if not known((*request.operands, result)) or not result.type.size:
        return None
    exprs = body_exprs(body, [request.operands[operand].dtype for operand, _, _ in taps])
    if exprs is None:
        return None
    launches: list[Launch] = []
    scratch: list[int] = []
    operands: list[Operand] = []
    pointers: list[Ref] = []
    padded: dict[tuple[int, float], tuple[Ref, tuple[int, ...], tuple[int, ...]]] = {}
    for operand, starts, outside in taps:
        spec = request.operands[operand]
        if not starts:
            operands.append(host_operand(spec, shape))
            pointers.append(Ref("in", operand))
            continue
        name, size = str(host_name(spec.dtype)), host_bytes(spec.type.dtype)
        alike = [s for i, s, value in taps if i == operand and s and value == outside]
        low, high = _margins(alike, spec.shape, shape)
        memory, strides = Ref("in", operand), spec.strides
        if any(low) or any(high):
            if spec.dtype == "u32":
                return None
            if (operand, outside) not in padded:
                longer = tuple(a + n + b for a, n, b in zip(low, spec.shape, high, strict=True))
                memory = Ref("scratch", len(scratch))
                scratch.append(math.prod(longer) * size)
                launches += _padded(spec, name, outside, longer, low, memory, Ref("in", operand))
                padded[operand, outside] = memory, row_major(longer), low
            memory, strides, low = padded[operand, outside]
        place = sum((s + a) * stride for s, a, stride in zip(starts, low, strides, strict=True))
        operands.append(Operand(name, strides))
        pointers.append(Ref(memory.kind, memory.index, place * size))
    last = len(taps) + len(exprs) - 1
    kernel = map_kernel(shape, operands, exprs, [Output(last, str(host_name(result.dtype)), result.strides)])
    launches.append(Launch(kernel, (*pointers, Ref("out", 0))))
    return HostPlan(tuple(launches), tuple(scratch))


def _margins(
    starts: Sequence[tuple[int, ...]], have: Sequence[int], want: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Elements that taps read before and behind an operand of shape ``have`` for a result of shape ``want``."""
    low = tuple(max(0, -min(column)) for column in zip(*starts, strict=True))
    high = tuple(
        max(0, max(column) + w - h) for column, h, w in zip(zip(*starts, strict=True), have, want, strict=True)
    )
    return low, high


def _padded(
    spec: Spec, name: str, outside: float, longer: tuple[int, ...], low: Sequence[int], memory: Ref, source: Ref
) -> list[Launch]:
    """What fills ``memory`` with the operand and its margins."""
    strides = row_major(longer)
    value = Expr("const", (), name, value=outside)
    launches = [Launch(map_kernel(longer, [], [value], [Output(0, name, strides)]), (memory,))]
    if spec.type.size:
        place = sum(a * stride for a, stride in zip(low, strides, strict=True)) * host_bytes(spec.type.dtype)
        copy = copy_kernel(spec.shape, name, spec.strides, strides)
        launches.append(Launch(copy, (source, Ref(memory.kind, memory.index, place))))
    return launches

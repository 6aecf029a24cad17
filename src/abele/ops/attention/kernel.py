"""Attention on the host without a library: scores with scale and mask in the epilogue, softmax in place, a product."""

from __future__ import annotations

import math

from abele.codegen import Expr, Kernel, Operand, Output, reduce_kernels
from abele.codegen.gemm import gemm_kernel, pack_kernel, packed_floats
from abele.codegen.recipe import Recipe, softmax
from abele.ops.hosts.expressions import over
from abele.ops.hosts.kernels import HostPlan, Launch, Ref, Request, kernel_for, row_major


@kernel_for("attention")
def _attention(request: Request) -> HostPlan | None:
    q, k, v, *masks = request.operands
    (y,) = request.results
    if not all(s.type.size and s.type.dtype.is_float for s in (*request.operands, y)) or y.strides[-1] != 1:
        return None
    batch, queries, keys = q.shape[:-2], q.shape[-2], k.shape[-2]
    size, width = q.shape[-1], v.shape[-1]
    scores = (*batch, queries, keys)
    operands = [Operand(m.dtype, over(m, scores)) for m in masks]
    exprs = [Expr("const", (), "f32", value=float(request.attributes["scale"]))]
    first = 1 + len(operands)
    exprs.append(Expr("mul", (0, first), "f32"))
    for i in range(len(operands)):
        exprs.append(Expr("add", (first + len(exprs) - 1, 1 + i), "f32"))
    node = first + len(exprs) - 1
    count = math.prod(batch)
    pack_k = pack_kernel(size, keys, (*k.strides[:-2], k.strides[-1], k.strides[-2]), batch)
    score = gemm_kernel(
        queries,
        keys,
        size,
        q.strides,
        [Output(node, "f32", row_major(scores))],
        batch=batch,
        operands=operands,
        exprs=exprs,
    )
    soft = _softmax(count, queries, keys, bool(request.attributes["causal"]))
    pack_v = pack_kernel(keys, width, v.strides, batch)
    product = gemm_kernel(queries, width, keys, row_major(scores), [Output(0, y.dtype, y.strides)], batch=batch)
    panels, made = Ref("scratch", 0), Ref("scratch", 1)
    space = max(packed_floats(size, keys), packed_floats(keys, width))
    mask = tuple(Ref("in", 3 + i) for i in range(len(masks)))
    launches = [
        Launch(pack_k, (Ref("in", 1), panels)),
        Launch(score, (Ref("in", 0), panels, *mask, made)),
        *(Launch(kernel, (made, made)) for kernel in soft),
        Launch(pack_v, (Ref("in", 2), panels)),
        Launch(product, (made, panels, Ref("out", 0))),
    ]
    if any(kernel.workspace for kernel in soft):
        return None
    return HostPlan(tuple(launches), (4 * space * count, 4 * count * queries * keys))


def _softmax(count: int, queries: int, keys: int, causal: bool) -> tuple[Kernel, ...]:
    """Softmax over the keys in place; causal scores count only where the query is not before the key."""
    shape = (count, queries, keys)
    if not causal:
        return softmax((count * queries, keys), safe=True)
    r = Recipe([Operand("f32", row_major(shape))])
    row, column = (r("index", dtype="i32", dim=d) for d in (1, 2))
    x = r("select", r("ge", row, column, dtype="bool"), 0, r.const(-math.inf))
    _, power, total = r.powers(x, safe=True)
    y = r("div", power, total)
    return reduce_kernels(shape, (2,), r.operands, r.exprs, [Output(y, "f32", row_major(shape))])

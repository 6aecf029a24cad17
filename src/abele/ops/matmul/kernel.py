"""Matrix products on the host: packed or in-place right operand, epilogues fused.

A right operand that is constant is packed once. One whose rows are contiguous and that changes is read in place where
the product has few rows, else packed every time. One that lies transposed and changes is not packed where the product
has fewer rows than columns: the transposed product is made then, and turned as the epilogue runs over it.

Products are summed in float32, also where the program asks for half partials, as the reference does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from abele.codegen import Expr, Operand, Output, map_kernel
from abele.codegen.gemm import gemm_kernel, pack_kernel, packed_floats
from abele.codegen.indexing import copy_kernel
from abele.ops.hosts.epilogues import PLAIN, Epilogue, root_for
from abele.ops.hosts.expressions import over
from abele.ops.hosts.kernels import HostPlan, Launch, Ref, Request, Spec, kernel_for, row_major

Strides = tuple[int, ...]

_IN_PLACE_ROWS = 24
"""Rows of a product up to which a right operand with contiguous rows is not worth packing every time."""


@dataclass(frozen=True)
class Product:
    """``[*batch, m, k] @ [*batch, k, n]`` with strides, and what is done with it.

    Attributes:
        a, b: strides over ``(*batch, m, k)`` and ``(*batch, k, n)``.
        constant: whether ``b`` may be packed once.
        operands: (pointer, dtype, strides over the result) of the epilogue.
        exprs: the epilogue: node 0 is the product.
        outputs: nodes, dtypes and strides of the results.
    """

    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    a: Strides
    b: Strides
    constant: bool
    operands: tuple[tuple[Ref, Operand], ...]
    exprs: tuple[Expr, ...]
    outputs: tuple[Output, ...]


def product(a: Spec, b: Spec, attributes: Any, result: Spec) -> tuple[tuple[int, ...], int, int, int, Strides, Strides]:
    """Batch, m, n, k and the strides of both operands; a batch that only the left operand has becomes rows."""
    sa, sb = list(a.strides), list(b.strides)
    ma, mb = list(a.shape[-2:]), list(b.shape[-2:])
    if attributes["transpose_a"]:
        sa[-2:], ma = sa[:-3:-1], ma[::-1]
    if attributes["transpose_b"]:
        sb[-2:], mb = sb[:-3:-1], mb[::-1]
    batch = result.shape[:-2]
    wide_a = over(Spec(a.type.with_shape((*a.shape[:-2], *ma)), tuple(sa)), (*batch, *ma))
    wide_b = over(Spec(b.type.with_shape((*b.shape[:-2], *mb)), tuple(sb)), (*batch, *mb))
    return batch, ma[0], mb[1], ma[1], wide_a, wide_b


def _merged(p: Product) -> Product:
    """The same product with leading dimensions of the left operand taken as rows where nothing else has them."""
    while p.batch and p.b[len(p.batch) - 1] == 0:
        size = p.batch[-1]
        strides = [p.a, *(o.strides for _, o in p.operands), *(o.strides for o in p.outputs)]
        if size != 1 and any(s[-3] != s[-2] * p.m for s in strides):
            break

        def cut(s: Strides) -> Strides:
            return (*s[:-3], *s[-2:])

        p = Product(
            p.batch[:-1],
            p.m * size,
            p.n,
            p.k,
            cut(p.a),
            (*p.b[:-3], *p.b[-2:]),
            p.constant,
            tuple((r, Operand(o.dtype, cut(o.strides))) for r, o in p.operands),
            p.exprs,
            tuple(Output(o.node, o.dtype, cut(o.strides)) for o in p.outputs),
        )
    return p


def plan_product(p: Product, a: Ref, b: Ref, results: Sequence[Ref], packs: int) -> HostPlan | None:
    """Launches of a product. ``packs``: the number of the operand that ``b`` is."""
    p = _merged(p)
    if any(o.strides[-1] != 1 and p.n != 1 for o in p.outputs):
        return None
    outputs = [Output(o.node, o.dtype, (*o.strides[:-1], 1)) for o in p.outputs]
    extra = tuple(r for r, _ in p.operands)
    operands = [o for _, o in p.operands]
    in_place = p.b[-1] == 1 or p.n == 1
    few = p.m * 2 < p.n and p.b[-2] == 1
    if not p.constant and few and not in_place and not p.batch:
        return _turned(p, a, b, results)
    if not p.constant and in_place and (p.m <= _IN_PLACE_ROWS or p.k * p.n <= 16384):
        b_strides = (*p.b[:-1], 1)
        kernel = gemm_kernel(p.m, p.n, p.k, p.a, outputs, b=b_strides, batch=p.batch, operands=operands, exprs=p.exprs)
        return HostPlan((Launch(kernel, (a, b, *extra, *results)),))
    kernel = gemm_kernel(p.m, p.n, p.k, p.a, outputs, batch=p.batch, operands=operands, exprs=p.exprs)
    pack = pack_kernel(p.k, p.n, p.b, p.batch)
    space = 4 * packed_floats(p.k, p.n) * math.prod(p.batch)
    packed = Ref("packed", 0)
    return HostPlan(
        (Launch(kernel, (a, packed, *extra, *results)),),
        packed=(max(space, 64),),
        packing=(Launch(pack, (b, packed)),),
        packs=(packs,),
    )


def _turned(p: Product, a: Ref, b: Ref, results: Sequence[Ref]) -> HostPlan:
    """``C^T = B^T A^T`` into scratch, with ``A^T`` packed, and an epilogue that reads it transposed."""
    down, across = p.a
    swapped = (p.b[1], p.b[0])
    packed, turned = Ref("scratch", 0), Ref("scratch", 1)
    pack = pack_kernel(p.k, p.m, (across, down))
    gemm = gemm_kernel(p.n, p.m, p.k, swapped, [Output(0, "f32", (p.m, 1))])
    launches = [Launch(pack, (a, packed)), Launch(gemm, (b, packed, turned))]
    scratch = [4 * packed_floats(p.k, p.m), 4 * p.n * p.m]
    (o,) = p.outputs
    straight = o.dtype == "f32" and o.node == 0
    target = results[0] if straight else Ref("scratch", 2)
    strides = o.strides if straight else row_major((p.m, p.n))
    launches.append(Launch(copy_kernel((p.m, p.n), "f32", (1, p.m), strides), (turned, target)))
    if not straight:
        scratch.append(4 * p.n * p.m)
        operands = [Operand("f32", strides), *(x for _, x in p.operands)]
        kernel = map_kernel((p.m, p.n), operands, p.exprs, p.outputs)
        launches.append(Launch(kernel, (target, *(r for r, _ in p.operands), *results)))
    return HostPlan(tuple(launches), tuple(scratch))


@root_for("matmul")
@kernel_for("matmul")
def _matmul(request: Request, epilogue: Epilogue = PLAIN) -> HostPlan | None:
    a, b = request.operands
    (y,) = request.results
    if not y.type.size:
        return None
    batch, m, n, k, sa, sb = product(a, b, request.attributes, y)
    outputs = (Output(epilogue.node, y.dtype, y.strides),)
    p = Product(batch, m, n, k, sa, sb, b.constant, epilogue.operands, epilogue.exprs, outputs)
    return plan_product(p, Ref("in", 0), Ref("in", 1), (Ref("out", 0),), 1)

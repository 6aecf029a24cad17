"""Norms and their gradients on the host, for any strides: statistics and arithmetic in float32, rounded once.

Gradients: with ``n = (x - mean) rstd`` and ``g = dy w``: ``dx = rstd (g - mean(g) - n mean(g n))``, ``dw`` the sum of
``dy n`` and ``db`` of ``dy`` (Ba et al. 2016, Ioffe and Szegedy 2015).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from abele.codegen import Expr, Kernel, Operand, Output, map_kernel, reduce_kernels
from abele.codegen.recipe import Recipe
from abele.ops.hosts.kernels import HostPlan, Launch, Ref, Request, Spec, ins, kernel_for, outs, row_major

Strides = tuple[int, ...]


class _View:
    """``x`` seen so that the statistics run over ``axes``: its shape there, and strides of everything else."""

    def __init__(self, request: Request, x: Spec, others: Sequence[Spec]) -> None:
        self.request, a = request, request.attributes
        self.shape, rank = x.shape, len(x.shape)
        kind = request.operation.split("_")[0]
        self.groups = 0
        if kind == "batch":
            self.axes = (0, *range(2, rank))
            self.own: tuple[int, ...] = (1,)
        elif kind == "group":
            self.groups = int(a["groups"])
            self.shape = (x.shape[0], self.groups, x.shape[1] // self.groups, *x.shape[2:])
            self.axes, self.own = tuple(range(2, len(self.shape))), (1, 2)
        else:
            self.axes = tuple(range(rank - int(a["axes"]), rank))
            self.own = self.axes
        self.kept = tuple(d for d in range(len(self.shape)) if d not in self.axes)
        self.count = math.prod(self.shape[d] for d in self.axes)

    def whole(self, spec: Spec) -> Strides:
        """Strides of a tensor like ``x``."""
        if not self.groups:
            return spec.strides
        n, c, *rest = spec.strides
        return (n, c * self.shape[2], c, *rest)

    def along(self, dims: Sequence[int]) -> Strides:
        """Strides of a row-major tensor that has only ``dims``."""
        own = row_major(tuple(self.shape[d] for d in dims))
        return tuple(own[list(dims).index(d)] if d in dims else 0 for d in range(len(self.shape)))


def _launches(kernels: Sequence[Kernel], pointers: tuple[Ref, ...], scratch: list[int]) -> list[Launch]:
    space = max(k.workspace for k in kernels)
    if space:
        scratch.append(space)
    extra = (Ref("scratch", len(scratch) - 1),)
    return [Launch(k, (*pointers, *extra) if k.workspace else pointers) for k in kernels]


@kernel_for("layer_norm", "batch_norm", "group_norm", "rms_norm")
def _norm(request: Request) -> HostPlan | None:
    x, *affine = request.operands
    if not x.type.size:
        return None
    v = _View(request, x, affine)
    operands = [Operand(x.dtype, v.whole(x)), *(Operand(s.dtype, v.along(v.own)) for s in affine)]
    r = Recipe(operands)
    centred = request.operation != "rms_norm"
    mean = r.mean(0, v.count) if centred else None
    d = r("sub", 0, mean) if mean is not None else 0
    variance = r.mean(r("mul", d, d), v.count)
    rstd = r("rsqrt", r("add", variance, r.const(float(request.attributes["eps"]))))
    y = r("mul", d, rstd)
    if affine:
        y = r("mul", y, 1)
    if len(affine) > 1:
        y = r("add", y, 2)
    results = [r("cast", y, dtype=request.results[0].dtype)]
    if mean is not None:
        results += [mean, variance if request.operation == "batch_norm" else rstd]
    strides = [v.whole(request.results[0]), *[v.along(v.kept)] * (len(results) - 1)]
    outputs = [Output(n, s.dtype, t) for n, s, t in zip(results, request.results, strides, strict=True)]
    scratch: list[int] = []
    kernels = reduce_kernels(v.shape, v.axes, operands, r.exprs, outputs)
    launches = _launches(kernels, (*ins(len(operands)), *outs(len(outputs))), scratch)
    return HostPlan(tuple(launches), tuple(scratch))


@kernel_for("batch_norm_grad", "layer_norm_grad", "group_norm_grad")
def _norm_grad(request: Request) -> HostPlan | None:
    dy, x, mean, spread, *w = request.operands
    if not x.type.size:
        return None
    v = _View(request, x, w)
    stat = v.along(v.kept)
    operands = [
        Operand(dy.dtype, v.whole(dy)),
        Operand(x.dtype, v.whole(x)),
        Operand(mean.dtype, stat),
        Operand(spread.dtype, stat),
        *(Operand(s.dtype, v.along(v.own)) for s in w),
    ]
    batch = request.operation == "batch_norm_grad"

    def begin() -> tuple[Recipe, int, int]:
        r = Recipe(operands)
        rstd = 3
        if batch:
            rstd = r("rsqrt", r("add", 3, r.const(float(request.attributes["eps"]))))
        return r, rstd, r("mul", r("sub", 1, 2), rstd)

    r, rstd, n = begin()
    if batch and w:
        # The sums over the batch are the gradients of scale and shift too.
        dw, db = r("reduce_sum", r("mul", 0, n)), r("reduce_sum", r("cast", 0, dtype="f32"))
        inner = r("add", r("div", db, r.const(v.count)), r("mul", n, r("div", dw, r.const(v.count))))
        dx = r("mul", r("sub", 0, inner), r("mul", rstd, 4))
        nodes = [r("cast", dx, dtype=request.results[0].dtype), dw, db]
        strides = [v.whole(request.results[0]), v.along(v.own), v.along(v.own)]
        parts = [(v.axes, r, nodes, strides, (0, 1, 2))]
    else:
        g = r("mul", 0, 4) if w else 0
        inner = r("add", r.mean(g, v.count), r("mul", n, r.mean(r("mul", g, n), v.count)))
        dx = r("cast", r("mul", r("sub", g, inner), rstd), dtype=request.results[0].dtype)
        parts: list[tuple] = [(v.axes, r, [dx], [v.whole(request.results[0])], (0,))]
        if w:
            r, _, n = begin()
            sums = [r("reduce_sum", r("mul", 0, n)), r("reduce_sum", r("cast", 0, dtype="f32"))]
            across = tuple(d for d in range(len(v.shape)) if d not in v.own)
            parts.append((across, r, sums, [v.along(v.own)] * 2, (1, 2)))
    scratch: list[int] = []
    launches: list[Launch] = []
    for axes, recipe, nodes, strides, places in parts:
        if axes:
            outputs = [Output(n, request.results[i].dtype, s) for n, s, i in zip(nodes, strides, places, strict=True)]
            kernels = reduce_kernels(v.shape, axes, operands, recipe.exprs, outputs)
            launches += _launches(kernels, (*ins(len(operands)), *(Ref("out", i) for i in places)), scratch)
        else:
            return None
    return HostPlan(tuple(launches), tuple(scratch))


@kernel_for("batch_norm_inference")
def _inference(request: Request) -> HostPlan | None:
    x, w, shift, mean, variance = request.operands
    (y,) = request.results
    channels, channel = x.shape[1], tuple(int(d == 1) for d in range(len(x.shape)))
    exprs = [
        Expr("const", (), "f32", value=float(request.attributes["eps"])),
        Expr("add", (1, 2), "f32"),
        Expr("rsqrt", (3,), "f32"),
        Expr("mul", (0, 4), "f32"),
    ]
    scale = map_kernel(
        (channels,), [Operand(w.dtype, (1,)), Operand(variance.dtype, (1,))], exprs, [Output(5, "f32", (1,))]
    )
    operands = [Operand(x.dtype, x.strides)]
    operands += [Operand(s, channel) for s in (mean.dtype, "f32", shift.dtype)]
    exprs = [Expr("sub", (0, 1), "f32"), Expr("mul", (4, 2), "f32"), Expr("add", (5, 3), "f32")]
    apply = map_kernel(x.shape, operands, exprs, [Output(6, y.dtype, y.strides)])
    packed = Ref("packed", 0)
    return HostPlan(
        (Launch(apply, (Ref("in", 0), Ref("in", 3), packed, Ref("in", 2), Ref("out", 0))),),
        packed=(4 * max(1, channels),),
        packing=(Launch(scale, (Ref("in", 1), Ref("in", 4), packed)),),
        packs=(1, 4),
    )

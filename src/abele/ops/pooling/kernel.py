"""Pools and their gradients on the host without a library, for row-major images ``[N, C, *S]``.

A pool is a reduction over windows that overlap in memory, on a padded copy where they reach outside. The gradients go
tap by tap, in the order in which the first maximum is looked for.
"""

from __future__ import annotations

import math
from typing import Any

from abele.codegen import Expr, Operand, Output, map_kernel, reduce_kernels
from abele.codegen.recipe import Recipe
from abele.ops.hosts.kernels import HostPlan, Launch, Ref, Request, Spec, kernel_for, row_major
from abele.ops.hosts.windows import WORD, Windows, at, copied, spread, zeros


def _usable(specs: tuple[Spec, ...]) -> bool:
    return all(s.plain and s.type.size and s.type.dtype.is_float for s in specs)


def _windows(request: Request, x: Spec | tuple[int, ...], y: Spec) -> Windows:
    shape = x.shape if isinstance(x, Spec) else x
    a: Any = request.attributes
    return Windows.of(shape, y.shape[2:], a["kernel"], a)


def _reduced(
    w: Windows, fn: str, source: Ref, y: Spec, counts: bool, factor: float, scratch: list[int]
) -> list[Launch]:
    """``fn`` over all windows, times ``factor`` or divided by what ``packed`` 0 says for each window."""
    d = len(w.kernel)
    shape = (*w.lead, *w.outs, *w.kernel)
    axes = tuple(range(len(shape) - d, len(shape)))
    operands = [Operand("f32", (*w.view, *w.over_taps))]
    if counts:
        operands.append(Operand("f32", (0, 0, *row_major(w.outs), *(0,) * d)))
    r = Recipe(operands)
    value = r(fn, 0)
    if counts:
        value = r("div", value, 1)
    elif factor != 1.0:
        value = r("mul", value, r.const(factor))
    out = Output(value, y.dtype, (*row_major(y.shape), *(0,) * d))
    kernels = reduce_kernels(shape, axes, operands, r.exprs, [out])
    pointers = (source, *((Ref("packed", 0),) if counts else ()), Ref("out", 0))
    space = max(k.workspace for k in kernels)
    if space:
        scratch.append(space)
    extra = (Ref("scratch", len(scratch) - 1),)
    return [Launch(k, (*pointers, *extra) if k.workspace else pointers) for k in kernels]


@kernel_for("max_pool")
def _max_pool(request: Request) -> HostPlan | None:
    (x,), (y,) = request.operands, request.results
    if not _usable((x, y)):
        return None
    w = _windows(request, x, y)
    scratch, launches, source = [64], [], Ref("in", 0)
    if w.is_padded:
        scratch, source = [WORD * math.prod(w.whole)], Ref("scratch", 0)
        launches = w.pad(Ref("in", 0), source, -math.inf)
    launches += _reduced(w, "reduce_max", source, y, False, 1.0, scratch)
    return HostPlan(tuple(launches), tuple(scratch))


def _counts(w: Windows) -> tuple[Windows, tuple[int, ...], list[Launch]]:
    """How many elements of the input each window has, in ``packed`` 0, made by way of ``packed`` 1 and 2."""
    one = Windows((1, 1), w.sizes, w.outs, w.kernel, w.strides, w.dilation, w.low)
    made, ones, whole = (Ref("packed", i) for i in range(3))
    d = len(w.kernel)
    launches = [zeros(w.sizes, ones, 1.0), *one.pad(ones, whole)]
    shape = (*one.lead, *w.outs, *w.kernel)
    axes = tuple(range(len(shape) - d, len(shape)))
    padded = one.whole if one.is_padded else (1, 1, *w.padded)
    source = Windows((1, 1), padded[2:], w.outs, w.kernel, w.strides, w.dilation, (0,) * d)
    kernels = reduce_kernels(
        shape,
        axes,
        [Operand("f32", (*source.view, *source.over_taps))],
        [Expr("reduce_sum", (0,), "f32")],
        [Output(1, "f32", (*row_major((1, 1, *w.outs)), *(0,) * d))],
    )
    if any(k.workspace for k in kernels):
        return one, (), []
    launches += [Launch(k, (whole, made)) for k in kernels]
    sizes = (WORD * math.prod(w.outs), WORD * math.prod(w.sizes), WORD * math.prod(padded))
    return one, sizes, launches


def _share(request: Request, w: Windows) -> tuple[bool, float]:
    """Whether windows are divided by their own counts, else by what all are multiplied."""
    divisor = request.attributes["divisor"]
    if divisor:
        return False, 1.0 / float(divisor)
    own = not request.attributes["count_include_pad"] and w.is_padded
    return own, 1.0 / math.prod(w.kernel)


@kernel_for("avg_pool")
def _avg_pool(request: Request) -> HostPlan | None:
    (x,), (y,) = request.operands, request.results
    if not _usable((x, y)):
        return None
    w = _windows(request, x, y)
    own, factor = _share(request, w)
    _, packed, packing = _counts(w) if own else (w, (), [])
    if own and not packing:
        return None
    scratch, launches, source = [64], [], Ref("in", 0)
    if w.is_padded:
        scratch, source = [WORD * math.prod(w.whole)], Ref("scratch", 0)
        launches = w.pad(Ref("in", 0), source)
    launches += _reduced(w, "reduce_sum", source, y, own, factor, scratch)
    return HostPlan(tuple(launches), tuple(scratch), packed, tuple(packing))


@kernel_for("max_pool_grad")
def _max_pool_grad(request: Request) -> HostPlan | None:
    (x, y, dy), (dx,) = request.operands, request.results
    if not _usable((x, y, dy, dx)):
        return None
    w = _windows(request, x, y)
    field = (*w.lead, *w.outs)
    flat = row_major(field)
    scratch = [WORD * math.prod(w.whole), WORD * math.prod(w.whole), math.prod(field)]
    source, whole, waiting = Ref("in", 0), Ref("scratch", 1), Ref("scratch", 2)
    launches = []
    if w.is_padded:
        source = Ref("scratch", 0)
        launches = w.pad(Ref("in", 0), source, -math.inf)
    launches.append(zeros(w.whole, whole))
    truth = [Expr("const", (), "bool", value=1)]
    launches.append(Launch(map_kernel((math.prod(field),), [], truth, [Output(0, "bool", (1,))]), (waiting,)))
    operands = [Operand("f32", w.view), Operand("f32", flat), Operand("f32", flat), Operand("bool", flat)]
    r = Recipe([*operands, Operand("f32", w.view)])
    both = r("and", r("is_nan", 0, dtype="bool"), r("is_nan", 1, dtype="bool"), dtype="bool")
    equal = r("or", r("eq", 0, 1, dtype="bool"), both, dtype="bool")
    hit = r("and", equal, 3, dtype="bool")
    added = r("add", 4, r("select", hit, 2, r.const(0.0)))
    left = r("and", 3, r("logical_not", hit, dtype="bool"), dtype="bool")
    outputs = [Output(added, "f32", w.view), Output(left, "bool", flat)]
    kernel = map_kernel(field, r.operands, r.exprs, outputs)
    for _, first in w.taps():
        there = at(whole, first)
        launches.append(Launch(kernel, (at(source, first), Ref("in", 1), Ref("in", 2), waiting, there, there, waiting)))
    return HostPlan((*launches, *_finished(w, whole, dx)), tuple(scratch))


@kernel_for("avg_pool_grad")
def _avg_pool_grad(request: Request) -> HostPlan | None:
    (dy,), (dx,) = request.operands, request.results
    if not _usable((dy, dx)):
        return None
    w = _windows(request, dx.shape, dy)
    own, factor = _share(request, w)
    _, packed, packing = _counts(w) if own else (w, (), [])
    if own and not packing:
        return None
    field = (*w.lead, *w.outs)
    flat = row_major(field)
    scratch = (WORD * math.prod(w.whole), WORD * math.prod(field))
    whole, share = Ref("scratch", 0), Ref("scratch", 1)
    r = Recipe([Operand("f32", flat)])
    refs = [Ref("in", 0)]
    if own:
        r = Recipe([Operand("f32", flat), Operand("f32", (0, 0, *row_major(w.outs)))])
        refs.append(Ref("packed", 0))
        value = r("div", 0, 1)
    else:
        value = r("mul", 0, r.const(factor))
    divide = map_kernel(field, r.operands, r.exprs, [Output(value, "f32", flat)])
    launches = [Launch(divide, (*refs, share)), zeros(w.whole, whole)]
    launches += [spread(w, first, Operand("f32", flat), share, whole) for _, first in w.taps()]
    return HostPlan((*launches, *_finished(w, whole, dx)), scratch, packed, tuple(packing))


def _finished(w: Windows, whole: Ref, dx: Spec) -> list[Launch]:
    """The gradient of the input out of the padded one, on the half grid where it is half."""
    if w.whole == dx.shape:
        launches = [Launch(copied(dx.shape, row_major(dx.shape), row_major(dx.shape)), (whole, Ref("out", 0)))]
    else:
        launches = w.crop(whole, Ref("out", 0))
    if dx.dtype == "f16":
        kernel = map_kernel((dx.type.size,), [Operand("f32", (1,))], [], [Output(0, "f16", (1,))])
        launches.append(Launch(kernel, (Ref("out", 0), Ref("out", 0))))
    return launches

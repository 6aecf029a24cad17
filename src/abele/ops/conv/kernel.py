"""Convolutions on the host without a library: the taps of all windows are laid out, and products do the rest.

For row-major images ``[N, C, *S]``. ``columns`` are ``[N, C, taps, *Y]``, a row for each channel and tap, so that a
convolution is ``w [O, C taps] @ columns [C taps, Y]`` for every image, with nothing packed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from abele.codegen import Expr, Operand, Output, map_kernel
from abele.codegen.gemm import gemm_kernel, pack_kernel, packed_floats
from abele.ops.hosts.epilogues import PLAIN, Epilogue, root_for
from abele.ops.hosts.kernels import HostPlan, Launch, Ref, Request, Spec, kernel_for, row_major
from abele.ops.hosts.windows import WORD, Windows, at, copied, spread, zeros


class _Layer:
    """Sizes of one convolution, and its scratch: padded input first, columns second."""

    def __init__(self, x: Sequence[int], w: Sequence[int], y: Sequence[int], a: Any) -> None:
        self.windows = Windows.of(tuple(x), tuple(y[2:]), tuple(w[2:]), a)
        self.groups = int(a["groups"])
        self.images, self.taps, self.field = x[0], math.prod(w[2:]), math.prod(y[2:])
        self.inner, self.outer = w[1], w[0] // self.groups
        self.rows = self.inner * self.taps
        self.batch = (self.images, self.groups)
        self.of_columns = (self.groups * self.rows * self.field, self.rows * self.field, self.field, 1)
        self.of_y = (self.groups * self.outer * self.field, self.outer * self.field, self.field, 1)
        self.scratch = [
            WORD * math.prod(self.windows.whole) if self.windows.is_padded else 64,
            WORD * self.images * self.of_columns[0],
        ]

    @property
    def is_plain(self) -> bool:
        """Whether the input is its own columns."""
        w = self.windows
        return self.taps == 1 and not w.is_padded and w.outs == w.sizes

    def columns(self, x: Ref) -> tuple[Ref, list[Launch]]:
        """Where the columns of an input are, and what lays them there."""
        w = self.windows
        if self.is_plain:
            return x, []
        launches = w.pad(x, Ref("scratch", 0)) if w.is_padded else []
        source = Ref("scratch", 0) if w.is_padded else x
        target = Ref("scratch", 1)
        into = (w.lead[1] * self.taps * self.field, self.taps * self.field, *row_major(w.outs))
        kernel = copied((*w.lead, *w.outs), w.view, into)
        for number, first in w.taps():
            launches.append(Launch(kernel, (at(source, first), at(target, number * self.field))))
        return target, launches


def _usable(specs: Sequence[Spec]) -> bool:
    return all(s.plain and s.type.size and s.is_float for s in specs)


@root_for("conv")
@kernel_for("conv")
def _conv(request: Request, epilogue: Epilogue = PLAIN) -> HostPlan | None:
    x, w = request.operands
    (y,) = request.results
    if not _usable((x, w)) or not y.plain or not y.type.size:
        return None
    layer = _Layer(x.shape, w.shape, y.shape, request.attributes)
    operands = []
    for ref, operand in epilogue.operands:
        folded = _folded(operand, y.shape, layer)
        if folded is None:
            return None
        operands.append((ref, folded))
    columns, launches = layer.columns(Ref("in", 0))
    weights = (0, layer.outer * layer.rows, layer.rows, 1)
    kernel = gemm_kernel(
        layer.outer,
        layer.field,
        layer.rows,
        weights,
        [Output(epilogue.node, y.dtype, layer.of_y)],
        b=layer.of_columns,
        batch=layer.batch,
        operands=[o for _, o in operands],
        exprs=epilogue.exprs,
    )
    launches.append(Launch(kernel, (Ref("in", 1), columns, *(r for r, _ in operands), Ref("out", 0))))
    return HostPlan(tuple(launches), tuple(layer.scratch))


def _folded(operand: Operand, y: Sequence[int], layer: _Layer) -> Operand | None:
    """Strides over ``[N, O, *Y]`` as strides over ``[N, G, O / G, Y]``; ``None`` where the positions do not fold."""
    image, channel, *places = operand.strides
    if any(places):
        step = places[-1]
        want = [step * s for s in row_major(tuple(y[2:]))]
        if any(p != s for p, s, n in zip(places, want, y[2:], strict=True) if n != 1):
            return None
    else:
        step = 0
    return Operand(operand.dtype, (image, channel * layer.outer, channel, step))


@kernel_for("conv_input_grad")
def _conv_input_grad(request: Request) -> HostPlan | None:
    (dy, w), (dx,) = request.operands, request.results
    if not _usable((dy, w, dx)):
        return None
    layer = _Layer(dx.shape, w.shape, dy.shape, request.attributes)
    windows, half = layer.windows, dx.dtype == "f16"
    target = Ref("out", 0) if layer.is_plain else Ref("scratch", 1)
    outputs = [Output(0, dx.dtype if layer.is_plain else "f32", layer.of_columns)]
    weights = (0, layer.outer * layer.rows, 1, layer.rows)
    kernel = gemm_kernel(layer.rows, layer.field, layer.outer, weights, outputs, b=layer.of_y, batch=layer.batch)
    launches = [Launch(kernel, (Ref("in", 1), Ref("in", 0), target))]
    scratch = list(layer.scratch)
    if not layer.is_plain:
        scratch[0] = WORD * math.prod(windows.whole)
        whole = Ref("scratch", 0)
        launches.append(zeros(windows.whole, whole))
        strides = (windows.lead[1] * layer.taps * layer.field, layer.taps * layer.field, *row_major(windows.outs))
        for number, first in windows.taps():
            source = at(target, number * layer.field)
            launches.append(spread(windows, first, Operand("f32", strides), source, whole))
        launches += windows.crop(whole, Ref("out", 0))
        if half:
            launches.append(_to_half(dx))
    return HostPlan(tuple(launches), tuple(scratch))


def _to_half(result: Spec) -> Launch:
    kernel = map_kernel((result.type.size,), [Operand("f32", (1,))], [], [Output(0, "f16", (1,))])
    return Launch(kernel, (Ref("out", 0), Ref("out", 0)))


@kernel_for("conv_weight_grad")
def _conv_weight_grad(request: Request) -> HostPlan | None:
    (dy, x), (dw,) = request.operands, request.results
    if not _usable((dy, x, dw)):
        return None
    layer = _Layer(x.shape, dw.shape, dy.shape, request.attributes)
    columns, launches = layer.columns(Ref("in", 1))
    rows, field, groups, outer = layer.rows, layer.field, layer.groups, layer.outer
    scratch = [*layer.scratch, WORD * groups * packed_floats(field, rows)]
    packed, result = Ref("scratch", 2), Ref("out", 0)
    if dw.dtype == "f16":
        scratch.append(WORD * dw.type.size)
        result = Ref("scratch", 3)
    pack = pack_kernel(field, rows, (rows * field, 1, field), (groups,))
    into = (outer * rows, rows, 1)
    for image in range(layer.images):
        first = image == 0
        kernel = gemm_kernel(
            outer,
            rows,
            field,
            (outer * field, field, 1),
            [Output(0 if first else 2, "f32", into)],
            batch=(groups,),
            operands=[] if first else [Operand("f32", into)],
            exprs=[] if first else [Expr("add", (0, 1), "f32")],
        )
        launches.append(Launch(pack, (at(columns, image * layer.of_columns[0]), packed)))
        given = (at(Ref("in", 0), image * layer.of_y[0]), packed, *(() if first else (result,)), result)
        launches.append(Launch(kernel, given))
    if dw.dtype == "f16":
        kernel = map_kernel((dw.type.size,), [Operand("f32", (1,))], [], [Output(0, "f16", (1,))])
        launches.append(Launch(kernel, (result, Ref("out", 0))))
    return HostPlan(tuple(launches), tuple(scratch))

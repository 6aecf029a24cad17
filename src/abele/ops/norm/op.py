"""Layer, batch, group and RMS normalisation, and their gradients. Statistics and arithmetic are in f32.

Scale ``w`` and shift ``b`` are optional operands: ``(x)``, ``(x, w)`` or ``(x, w, b)``. The gradients take ``w`` as
their last operand, give ``dw`` and ``db`` with it, and ``dx`` alone without it. Variances are biased: divided by the
count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from abele.errors import InvalidOperand
from abele.ir import REQUIRED, Arg, Builder, Composite, DType, Operation, Sample, TensorType, Value, register
from abele.ir.operation import Attributes
from abele.ir.types import f16, f32
from abele.ops.rules import to_float

Shape = tuple[int, ...]


def _shaped(b: Builder, x: Value, shape: Shape) -> Value:
    return x if x.shape == shape else b.reshape(x, shape=shape)


def _mean(b: Builder, x: Value, axes: Shape) -> Value:
    """Mean over ``axes``, which stay with size 1."""
    count = math.prod(x.shape[a] for a in axes)
    return b.mul(b.reduce_sum(x, axes=axes, keep=True), b.constant(1.0 / max(1, count), x.dtype))


def _reciprocal_deviation(b: Builder, variance: Value, eps: float) -> Value:
    return b.rsqrt(b.add(variance, b.constant(float(eps), DType.F32)))


def _kept(shape: Shape, axes: Shape) -> Shape:
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


# What the norms share: x in a view in which the statistics run over ``axes``, and w in a shape that broadcasts to it.


def _forward(
    b: Builder, x: Value, axes: Shape, eps: float, affine: Sequence[Value]
) -> tuple[Value, Value, Value, Value]:
    """The normalised f32 tensor, and mean, variance and reciprocal deviation with ``axes`` of size 1."""
    mean = _mean(b, x, axes)
    centred = b.sub(x, mean)
    variance = _mean(b, b.mul(centred, centred), axes)
    rstd = _reciprocal_deviation(b, variance, eps)
    y = b.mul(centred, rstd)
    if affine:
        y = b.mul(y, affine[0])
    if len(affine) > 1:
        y = b.add(y, affine[1])
    return y, mean, variance, rstd


def _backward(
    b: Builder, dy: Value, x: Value, mean: Value, rstd: Value, axes: Shape, w: Value | None
) -> tuple[Value, Value | None, Value | None]:
    """``dx``, and the products whose sums over the other axes are ``dw`` and ``db``; all f32 in the view of ``x``."""
    normal = b.mul(b.sub(x, mean), rstd)
    g = dy if w is None else b.mul(dy, w)
    inner = b.add(_mean(b, g, axes), b.mul(normal, _mean(b, b.mul(g, normal), axes)))
    dx = b.mul(rstd, b.sub(g, inner))
    return (dx, None, None) if w is None else (dx, b.mul(dy, normal), dy)


def _sum_to(b: Builder, x: Value, kept: Shape, shape: Shape, dtype: DType) -> Value:
    """Sum ``x`` over the dimensions in which ``kept`` has size 1, as a tensor of ``shape``."""
    axes = tuple(i for i, (have, want) in enumerate(zip(x.shape, kept, strict=True)) if want == 1 and have != 1)
    total = b.reduce_sum(x, axes=axes, keep=True) if axes else x
    return b.cast_to(_shaped(b, total, shape), dtype)


# Checks


def _check_input(name: str, operands: Sequence[Value], counts: Sequence[int], least: int) -> Value:
    if len(operands) not in counts:
        raise InvalidOperand(f"{name} takes {' or '.join(map(str, counts))} operands, not {len(operands)}")
    x = operands[0]
    if not x.dtype.is_float or x.type.rank < least:
        raise InvalidOperand(
            f"Operand 0 of {name} is {x.type}", remedy=f"It needs f32 or f16 and at least {least} dimensions."
        )
    return x


def _check_shape(name: str, position: int, value: Value, shape: Shape) -> None:
    if value.shape != shape or not value.dtype.is_float:
        raise InvalidOperand(f"Operand {position} of {name} is {value.type}; it needs shape {list(shape)}")


def _trailing(name: str, x: Value, attributes: Attributes) -> Shape:
    count = attributes["axes"]
    if not isinstance(count, int) or not 1 <= count <= x.type.rank:
        raise InvalidOperand(f"axes of {name} is {count!r}", remedy=f"It counts trailing axes, 1 to {x.type.rank}.")
    return tuple(range(x.type.rank - count, x.type.rank))


def _same(name: str, dy: Value, x: Value) -> None:
    if dy.type != x.type:
        raise InvalidOperand(f"Operands 0 and 1 of {name} are {dy.type} and {x.type}; they must be equal")


# Layer norm


def _layer_norm(b: Builder, operands: Sequence[Value], a: Attributes) -> Sequence[Value]:
    x = _check_input("layer_norm", operands, (1, 2, 3), 1)
    axes = _trailing("layer_norm", x, a)
    for i, value in enumerate(operands[1:], start=1):
        _check_shape("layer_norm", i, value, x.shape[axes[0] :])
    affine = [to_float(b, v) for v in operands[1:]]
    y, mean, _, rstd = _forward(b, to_float(b, x), axes, a["eps"], affine)
    lead = x.shape[: axes[0]]
    return (b.cast_to(y, x.dtype), _shaped(b, mean, lead), _shaped(b, rstd, lead))


def _layer_norm_grad(b: Builder, operands: Sequence[Value], a: Attributes) -> Sequence[Value]:
    _check_input("layer_norm_grad", operands, (4, 5), 1)
    dy, x, mean, rstd, *w = operands
    _same("layer_norm_grad", dy, x)
    axes = _trailing("layer_norm_grad", x, a)
    for i in (2, 3):
        _check_shape("layer_norm_grad", i, operands[i], x.shape[: axes[0]])
    if w:
        _check_shape("layer_norm_grad", 4, w[0], x.shape[axes[0] :])
    kept = _kept(x.shape, axes)
    stats = (_shaped(b, mean, kept), _shaped(b, rstd, kept))
    weight = to_float(b, w[0]) if w else None
    dx, dw, db = _backward(b, to_float(b, dy), to_float(b, x), *stats, axes, weight)
    if dw is None or db is None:
        return (b.cast_to(dx, x.dtype),)
    lead = tuple(1 if i < axes[0] else n for i, n in enumerate(x.shape))
    sums = (_sum_to(b, v, lead, w[0].shape, w[0].dtype) for v in (dw, db))
    return (b.cast_to(dx, x.dtype), *sums)


# Batch norm


def _channels(x: Value) -> tuple[Shape, Shape]:
    """Axes of the statistics and the shape in which a channel vector broadcasts."""
    axes = (0, *range(2, x.type.rank))
    return axes, _kept(x.shape, axes)


def _batch_norm(b: Builder, operands: Sequence[Value], a: Attributes) -> Sequence[Value]:
    x = _check_input("batch_norm", operands, (1, 2, 3), 2)
    axes, kept = _channels(x)
    for i, value in enumerate(operands[1:], start=1):
        _check_shape("batch_norm", i, value, (x.shape[1],))
    affine = [_shaped(b, to_float(b, v), kept) for v in operands[1:]]
    y, mean, variance, _ = _forward(b, to_float(b, x), axes, a["eps"], affine)
    per = (x.shape[1],)
    return (b.cast_to(y, x.dtype), _shaped(b, mean, per), _shaped(b, variance, per))


def _batch_norm_grad(b: Builder, operands: Sequence[Value], a: Attributes) -> Sequence[Value]:
    _check_input("batch_norm_grad", operands, (4, 5), 2)
    dy, x, mean, variance, *w = operands
    _same("batch_norm_grad", dy, x)
    axes, kept = _channels(x)
    for i, value in enumerate(operands[2:], start=2):
        _check_shape("batch_norm_grad", i, value, (x.shape[1],))
    rstd = _reciprocal_deviation(b, variance, a["eps"])
    stats = (_shaped(b, mean, kept), _shaped(b, rstd, kept))
    weight = _shaped(b, to_float(b, w[0]), kept) if w else None
    dx, dw, db = _backward(b, to_float(b, dy), to_float(b, x), *stats, axes, weight)
    if dw is None or db is None:
        return (b.cast_to(dx, x.dtype),)
    sums = (_sum_to(b, v, kept, w[0].shape, w[0].dtype) for v in (dw, db))
    return (b.cast_to(dx, x.dtype), *sums)


def _batch_norm_inference(b: Builder, operands: Sequence[Value], a: Attributes) -> Sequence[Value]:
    x = _check_input("batch_norm_inference", operands, (5,), 2)
    _, kept = _channels(x)
    for i, value in enumerate(operands[1:], start=1):
        _check_shape("batch_norm_inference", i, value, (x.shape[1],))
    w, shift, mean, variance = (to_float(b, v) for v in operands[1:])
    scale = b.mul(w, _reciprocal_deviation(b, variance, a["eps"]))
    centred = b.sub(to_float(b, x), _shaped(b, mean, kept))
    y = b.add(b.mul(centred, _shaped(b, scale, kept)), _shaped(b, shift, kept))
    return (b.cast_to(y, x.dtype),)


# Group norm: instance norm is one channel to a group


def _groups(name: str, x: Value, a: Attributes) -> tuple[Shape, Shape, Shape]:
    """View ``[N, G, C / G, *S]``, axes of the statistics, and the shape in which a channel vector broadcasts."""
    groups: Any = a["groups"]
    if groups < 1 or x.shape[1] % groups:
        raise InvalidOperand(f"{name} with {groups} groups on {x.type}", remedy="Groups divide the channels.")
    per = x.shape[1] // groups
    view = (x.shape[0], groups, per, *x.shape[2:])
    return view, tuple(range(2, len(view))), (1, groups, per, *(1,) * (len(view) - 3))


def _group_norm(b: Builder, operands: Sequence[Value], a: Attributes) -> Sequence[Value]:
    x = _check_input("group_norm", operands, (1, 2, 3), 2)
    view, axes, kept = _groups("group_norm", x, a)
    for i, value in enumerate(operands[1:], start=1):
        _check_shape("group_norm", i, value, (x.shape[1],))
    affine = [_shaped(b, to_float(b, v), kept) for v in operands[1:]]
    y, mean, _, rstd = _forward(b, _shaped(b, to_float(b, x), view), axes, a["eps"], affine)
    y = b.cast_to(_shaped(b, y, x.shape), x.dtype)
    return (y, _shaped(b, mean, view[:2]), _shaped(b, rstd, view[:2]))


def _group_norm_grad(b: Builder, operands: Sequence[Value], a: Attributes) -> Sequence[Value]:
    _check_input("group_norm_grad", operands, (4, 5), 2)
    dy, x, mean, rstd, *w = operands
    _same("group_norm_grad", dy, x)
    view, axes, kept = _groups("group_norm_grad", x, a)
    for i in (2, 3):
        _check_shape("group_norm_grad", i, operands[i], view[:2])
    if w:
        _check_shape("group_norm_grad", 4, w[0], (x.shape[1],))
    stat = _kept(view, axes)
    stats = (_shaped(b, mean, stat), _shaped(b, rstd, stat))
    weight = _shaped(b, to_float(b, w[0]), kept) if w else None
    wide = (_shaped(b, to_float(b, dy), view), _shaped(b, to_float(b, x), view))
    dx, dw, db = _backward(b, *wide, *stats, axes, weight)
    dx = b.cast_to(_shaped(b, dx, x.shape), x.dtype)
    if dw is None or db is None:
        return (dx,)
    return (dx, *(_sum_to(b, v, kept, w[0].shape, w[0].dtype) for v in (dw, db)))


# RMS norm


def _rms_norm(b: Builder, operands: Sequence[Value], a: Attributes) -> Sequence[Value]:
    x = _check_input("rms_norm", operands, (1, 2), 1)
    axes = _trailing("rms_norm", x, a)
    wide = to_float(b, x)
    y = b.mul(wide, _reciprocal_deviation(b, _mean(b, b.mul(wide, wide), axes), a["eps"]))
    if len(operands) == 2:
        _check_shape("rms_norm", 1, operands[1], x.shape[axes[0] :])
        y = b.mul(y, to_float(b, operands[1]))
    return (b.cast_to(y, x.dtype),)


# Gradients of the forward forms, from the statistics that they return


def _gradient(name: str, keep: Sequence[str], variance: bool):
    """``keep``: attributes that the gradient shares. ``variance``: the third result is a variance, not ``rstd``."""

    def gradient(b: Builder, op: Operation, outer: Sequence[Value | None]) -> Sequence[Value | None]:
        dy, *dstats = outer
        x, *affine = op.operands
        _, *stats = op.results
        given: list[Value | None] = [None] * len(op.operands)
        through = any(d is not None for d in dstats)
        if dy is not None:
            attributes = {key: op.attributes[key] for key in keep}
            pair = (to_float(b, dy), to_float(b, x)) if through else (dy, x)  # both parts of dx are rounded once
            found = b.emit(name, (*pair, *stats, *affine[:1]), attributes)
            given = list(found[: len(op.operands)])
        if through:
            more = _through_statistics(b, op, dstats, variance)
            total = more if given[0] is None else b.add(given[0], more)
            given[0] = b.cast_to(total, x.dtype)
        return given

    return gradient


def _through_statistics(b: Builder, op: Operation, outer: Sequence[Value | None], variance: bool) -> Value:
    """``dx`` in f32, by way of the returned mean and variance (or reciprocal deviation)."""
    x, mean, spread = op.operands[0], op.results[1], op.results[2]
    if op.name == "group_norm":
        view, axes, _ = _groups(op.name, x, op.attributes)
    else:
        view = x.shape
        axes = _channels(x)[0] if op.name == "batch_norm" else _trailing(op.name, x, op.attributes)
    kept, count = _kept(view, axes), max(1, math.prod(view[i] for i in axes))
    centred = b.sub(_shaped(b, to_float(b, x), view), _shaped(b, mean, kept))
    parts = []
    if outer[0] is not None:
        parts.append(b.expand(_shaped(b, outer[0], kept), shape=view))
    if outer[1] is not None:
        slope = _shaped(b, outer[1], kept)
        if variance:
            factor = b.mul(slope, b.constant(2.0, DType.F32))
        else:
            s = _shaped(b, spread, kept)
            factor = b.neg(b.mul(slope, b.mul(s, b.mul(s, s))))
        parts.append(b.mul(centred, factor))
    total = parts[0] if len(parts) == 1 else b.add(*parts)
    dx = b.mul(total, b.constant(1.0 / count, DType.F32))
    return _shaped(b, dx, x.shape)


# Samples


def _of(types: Sequence[TensorType], attributes: dict[str, Any], positive: Sequence[int] = ()) -> Sample:
    draws = [Arg(t, "uniform", 0.5, 2.0) if i in positive else Arg(t) for i, t in enumerate(types)]
    return Sample(tuple(draws), attributes)


def _layer_samples() -> Iterable[Sample]:
    for x, axes, count in (
        (f32(3, 7), 1, 3),
        (f16(5, 33), 1, 3),
        (f32(2, 3, 4), 2, 3),
        (f32(2, 3, 5), 1, 2),
        (f16(4, 9), 1, 1),
        (f32(0, 6), 1, 3),
    ):
        w = x.with_shape(x.shape[-axes:])
        yield _of([x, *[w] * (count - 1)], {"axes": axes, "eps": 1e-5})


def _layer_grad_samples() -> Iterable[Sample]:
    for x, axes, affine in ((f32(3, 7), 1, 1), (f16(5, 33), 1, 1), (f32(2, 3, 4), 2, 1), (f32(4, 5), 1, 0)):
        stat = f32(*x.shape[:-axes])
        w = [x.with_shape(x.shape[-axes:])] * affine
        yield _of([x, x, stat, stat, *w], {"axes": axes}, positive=(3,))


def _batch_samples() -> Iterable[Sample]:
    for x, count in ((f32(4, 3, 5, 2), 3), (f16(3, 5, 4), 3), (f32(6, 4), 3), (f32(3, 2, 3), 1)):
        yield _of([x, *[x.with_shape(x.shape[1:2])] * (count - 1)], {"eps": 1e-5})


def _batch_grad_samples() -> Iterable[Sample]:
    for x, affine in ((f32(4, 3, 5, 2), 1), (f16(3, 5, 4), 1), (f32(6, 4), 1), (f32(3, 2, 3), 0)):
        stat = f32(x.shape[1])
        yield _of([x, x, stat, stat, *[x.with_shape(x.shape[1:2])] * affine], {"eps": 1e-5}, positive=(3,))


def _inference_samples() -> Iterable[Sample]:
    for x in (f32(2, 3, 4, 5), f16(3, 5, 4), f32(4, 7), f32(0, 3, 2)):
        c = x.with_shape(x.shape[1:2])
        yield _of([x, c, c, c, c], {"eps": 1e-5}, positive=(4,))


def _group_samples() -> Iterable[Sample]:
    for x, groups, count in ((f32(2, 6, 3, 2), 3, 3), (f16(3, 4, 5), 2, 3), (f32(2, 3, 4), 3, 1), (f32(3, 8), 2, 3)):
        yield _of([x, *[x.with_shape(x.shape[1:2])] * (count - 1)], {"groups": groups, "eps": 1e-5})


def _group_grad_samples() -> Iterable[Sample]:
    for x, groups, affine in ((f32(2, 6, 3, 2), 3, 1), (f16(3, 4, 5), 2, 1), (f32(2, 3, 4), 3, 0)):
        stat = f32(x.shape[0], groups)
        w = [x.with_shape(x.shape[1:2])] * affine
        yield _of([x, x, stat, stat, *w], {"groups": groups}, positive=(3,))


def _rms_samples() -> Iterable[Sample]:
    for x, axes, affine in ((f32(3, 7), 1, 1), (f16(5, 33), 1, 1), (f32(2, 3, 4), 2, 0)):
        yield _of([x, *[x.with_shape(x.shape[-axes:])] * affine], {"axes": axes, "eps": 1e-6})


_AXES = {"axes": 1, "eps": 1e-5}
_EPS = {"eps": 1e-5}
_ALIKE = frozenset({"alike"})
_GROUPS = {"groups": REQUIRED, "eps": 1e-5}

for _composite in (
    Composite("layer_norm", _AXES, _layer_norm, _layer_samples, _gradient("layer_norm_grad", ("axes",), False)),
    Composite("layer_norm_grad", {"axes": 1}, _layer_norm_grad, _layer_grad_samples),
    Composite(
        "batch_norm", _EPS, _batch_norm, _batch_samples, _gradient("batch_norm_grad", ("eps",), True), traits=_ALIKE
    ),
    Composite("batch_norm_grad", _EPS, _batch_norm_grad, _batch_grad_samples, traits=_ALIKE),
    Composite("batch_norm_inference", _EPS, _batch_norm_inference, _inference_samples, traits=_ALIKE),
    Composite(
        "group_norm",
        _GROUPS,
        _group_norm,
        _group_samples,
        _gradient("group_norm_grad", ("groups",), False),
        traits=_ALIKE,
    ),
    Composite("group_norm_grad", {"groups": REQUIRED}, _group_norm_grad, _group_grad_samples, traits=_ALIKE),
    Composite("rms_norm", _AXES, _rms_norm, _rms_samples),
):
    register(_composite)

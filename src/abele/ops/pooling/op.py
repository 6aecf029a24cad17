"""Max and average pooling over all spatial dimensions of ``[N, C, *S]``, their gradients, and the adaptive forms.

``padding`` is a pair (low, high) for every spatial dimension. Padding never wins a maximum. An average counts its
padding when ``count_include_pad``; ceil mode with that flag is written as an explicit ``pad`` followed by a pool
whose extra high padding is not counted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from abele.errors import InvalidOperand
from abele.ir import (
    REQUIRED,
    Arg,
    Builder,
    Composite,
    DType,
    NotDifferentiable,
    Operation,
    Primitive,
    Sample,
    TensorType,
    Value,
    register,
)
from abele.ir.operation import Attributes
from abele.ir.types import f16, f32
from abele.ops.rules import extents

Sizes = Sequence[int]


def _dilation(a: Attributes) -> tuple[int, ...]:
    kernel: Any = a["kernel"]
    given: Any = a.get("dilation")
    return given if given is not None else (1,) * len(kernel)


# The arithmetic, on whole tensors or on the pieces of one tile: spatial dimensions are the trailing ones, and
# ``starts`` says where tap 0 of output position 0 lies in the piece of the input (it may be outside).


def taps(kernel: Sizes) -> Iterable[tuple[int, ...]]:
    """Window positions in row-major order, the order in which the first maximum is looked for."""
    return itertools.product(*map(range, kernel))


def positions(outs: Sizes, tap: Sizes, starts: Sizes, strides: Sizes, dilation: Sizes) -> list[np.ndarray]:
    """Input positions that ``tap`` of every output position meets, dimension by dimension."""
    return [
        start + np.arange(n) * s + k * d for n, k, start, s, d in zip(outs, tap, starts, strides, dilation, strict=True)
    ]


def _meet(where: Sequence[np.ndarray], sizes: Sizes) -> tuple[tuple, tuple] | None:
    """Output and input slices-by-index of the taps that fall inside the input."""
    outs, ins = [], []
    for index, size in zip(where, sizes, strict=True):
        inside = np.flatnonzero((index >= 0) & (index < size))
        if not len(inside):
            return None
        first, last = inside[0], inside[-1]
        step = int(index[1] - index[0]) if len(index) > 1 else 1
        outs.append(slice(int(first), int(last) + 1))
        ins.append(slice(int(index[first]), int(index[last]) + 1, step))
    return (..., *outs), (..., *ins)


def pool(
    x: np.ndarray, kind: str, kernel: Sizes, outs: Sizes, starts: Sizes, strides: Sizes, dilation: Sizes
) -> np.ndarray:
    """``max`` or ``sum`` of every window, padding left out."""
    lead = x.shape[: x.ndim - len(kernel)]
    result = np.full((*lead, *outs), -np.inf if kind == "max" else 0.0)
    for tap in taps(kernel):
        found = _meet(positions(outs, tap, starts, strides, dilation), x.shape[len(lead) :])
        if found:
            out, into = found
            result[out] = np.maximum(result[out], x[into]) if kind == "max" else result[out] + x[into]
    return result


def spread_first_maximum(
    x: np.ndarray, y: np.ndarray, dy: np.ndarray, kernel: Sizes, starts: Sizes, strides: Sizes, dilation: Sizes
) -> np.ndarray:
    """``dx`` over the piece ``x``: every ``dy`` goes to the first element of its window that equals ``y``."""
    dx = np.zeros_like(x)
    lead = x.ndim - len(kernel)
    waiting = np.ones(y.shape, bool)
    for tap in taps(kernel):
        found = _meet(positions(y.shape[lead:], tap, starts, strides, dilation), x.shape[lead:])
        if found:
            out, into = found
            value = x[into]
            hit = waiting[out] & ((value == y[out]) | (np.isnan(value) & np.isnan(y[out])))
            dx[into] += np.where(hit, dy[out], 0.0)
            waiting[out] &= ~hit
    return dx


def spread_sum(dy: np.ndarray, sizes: Sizes, kernel: Sizes, starts: Sizes, strides: Sizes) -> np.ndarray:
    """Every ``dy`` added to all elements of its window, in a piece of the input of ``sizes``."""
    lead = dy.ndim - len(kernel)
    dx = np.zeros((*dy.shape[:lead], *sizes))
    for tap in taps(kernel):
        found = _meet(positions(dy.shape[lead:], tap, starts, strides, (1,) * len(kernel)), sizes)
        if found:
            out, into = found
            dx[into] += dy[out]
    return dx


def divisors(outs: Sequence[tuple[int, int]], sizes: Sizes, a: Attributes) -> np.ndarray:
    """What the windows of output positions ``[start, stop)`` are divided by; ``sizes`` are the whole input's."""
    kernel: Any = a["kernel"]
    fixed: Any = a["divisor"] or (math.prod(kernel) if a["count_include_pad"] else None)
    if fixed is not None:
        return np.full(tuple(stop - start for start, stop in outs), float(fixed))
    count = np.ones(())
    for (start, stop), size, k, s, p in zip(outs, sizes, kernel, a["strides"], a["padding"], strict=True):
        first = np.arange(start, stop) * s - p[0]
        inside = np.minimum(first + k, size) - np.maximum(first, 0)
        count = np.multiply.outer(count, inside)
    return count.astype(np.float64)


def _outs(sizes: Sizes, a: Attributes) -> tuple[int, ...]:
    kernel, strides, padding = a["kernel"], a["strides"], a["padding"]
    spans = extents(kernel, _dilation(a))
    return tuple((n + p[0] + p[1] - e) // s + 1 for n, e, s, p in zip(sizes, spans, strides, padding, strict=True))


def _starts(a: Attributes) -> list[int]:
    return [-p[0] for p in a["padding"]]


def _max_pool(operands: Sequence[np.ndarray], a: Attributes, results: Sequence[TensorType]) -> tuple[np.ndarray, ...]:
    (x,) = operands
    outs = _outs(x.shape[2:], a)
    return (pool(x, "max", a["kernel"], outs, _starts(a), a["strides"], _dilation(a)),)


def _max_pool_grad(
    operands: Sequence[np.ndarray], a: Attributes, results: Sequence[TensorType]
) -> tuple[np.ndarray, ...]:
    x, y, dy = operands
    return (spread_first_maximum(x, y, dy, a["kernel"], _starts(a), a["strides"], _dilation(a)),)


def _avg_pool(operands: Sequence[np.ndarray], a: Attributes, results: Sequence[TensorType]) -> tuple[np.ndarray, ...]:
    (x,) = operands
    outs = _outs(x.shape[2:], a)
    total = pool(x, "sum", a["kernel"], outs, _starts(a), a["strides"], _dilation(a))
    return (total / divisors([(0, n) for n in outs], x.shape[2:], a),)


def _avg_pool_grad(
    operands: Sequence[np.ndarray], a: Attributes, results: Sequence[TensorType]
) -> tuple[np.ndarray, ...]:
    (dy,) = operands
    shape: Any = a["input_shape"]
    share = dy / divisors([(0, n) for n in dy.shape[2:]], shape[2:], a)
    return (spread_sum(share, shape[2:], a["kernel"], _starts(a), a["strides"]),)


# Type rules


def _check(name: str, type_: TensorType, a: Attributes) -> tuple[int, ...]:
    """Shape of the pooled input ``type_``; raises ``InvalidOperand``."""
    if not type_.dtype.is_float or not 3 <= type_.rank <= 5:
        raise InvalidOperand(
            f"The input of {name} is {type_}", remedy="It is [N, C, *S] in f32 or f16 with 1 to 3 spatial dimensions."
        )
    spatial = type_.rank - 2
    for key in ("kernel", "strides", "dilation", "padding"):
        value: Any = a.get(key, (1,) * spatial)
        if not isinstance(value, tuple) or len(value) != spatial:
            raise InvalidOperand(
                f"{key} of {name} is {value!r}", remedy=f"It needs {spatial} entries, one a dimension."
            )
        if key == "padding" and any(not isinstance(p, tuple) or len(p) != 2 or min(p) < 0 for p in value):
            raise InvalidOperand(f"padding of {name} is {value}", remedy="Pairs (low, high), none negative.")
        if key != "padding" and min(value) < 1:
            raise InvalidOperand(f"{key} of {name} is {value}", remedy="Every entry is at least 1.")
    outs = _outs(type_.shape[2:], a)
    if min(outs) < 1:
        raise InvalidOperand(f"{name}: the window {a['kernel']} is larger than the padded input {type_}")
    kernel, dilation = a["kernel"], _dilation(a)
    for n, size, k, d, s, p in zip(outs, type_.shape[2:], kernel, dilation, a["strides"], a["padding"], strict=True):
        meets = (np.arange(n) * s - p[0])[:, None] + np.arange(k) * d
        if not ((meets >= 0) & (meets < size)).any(axis=1).all():
            raise InvalidOperand(f"{name} of {type_}: with padding {a['padding']} a window lies in the padding alone")
    return (*type_.shape[:2], *outs)


def _infer_pool(name: str):
    def infer(operands: Sequence[TensorType], a: Attributes) -> tuple[TensorType, ...]:
        if len(operands) != 1:
            raise InvalidOperand(f"{name} takes 1 operand, not {len(operands)}")
        return (operands[0].with_shape(_check(name, operands[0], a)),)

    return infer


def _infer_max_grad(operands: Sequence[TensorType], a: Attributes) -> tuple[TensorType, ...]:
    if len(operands) != 3:
        raise InvalidOperand(f"max_pool_grad takes 3 operands, not {len(operands)}")
    x, y, dy = operands
    want = x.with_shape(_check("max_pool_grad", x, a))
    if y != want or dy != want:
        raise InvalidOperand(f"Operands 1 and 2 of max_pool_grad are {y} and {dy}, but pooling {x} gives {want}")
    return (x,)


def _infer_avg_grad(operands: Sequence[TensorType], a: Attributes) -> tuple[TensorType, ...]:
    if len(operands) != 1:
        raise InvalidOperand(f"avg_pool_grad takes 1 operand, not {len(operands)}")
    (dy,) = operands
    x = dy.with_shape(a["input_shape"])
    want = _check("avg_pool_grad", x, a)
    if want != dy.shape:
        raise InvalidOperand(f"Operand 0 of avg_pool_grad is {dy}, but pooling {x} gives {list(want)}")
    return (x,)


def _grad_max(b: Builder, op: Operation, outer: Sequence[Value | None]) -> Sequence[Value | None]:
    (dy,) = outer
    return (None if dy is None else b.max_pool_grad(op.operands[0], op.result, dy, **op.attributes),)


def _grad_avg(b: Builder, op: Operation, outer: Sequence[Value | None]) -> Sequence[Value | None]:
    (dy,) = outer
    return (None if dy is None else b.avg_pool_grad(dy, **op.attributes, input_shape=op.operands[0].shape),)


def _grad_avg_grad(b: Builder, op: Operation, outer: Sequence[Value | None]) -> Sequence[Value | None]:
    (g,) = outer
    kept = {key: value for key, value in op.attributes.items() if key != "input_shape"}
    return (None if g is None else b.avg_pool(g, **kept),)


def _flops(operands: Sequence[TensorType], results: Sequence[TensorType], a: Attributes) -> int:
    """One for each element of each window."""
    small = min((*operands, *results), key=lambda t: t.size).size
    return small * math.prod(a["kernel"])


def _cases() -> Iterable[tuple[TensorType, dict[str, Any], str]]:
    def case(x: TensorType, kernel: tuple[int, ...], note: str, **more: Any):
        d = len(kernel)
        return x, {"kernel": kernel, "strides": (1,) * d, "padding": ((0, 0),) * d} | more, note

    yield case(f32(2, 3, 7, 6), (2, 2), "strides", strides=(2, 2))
    yield case(f32(1, 3, 7, 6), (3, 3), "overlapping, padded", strides=(2, 1), padding=((1, 1), (1, 1)))
    yield case(f16(2, 5, 9, 9), (3, 3), "ceil mode, half", strides=(2, 2), padding=((0, 1), (1, 2)))
    yield case(f32(2, 3, 11), (3,), "1-d", strides=(2,), padding=((1, 1),))
    yield case(f32(1, 2, 4, 5, 6), (2, 2, 3), "3-d", strides=(2, 1, 3))
    yield case(f32(1, 2, 5, 5), (5, 5), "one window")
    yield case(f32(0, 2, 4, 4), (2, 2), "empty batch", strides=(2, 2))


def _samples_max(grad: bool):
    def samples() -> Iterable[Sample]:
        cases = [(x, a | {"dilation": (1,) * (x.rank - 2)}, note) for x, a, note in _cases()]
        wide = {"kernel": (2, 3), "strides": (1, 2), "padding": ((1, 1), (0, 2)), "dilation": (2, 2)}
        for x, a, note in [*cases, (f32(1, 2, 8, 9), wide, "dilation")]:
            if not grad:
                yield Sample((Arg(x, "distinct"),), a, note)
                continue
            # A real y cannot be drawn: integers make both hits and misses, which the definition covers alike.
            y = x.with_shape(_check("max_pool", x, a))
            yield Sample((Arg(x, "integers", -2, 3), Arg(y, "integers", -2, 3), Arg(y)), a, note)

    return samples


def _samples_avg(grad: bool):
    def samples() -> Iterable[Sample]:
        for x, a, note in _cases():
            for more in ({"count_include_pad": True, "divisor": None}, {"count_include_pad": False, "divisor": None}):
                yield _avg_sample(x, a | more, note, grad)
        x, a, _ = next(iter(_cases()))
        yield _avg_sample(x, a | {"count_include_pad": True, "divisor": 3}, "own divisor", grad)

    return samples


def _avg_sample(x: TensorType, a: dict[str, Any], note: str, grad: bool) -> Sample:
    if not grad:
        return Sample((Arg(x),), a, note)
    return Sample((Arg(x.with_shape(_check("avg_pool", x, a))),), a | {"input_shape": x.shape}, note)


_WINDOW: dict[str, Any] = {"kernel": REQUIRED, "strides": REQUIRED, "padding": REQUIRED}
_MAX = _WINDOW | {"dilation": REQUIRED}
_AVG = _WINDOW | {"count_include_pad": True, "divisor": None}
_SECOND = NotDifferentiable("second derivatives of max pooling are not defined here: it is linear between its kinks")

register(Primitive("max_pool", _MAX, _infer_pool("max_pool"), _max_pool, _grad_max, _flops, _samples_max(False)))
register(Primitive("max_pool_grad", _MAX, _infer_max_grad, _max_pool_grad, _SECOND, _flops, _samples_max(True)))
register(Primitive("avg_pool", _AVG, _infer_pool("avg_pool"), _avg_pool, _grad_avg, _flops, _samples_avg(False)))
register(
    Primitive(
        "avg_pool_grad",
        _AVG | {"input_shape": REQUIRED},
        _infer_avg_grad,
        _avg_pool_grad,
        _grad_avg_grad,
        _flops,
        _samples_avg(True),
    )
)


# Adaptive pooling: windows of equal length where they divide the input, else slice by slice, one dimension at a time.


def _adaptive(kind: str):
    def expand(b: Builder, operands: Sequence[Value], a: Attributes) -> Sequence[Value]:
        (x,) = operands
        output: Any = a["output"]
        name = f"adaptive_{kind}_pool"
        if not x.dtype.is_float or not 3 <= x.type.rank <= 5 or len(output) != x.type.rank - 2 or min(output) < 1:
            raise InvalidOperand(
                f"{name} of {x.type} to {output}", remedy="One positive output size for each spatial dimension."
            )
        sizes = x.shape[2:]
        d = len(sizes)
        if all(n % o == 0 for n, o in zip(sizes, output, strict=True)):
            kernel = tuple(n // o for n, o in zip(sizes, output, strict=True))
            window = {"kernel": kernel, "strides": kernel, "padding": ((0, 0),) * d}
            return (b.max_pool(x, **window, dilation=(1,) * d) if kind == "max" else b.avg_pool(x, **window),)
        # Sums stay in f32 between the dimensions, so that the result is rounded once.
        y = b.cast(x, dtype="f32") if kind == "avg" and x.dtype is DType.F16 else x
        for axis, o in enumerate(output, start=2):
            y = _by_slices(b, y, axis, o, kind)
        return (y if y.dtype == x.dtype else b.cast(y, dtype=str(x.dtype)),)

    return expand


def _by_slices(b: Builder, x: Value, axis: int, outs: int, kind: str) -> Value:
    pieces = []
    size = x.shape[axis]
    if size == outs:
        return x
    for i in range(outs):
        start, stop = i * size // outs, -(-(i + 1) * size // outs)
        starts = tuple(start if j == axis else 0 for j in range(x.type.rank))
        stops = tuple(stop if j == axis else n for j, n in enumerate(x.shape))
        piece = b.slice(x, starts=starts, stops=stops, steps=(1,) * x.type.rank)
        if kind == "max":
            pieces.append(b.reduce_max(piece, axes=(axis,), keep=True))
        else:
            total = b.reduce_sum(piece, axes=(axis,), keep=True)
            pieces.append(b.mul(total, b.constant(1.0 / (stop - start), x.dtype)))
    return pieces[0] if len(pieces) == 1 else b.concat(*pieces, axis=axis)


def _adaptive_samples() -> Iterable[Sample]:
    for x, output, note in (
        (f32(2, 3, 6, 8), (3, 2), "equal windows"),
        (f32(1, 2, 7, 5), (3, 2), "unequal windows"),
        (f16(2, 3, 7, 7), (1, 1), "global, half"),
        (f32(2, 3, 5), (5,), "1-d, as it is"),
        (f16(1, 2, 5, 4, 6), (2, 3, 4), "3-d, half"),
    ):
        yield Sample((Arg(x, "distinct"),), {"output": output}, note)


for _kind in ("avg", "max"):
    register(Composite(f"adaptive_{_kind}_pool", {"output": REQUIRED}, _adaptive(_kind), _adaptive_samples))

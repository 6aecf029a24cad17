"""Convolutions in one to three dimensions and their two gradients, as one family of bilinear maps.

``x`` is ``[N, C, *S]``, ``w`` is ``[O, C / groups, *K]``, ``y`` is ``[N, O, *Y]``; ``padding`` is a pair (low, high)
for every spatial dimension. Output position ``y`` meets input position ``y * stride - low + k * dilation`` at tap
``k``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from abele.errors import InvalidOperand
from abele.ir import REQUIRED, Arg, Builder, Operation, Primitive, Sample, TensorType, Value, register
from abele.ir.operation import Attributes
from abele.ir.types import f16, f32
from abele.ops.rules import extents, float8_product, product_type

Sizes = Sequence[int]


def output_sizes(sizes: Sizes, kernel: Sizes, strides: Sizes, padding: Any, dilation: Sizes) -> tuple[int, ...]:
    """Output positions in every dimension; below 1 where the kernel is longer than the padded input."""
    spans = extents(kernel, dilation)
    return tuple((n + p[0] + p[1] - e) // s + 1 for n, e, s, p in zip(sizes, spans, strides, padding, strict=True))


# The arithmetic, on whole tensors or on the pieces of one tile. Channels are split into groups first.


def convolve(x: np.ndarray, w: np.ndarray, strides: Sizes, dilation: Sizes) -> np.ndarray:
    """``x [N, G, C, *padded]``, ``w [G, O, C, *K]`` → ``y [N, G, O, *Y]``; what is padded is in ``x`` already."""
    windows = _windows(x, w.shape[3:], strides, dilation)
    n, g, c, *rest = windows.shape
    outs, taps = rest[: x.ndim - 3], rest[x.ndim - 3 :]
    d = len(outs)
    order = (1, 0, *range(3, 3 + d), 2, *range(3 + d, 3 + 2 * d))
    left = windows.transpose(order).reshape(g, n * math.prod(outs), c * math.prod(taps))
    right = w.reshape(g, w.shape[1], c * math.prod(taps)).transpose(0, 2, 1)
    y = np.matmul(left, right).reshape(g, n, *outs, w.shape[1])
    return y.transpose(1, 0, 2 + d, *range(2, 2 + d))


def spread_gradient(
    dy: np.ndarray, w: np.ndarray, strides: Sizes, dilation: Sizes, starts: Sizes, sizes: Sizes
) -> np.ndarray:
    """``dy [N, G, O, *Y]``, ``w [G, O, C, *K]`` → ``dx [N, G, C, *sizes]``.

    ``starts``: where in ``dx`` tap 0 of output position 0 lies, which may be outside of it.
    """
    n, g = dy.shape[:2]
    outs, kernel = dy.shape[3:], w.shape[3:]
    spans = extents(kernel, dilation)
    if 0 in outs:
        return np.zeros((n, g, w.shape[2], *sizes))
    buffer = np.zeros((n, g, w.shape[2], *((y - 1) * s + e for y, s, e in zip(outs, strides, spans, strict=True))))
    flat = dy.reshape(n, g, dy.shape[2], math.prod(outs))
    for tap in itertools.product(*map(range, kernel)):
        part = np.matmul(w[(slice(None),) * 3 + tap].transpose(0, 2, 1), flat)  # [N, G, C, Y]
        where = tuple(
            slice(k * d, k * d + (y - 1) * s + 1, s) for k, d, y, s in zip(tap, dilation, outs, strides, strict=True)
        )
        buffer[(slice(None),) * 3 + where] += part.reshape(n, g, w.shape[2], *outs)
    dx = np.zeros((n, g, w.shape[2], *sizes))
    place(dx, buffer, starts)
    return dx


def weight_gradient(dy: np.ndarray, x: np.ndarray, kernel: Sizes, strides: Sizes, dilation: Sizes) -> np.ndarray:
    """``dy [N, G, O, *Y]``, ``x [N, G, C, *padded]`` → ``dw [G, O, C, *K]``."""
    windows = _windows(x, kernel, strides, dilation)
    n, g, o = dy.shape[:3]
    c, d = x.shape[2], len(kernel)
    field = math.prod(dy.shape[3:])
    order = (1, 0, *range(3, 3 + d), 2, *range(3 + d, 3 + 2 * d))
    right = windows.transpose(order).reshape(g, n * field, c * math.prod(kernel))
    left = dy.reshape(n, g, o, field).transpose(1, 2, 0, 3).reshape(g, o, n * field)
    return np.matmul(left, right).reshape(g, o, c, *kernel)


def _windows(x: np.ndarray, kernel: Sizes, strides: Sizes, dilation: Sizes) -> np.ndarray:
    """``x [N, G, C, *S]`` as ``[N, G, C, *Y, *K]``, a view."""
    axes = tuple(range(3, x.ndim))
    spans = extents(kernel, dilation)
    if any(n < e for n, e in zip(x.shape[3:], spans, strict=True)):
        return np.zeros((*x.shape[:3], *(0,) * len(kernel), *kernel))
    whole = np.lib.stride_tricks.sliding_window_view(x, spans, axis=axes)
    step = tuple(slice(None, None, s) for s in strides) + tuple(slice(None, None, d) for d in dilation)
    return whole[(slice(None),) * 3 + step]


def place(target: np.ndarray, piece: np.ndarray, starts: Sizes) -> None:
    """Copy ``piece`` into the trailing dimensions of ``target`` at ``starts``, cutting what falls outside."""
    lead = (slice(None),) * (target.ndim - len(starts))
    into, outof = [], []
    for size, length, start in zip(target.shape[-len(starts) :], piece.shape[-len(starts) :], starts, strict=True):
        low, high = max(0, start), min(size, start + length)
        if high <= low:
            return
        into.append(slice(low, high))
        outof.append(slice(low - start, high - start))
    target[(*lead, *into)] = piece[(*lead, *outof)]


def padded(x: np.ndarray, starts: Sizes, sizes: Sizes, value: float = 0.0) -> np.ndarray:
    """Trailing dimensions of ``sizes`` filled with ``value``, ``x`` placed at ``starts`` (which may be negative)."""
    target = np.full((*x.shape[: x.ndim - len(starts)], *sizes), value, x.dtype)
    place(target, x, starts)
    return target


def grouped(array: np.ndarray, groups: int, axis: int) -> np.ndarray:
    """Channels of one axis split into (groups, channels per group)."""
    shape = array.shape
    return array.reshape(*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])


def pad_input(x: np.ndarray, outs: Sizes, kernel: Sizes, attributes: Attributes) -> np.ndarray:
    """The input as the windows of ``outs`` output positions see it: padded with zeros, cut behind the last window."""
    strides, padding, dilation = attributes["strides"], attributes["padding"], attributes["dilation"]
    sizes = [max(0, (y - 1) * s + e) for y, s, e in zip(outs, strides, extents(kernel, dilation), strict=True)]
    return padded(x, [p[0] for p in padding], sizes)


def _conv(operands: Sequence[np.ndarray], a: Attributes, results: Sequence[TensorType]) -> tuple[np.ndarray, ...]:
    x, w = operands
    g: Any = a["groups"]
    outs = output_sizes(x.shape[2:], w.shape[2:], a["strides"], a["padding"], a["dilation"])
    y = convolve(grouped(pad_input(x, outs, w.shape[2:], a), g, 1), grouped(w, g, 0), a["strides"], a["dilation"])
    return (y.reshape(x.shape[0], w.shape[0], *outs),)


def _conv_input_grad(
    operands: Sequence[np.ndarray], a: Attributes, results: Sequence[TensorType]
) -> tuple[np.ndarray, ...]:
    dy, w = operands
    g: Any = a["groups"]
    shape: Any = a["input_shape"]
    starts = [-p[0] for p in a["padding"]]
    dx = spread_gradient(grouped(dy, g, 1), grouped(w, g, 0), a["strides"], a["dilation"], starts, shape[2:])
    return (dx.reshape(shape),)


def _conv_weight_grad(
    operands: Sequence[np.ndarray], a: Attributes, results: Sequence[TensorType]
) -> tuple[np.ndarray, ...]:
    dy, x = operands
    g: Any = a["groups"]
    shape: Any = a["weight_shape"]
    x = pad_input(x, dy.shape[2:], shape[2:], a)
    dw = weight_gradient(grouped(dy, g, 1), grouped(x, g, 1), shape[2:], a["strides"], a["dilation"])
    return (dw.reshape(shape),)


# Type rules


def _check(name: str, operands: Sequence[TensorType], a: Attributes) -> None:
    if len(operands) != 2:
        raise InvalidOperand(f"{name} takes 2 operands, not {len(operands)}")
    float8 = name == "conv" and float8_product(name, operands, a)
    for position, type_ in enumerate(operands):
        if not float8 and (not type_.dtype.is_float or type_.dtype != operands[0].dtype):
            raise InvalidOperand(
                f"Operand {position} of {name} is {type_}, operand 0 is {operands[0]}",
                remedy="Cast both to f32 or both to f16.",
            )
        if not 3 <= type_.rank <= 5 or type_.rank != operands[0].rank:
            raise InvalidOperand(
                f"Operand {position} of {name} is {type_}",
                remedy="Both operands have the same rank, 3 to 5: two dimensions and 1 to 3 spatial ones.",
            )
    spatial = operands[0].rank - 2
    check_windows(name, spatial, a, ("strides", "dilation"))
    if a["partials"] not in ("f32", "f16"):
        raise InvalidOperand(f"{name} cannot sum products in {a['partials']!r}", remedy="Known: 'f32', 'f16'.")


def check_windows(name: str, spatial: int, a: Attributes, positive: Sequence[str]) -> None:
    """Raise ``InvalidOperand`` unless window attributes have one entry for each spatial dimension, in range."""
    for key in (*positive, "padding"):
        value: Any = a[key]
        if not isinstance(value, tuple) or len(value) != spatial:
            raise InvalidOperand(
                f"{key} of {name} is {value!r}", remedy=f"It needs {spatial} entries, one a dimension."
            )
        if key != "padding" and min(value) < 1:
            raise InvalidOperand(f"{key} of {name} is {value}", remedy="Every entry is at least 1.")
    for pair in a["padding"]:
        if not isinstance(pair, tuple) or len(pair) != 2 or min(pair) < 0:
            raise InvalidOperand(f"padding of {name} is {a['padding']}", remedy="Pairs (low, high), none negative.")


def _check_conv(name: str, x: tuple[int, ...], w: tuple[int, ...], a: Attributes) -> tuple[int, ...]:
    """Shape of the result of ``conv`` on operands of these shapes."""
    groups: Any = a["groups"]
    if groups < 1 or x[1] != w[1] * groups or w[0] % groups:
        raise InvalidOperand(
            f"{name} with {groups} groups: {x[1]} input channels and weights {list(w)}",
            remedy="Input channels are groups times the weights' second dimension; groups divide their first.",
        )
    outs = output_sizes(x[2:], w[2:], a["strides"], a["padding"], a["dilation"])
    if min(outs) < 1:
        raise InvalidOperand(
            f"{name}: a kernel {list(w[2:])} with dilation {a['dilation']} "
            f"is larger than the padded input {list(x[2:])}"
        )
    return (x[0], w[0], *outs)


def _infer_conv(operands: Sequence[TensorType], a: Attributes) -> tuple[TensorType, ...]:
    _check("conv", operands, a)
    x, w = operands
    return (TensorType(_check_conv("conv", x.shape, w.shape, a), product_type(x)),)


def _infer_input_grad(operands: Sequence[TensorType], a: Attributes) -> tuple[TensorType, ...]:
    _check("conv_input_grad", operands, a)
    dy, w = operands
    return (dy.with_shape(_inverse("conv_input_grad", dy, a["input_shape"], w.shape, a, 0)),)


def _infer_weight_grad(operands: Sequence[TensorType], a: Attributes) -> tuple[TensorType, ...]:
    _check("conv_weight_grad", operands, a)
    dy, x = operands
    return (dy.with_shape(_inverse("conv_weight_grad", dy, x.shape, a["weight_shape"], a, 1)),)


def _inverse(name: str, dy: TensorType, x: Any, w: Any, a: Attributes, given: int) -> tuple[int, ...]:
    if len(x) != dy.rank or len(w) != dy.rank:
        raise InvalidOperand(f"{name} of {dy} gives a shape {x if given == 0 else w} of another rank")
    want = _check_conv(name, x, w, a)
    if want != dy.shape:
        raise InvalidOperand(
            f"Operand 0 of {name} is {dy}, but the convolution of {list(x)} with {list(w)} gives {list(want)}"
        )
    return tuple(w if given else x)


# Gradients: each of the three maps is linear in both operands, and their derivatives are the other two.

_KEYS = ("strides", "padding", "dilation", "groups", "partials")


def _shared(op: Operation) -> dict[str, Any]:
    return {key: op.attributes[key] for key in _KEYS}


def _grad_conv(b: Builder, op: Operation, outer: Sequence[Value | None]) -> Sequence[Value | None]:
    (dy,), (x, w) = outer, op.operands
    if dy is None:
        return (None, None)
    return (
        b.conv_input_grad(dy, w, **_shared(op), input_shape=x.shape),
        b.conv_weight_grad(dy, x, **_shared(op), weight_shape=w.shape),
    )


def _grad_input_grad(b: Builder, op: Operation, outer: Sequence[Value | None]) -> Sequence[Value | None]:
    (g,), (dy, w) = outer, op.operands
    if g is None:
        return (None, None)
    return (b.conv(g, w, **_shared(op)), b.conv_weight_grad(dy, g, **_shared(op), weight_shape=w.shape))


def _grad_weight_grad(b: Builder, op: Operation, outer: Sequence[Value | None]) -> Sequence[Value | None]:
    (g,), (dy, x) = outer, op.operands
    if g is None:
        return (None, None)
    return (b.conv(x, g, **_shared(op)), b.conv_input_grad(dy, g, **_shared(op), input_shape=x.shape))


def _flops(operands: Sequence[TensorType], results: Sequence[TensorType], a: Attributes) -> int:
    """Two for each product with an element of the input or its padding."""
    if "input_shape" in a:
        y, w = operands[0], operands[1].shape
    elif "weight_shape" in a:
        y, w = operands[0], results[0].shape
    else:
        y, w = results[0], operands[1].shape
    return 2 * y.size * math.prod(w[1:])


def _cases() -> Iterable[tuple[TensorType, TensorType, dict[str, Any], str]]:
    """Input and weight types with attributes, and what is special."""

    def case(x: TensorType, w: TensorType, note: str, **more: Any):
        d = x.rank - 2
        plain = {"strides": (1,) * d, "padding": ((0, 0),) * d, "dilation": (1,) * d, "groups": 1, "partials": "f32"}
        return x, w, plain | more, note

    yield case(f32(2, 3, 7, 6), f32(5, 3, 3, 3), "padding", padding=((1, 1), (1, 1)))
    yield case(f16(1, 17, 5, 5), f16(9, 17, 1, 1), "one tap, half")
    yield case(f32(2, 4, 9, 8), f32(6, 4, 3, 2), "strides", strides=(2, 3))
    yield case(f32(1, 2, 9, 7), f32(3, 2, 3, 3), "dilation", dilation=(2, 1), padding=((2, 2), (1, 1)))
    yield case(f32(1, 2, 6, 7), f32(2, 2, 3, 4), "asymmetric padding", padding=((0, 2), (3, 1)), strides=(2, 2))
    yield case(f32(2, 6, 5, 5), f32(4, 3, 3, 3), "groups", groups=2, padding=((1, 1), (1, 1)))
    yield case(f16(1, 8, 6, 6), f16(8, 1, 3, 3), "depthwise, half", groups=8, padding=((1, 1), (1, 1)))
    yield case(f32(2, 3, 11), f32(4, 3, 4), "1-d", strides=(3,), padding=((2, 1),))
    yield case(f32(1, 2, 4, 5, 3), f32(3, 2, 2, 3, 2), "3-d", padding=((1, 0), (1, 1), (0, 1)), strides=(1, 2, 1))
    yield case(f32(0, 3, 5, 5), f32(2, 3, 3, 3), "empty batch")
    yield case(f32(1, 1, 2, 2), f32(1, 1, 1, 1), "windows in the padding", padding=((3, 3), (0, 0)), strides=(2, 1))
    yield case(f32(1, 2, 8, 8), f32(2, 2, 2, 2), "strides past the kernel", strides=(3, 3))
    # One position: nothing is summed over several tiles, which would round every part to half.
    yield case(f16(1, 16, 1, 1), f16(16, 16, 3, 3), "half partials", partials="f16", padding=((1, 1), (1, 1)))


def _samples_conv() -> Iterable[Sample]:
    for x, w, attributes, note in _cases():
        yield Sample((Arg(x), Arg(w)), attributes, note)


def _result(x: TensorType, w: TensorType, attributes: Attributes) -> TensorType:
    return x.with_shape(_check_conv("conv", x.shape, w.shape, attributes))


def _samples_input_grad() -> Iterable[Sample]:
    for x, w, attributes, note in _cases():
        full = _ordered(attributes, "input_shape", x.shape)
        yield Sample((Arg(_result(x, w, attributes)), Arg(w)), full, note)


def _samples_weight_grad() -> Iterable[Sample]:
    for x, w, attributes, note in _cases():
        full = _ordered(attributes, "weight_shape", w.shape)
        yield Sample((Arg(_result(x, w, attributes)), Arg(x)), full, note)


def _ordered(attributes: Attributes, key: str, shape: tuple[int, ...]) -> dict[str, Any]:
    plain = dict(attributes)
    partials = plain.pop("partials")
    return plain | {key: shape, "partials": partials}


_SHARED: dict[str, Any] = {"strides": REQUIRED, "padding": REQUIRED, "dilation": REQUIRED, "groups": 1}

register(
    Primitive(
        "conv",
        _SHARED | {"partials": "f32"},
        _infer_conv,
        _conv,
        _grad_conv,
        _flops,
        _samples_conv,
        traits=frozenset({"root"}),
    )
)
register(
    Primitive(
        "conv_input_grad",
        _SHARED | {"input_shape": REQUIRED, "partials": "f32"},
        _infer_input_grad,
        _conv_input_grad,
        _grad_input_grad,
        _flops,
        _samples_input_grad,
    )
)
register(
    Primitive(
        "conv_weight_grad",
        _SHARED | {"weight_shape": REQUIRED, "partials": "f32"},
        _infer_weight_grad,
        _conv_weight_grad,
        _grad_weight_grad,
        _flops,
        _samples_weight_grad,
    )
)

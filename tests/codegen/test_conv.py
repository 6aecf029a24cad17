"""Convolutions and their gradients against torch in float64, and windows as reductions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from abele.codegen import Expr, Library, Operand, Output, reduce_kernels
from abele.codegen.conv import (
    Convolution,
    channels_first_kernel,
    channels_first_strides,
    conv_kernel,
    input_gradient,
    output_strides,
    place_kernel,
    weight_gradient_kernel,
    weight_pack_kernel,
)
from abele.codegen.space import contiguous

torch = pytest.importorskip("torch")

CASES = {
    "3x3": Convolution(2, (9, 11), 5, 17, (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1))),
    "strided, dilated": Convolution(1, (13, 12), 8, 33, (3, 2), (2, 3), (2, 1), ((2, 2), (1, 1))),
    "1x1": Convolution(3, (7, 7), 20, 64, (1, 1), (1, 1), (1, 1), ((0, 0), (0, 0))),
    "grouped": Convolution(2, (6, 8), 12, 20, (3, 3), (1, 2), (1, 1), ((1, 1), (0, 0)), 4),
    "1d": Convolution(2, (40,), 3, 10, (7,), (2,), (1,), ((3, 3),)),
    "3d": Convolution(1, (5, 6, 7), 4, 6, (2, 3, 3), (1, 1, 2), (1, 1, 1), ((1, 1), (1, 1), (0, 0))),
}


def last(x):
    """Channels last, as float32 NumPy."""
    return np.ascontiguousarray(np.moveaxis(x.detach().numpy(), 1, -1), dtype=np.float32)


def grouped_weights(w, groups: int) -> np.ndarray:
    """``[filters, channels / groups, *kernel]`` as ``[group, *kernel, channel, filter]``."""
    split = w.detach().numpy().reshape(groups, -1, *w.shape[1:])
    return np.ascontiguousarray(np.moveaxis(split, (1, 2), (-1, -2)), dtype=np.float32)


def run(library: Library, c: Convolution, kernel, image: np.ndarray, weights: np.ndarray, rest, spread=()) -> None:
    """Pads, packs and convolves."""
    padded = np.zeros((c.images, *c.padded, c.channels), np.float32)
    place = place_kernel(c, contiguous(image.shape), spread)
    pack = weight_pack_kernel(c, contiguous(weights.shape))
    packed = np.empty(c.weight_floats, np.float32)
    library.call(place, [image, padded.ctypes.data + 4 * c.interior()])
    library.call(pack, [weights, packed])
    library.call(kernel, [padded, packed, *rest])


@pytest.mark.parametrize("name", CASES)
def test_convolution_and_gradients(name: str) -> None:
    c = CASES[name]
    assert all(low == high for low, high in c.padding)
    torch.manual_seed(0)
    x = torch.randn(c.images, c.channels, *c.size, dtype=torch.float64, requires_grad=True)
    w = torch.randn(c.filters, c.channels // c.groups, *c.kernel, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(c.filters, dtype=torch.float64)
    conv = {1: torch.nn.functional.conv1d, 2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}
    padding = [low for low, _ in c.padding]
    y = conv[len(c.size)](x, w, bias, c.stride, padding, c.dilation, c.groups)
    dy = torch.randn_like(y)
    y.backward(dy)

    places = output_strides(c)
    per_filter = (c.filters // c.groups, *(0,) * (len(places) - 2), 1)
    forward = conv_kernel(
        c, [Output(3, "f32", places)], operands=[Operand("f32", per_filter)],
        exprs=[Expr("add", (0, 1), "f32"), Expr("relu", (2,), "f32")],
    )  # fmt: skip
    to_weights = weight_gradient_kernel(c)
    back = input_gradient(c)
    to_input = conv_kernel(back, [Output(0, "f32", output_strides(back))])
    image, weights, upstream = last(x), grouped_weights(w, c.groups), last(dy)
    flipped = np.flip(weights, range(1, weights.ndim - 2)).swapaxes(-1, -2).copy()
    library = Library(
        [
            forward, to_weights, to_input,
            place_kernel(c, contiguous(image.shape)), weight_pack_kernel(c, contiguous(weights.shape)),
            place_kernel(back, contiguous(upstream.shape), c.stride),
            weight_pack_kernel(back, contiguous(flipped.shape)),
        ]
    )  # fmt: skip
    got = np.full(upstream.shape, np.nan, np.float32)
    run(library, c, forward, image, weights, [bias.numpy().astype(np.float32), got])
    assert np.allclose(got, last(y.relu()), rtol=1e-5, atol=1e-5)

    padded = np.zeros((c.images, *c.padded, c.channels), np.float32)
    library.call(place_kernel(c, contiguous(image.shape)), [image, padded.ctypes.data + 4 * c.interior()])
    dw = np.full(weights.shape, np.nan, np.float32)
    library.call(to_weights, [padded, upstream, dw])
    assert np.allclose(dw, grouped_weights(w.grad, c.groups), rtol=1e-5, atol=2e-5)

    assert back.out == c.size
    dx = np.full(image.shape, np.nan, np.float32)
    run(library, back, to_input, upstream, flipped, [dx], c.stride)
    assert np.allclose(dx, last(x.grad), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["3x3", "1x1", "grouped", "3d"])
def test_channels_first(name: str) -> None:
    c = CASES[name]
    c = replace(c, stride=(*c.stride[:-1], 1))
    torch.manual_seed(0)
    x, w = torch.randn(c.images, c.channels, *c.size), torch.randn(c.filters, c.channels // c.groups, *c.kernel)
    bias = torch.randn(c.filters)
    conv = {2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}[len(c.size)]
    padding = [low for low, _ in c.padding]
    want = conv(x.double(), w.double(), bias.double(), c.stride, padding, c.dilation, c.groups)
    places = channels_first_strides(c)
    per_filter = (c.filters // c.groups, *(0,) * (len(places) - 3), 1, 0)
    exprs = [Expr("add", (0, 1), "f32")]
    kernel = channels_first_kernel(c, [Output(2, "f32", places)], operands=[Operand("f32", per_filter)], exprs=exprs)
    padded = np.pad(x.numpy(), ((0, 0), (0, 0), *c.padding))
    got = np.full(want.shape, np.nan, np.float32)
    Library([kernel]).call(kernel, [w.numpy(), padded, bias.numpy(), got])
    assert np.allclose(got, want.numpy(), rtol=1e-5, atol=2e-5)


def test_pooling_and_depthwise_are_reductions_over_windows() -> None:
    n, h, w, c, k, s = 2, 9, 10, 19, 3, 2
    oh, ow = (h - k) // s + 1, (w - k) // s + 1
    windows = Operand("f32", (h * w * c, s * w * c, s * c, 1, w * c, c))
    out = (oh * ow * c, ow * c, c, 1, 0, 0)
    shape = (n, oh, ow, c, k, k)
    pool = reduce_kernels(shape, (4, 5), [windows], [Expr("reduce_max", (0,), "f32")], [Output(1, "f32", out)])
    exprs = [Expr("mul", (0, 1), "f32"), Expr("reduce_sum", (2,), "f32")]
    filters = Operand("f32", (0, 0, 0, 1, k * c, c))
    depthwise = reduce_kernels(shape, (4, 5), [windows, filters], exprs, [Output(3, "f32", out)])
    library = Library([pool, depthwise])
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(n, h, w, c)).astype(np.float32), rng.normal(size=(k, k, c)).astype(np.float32)
    got = [np.empty((n, oh, ow, c), np.float32) for _ in range(2)]
    library.call(pool, [x, got[0]])
    library.call(depthwise, [x, weights, got[1]])
    view = np.lib.stride_tricks.sliding_window_view(x, (k, k), (1, 2))[:, ::s, ::s]
    assert np.array_equal(got[0], view.max((-1, -2)))
    assert np.allclose(got[1], (view * weights.transpose(2, 0, 1)).sum((-1, -2)), rtol=1e-4, atol=1e-5)

"""Convolutions over channels-last images, as products over windows: no copy of the windows is made.

The images carry their padding: a caller keeps a buffer with a border of zeros and lets the producer write into its
middle, by strides, or copies into it (:func:`place_kernel`). Weights are kept as ``[*kernel, c, n]`` per group,
packed by :func:`weight_pack_kernel`. Any number of spatial dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from abele.codegen.contract import contract_kernel, packed_floats
from abele.codegen.expression import Expr, Operand, Output
from abele.codegen.gemm import pack_kernel
from abele.codegen.host import Host
from abele.codegen.indexing import copy_kernel
from abele.codegen.module import Kernel
from abele.codegen.space import contiguous
from abele.errors import Unsupported


@dataclass(frozen=True)
class Convolution:
    """The shape of a convolution.

    Attributes:
        images: how many.
        size: spatial size of the input, without padding.
        channels, filters: of the input and the output, all groups together.
        kernel, stride, dilation: per spatial dimension.
        padding: zeros before and after, per spatial dimension.
        groups: channels and filters are divided into so many independent parts.
    """

    images: int
    size: tuple[int, ...]
    channels: int
    filters: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    groups: int = 1

    @property
    def padded(self) -> tuple[int, ...]:
        """Spatial size of the input with its padding."""
        return tuple(n + low + high for n, (low, high) in zip(self.size, self.padding, strict=True))

    @property
    def out(self) -> tuple[int, ...]:
        """Spatial size of the output."""
        return tuple(
            (n - d * (k - 1) - 1) // s + 1
            for n, k, s, d in zip(self.padded, self.kernel, self.stride, self.dilation, strict=True)
        )

    @property
    def depth(self) -> int:
        """Products per output element."""
        return math.prod(self.kernel) * self.channels // self.groups

    @property
    def weight_floats(self) -> int:
        """Floats of the packed weights."""
        return self.groups * packed_floats(self.depth, self.filters // self.groups)

    def input_strides(self) -> tuple[int, ...]:
        """Strides of the padded input over (image, *spatial, channel)."""
        return contiguous((self.images, *self.padded, self.channels))

    def interior(self) -> int:
        """Elements from the start of the padded input to its first real one."""
        steps = self.input_strides()[1:-1]
        return sum(low * s for (low, _), s in zip(self.padding, steps, strict=True))

    def _windows(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Steps in the padded input of an output position, and of a kernel position."""
        steps = self.input_strides()[1:-1]
        return (
            tuple(s * t for s, t in zip(self.stride, steps, strict=True)),
            tuple(d * t for d, t in zip(self.dilation, steps, strict=True)),
        )


def place_kernel(
    c: Convolution, strides: Sequence[int], spread: Sequence[int] = (), target: Host | None = None
) -> Kernel:
    """Copies an image into the middle of its padded buffer. Pointers: image, buffer + ``4 * c.interior()`` bytes.

    Args:
        strides: of the image over ``(image, *spatial, channel)``, so that any layout may come in.
        spread: distance of neighbours in the buffer, for :func:`input_gradient` of a strided convolution (the
            image is then ``[.., (size - 1) / spread + 1, ..]``); the zeros between stay as the caller left them.
    """
    steps = tuple(spread) or (1,) * len(c.size)
    image, *spatial, channel = c.input_strides()
    size = tuple((n - 1) // s + 1 for n, s in zip(c.size, steps, strict=True))
    into = (image, *(a * s for a, s in zip(spatial, steps)), channel)
    return copy_kernel((c.images, *size, c.channels), "f32", strides, into, target)


def weight_pack_kernel(c: Convolution, strides: Sequence[int], target: Host | None = None) -> Kernel:
    """Packs weights. Pointers: weights, packed weights (``c.weight_floats``).

    The weights are ``[group, *kernel, channel, filter]`` by ``strides``, where ``*kernel, channel`` must walk
    memory evenly (row-major, or filters outermost); copy others with ``copy_kernel`` first.
    """
    return pack_kernel(c.depth, c.filters // c.groups, (strides[0], strides[-2], strides[-1]), (c.groups,), target)


def conv_kernel(
    c: Convolution,
    outputs: Sequence[Output],
    *,
    operands: Sequence[Operand] = (),
    exprs: Sequence[Expr] = (),
    target: Host | None = None,
) -> Kernel:
    """The convolution and what follows it. Pointers: padded input, packed weights, operands, outputs.

    Node 0 is the convolution; operands and outputs have strides over ``(group, image, *spatial, filter of the
    group)``. A row-major channels-last output of ``[images, *out, filters]`` has ``c.output_strides()``.
    """
    per_group = c.channels // c.groups
    along_out, along_kernel = c._windows()
    image = c.input_strides()[0]
    a = (per_group, image, *along_out, *along_kernel, 1)
    return contract_kernel(
        (c.groups,),
        (c.images, *c.out),
        c.filters // c.groups,
        (*c.kernel, per_group),
        a,
        outputs,
        operands=operands,
        exprs=exprs,
        target=target,
    )


def output_strides(c: Convolution) -> tuple[int, ...]:
    """Strides over ``(group, image, *spatial, filter of the group)`` of a row-major channels-last output."""
    return (c.filters // c.groups, *contiguous((c.images, *c.out, c.filters)))


def channels_first_kernel(
    c: Convolution,
    outputs: Sequence[Output],
    *,
    operands: Sequence[Operand] = (),
    exprs: Sequence[Expr] = (),
    target: Host | None = None,
) -> Kernel:
    """The convolution of images that lie channels first, whose last stride is 1. Pointers: weights, padded input
    ``[images, channels, *padded]``, operands, outputs.

    Nothing is packed: the weights ``[filters, channels of the group, *kernel]`` are read in place as the left
    operand, the rows of the image as the right one. Fast where rows are long (28 and more with AVX-512) or the
    kernel is 1; otherwise :func:`conv_kernel` is faster.

    Operands and outputs have strides over ``(group, image, *spatial but the last, filter of the group, last)``.
    """
    if c.stride[-1] != 1:
        raise Unsupported("a channels-first convolution with a stride in its last dimension", remedy="Use conv_kernel.")
    per_group, filters, kernel = c.channels // c.groups, c.filters // c.groups, math.prod(c.kernel)
    image, channel, *steps = contiguous((c.images, c.channels, *c.padded))
    along_out = tuple(s * t for s, t in zip(c.stride, steps, strict=True))
    along_kernel = tuple(d * t for d, t in zip(c.dilation, steps, strict=True))
    rows, last = c.out[:-1], c.out[-1]
    if kernel == 1 and all(n == 1 for n in c.stride) and not any(map(any, c.padding)):
        # Of a 1x1 convolution the whole image is one row.
        rows, last = (1,) * len(rows), math.prod(c.out)
    none = (0,) * len(rows)
    return contract_kernel(
        (c.groups, c.images, *rows),
        (filters,),
        last,
        (per_group, *c.kernel),
        (filters * per_group * kernel, 0, *none, per_group * kernel, kernel, *contiguous(c.kernel)),
        outputs,
        b=(per_group * channel, image, *along_out[:-1], channel, *along_kernel, 1),
        operands=operands,
        exprs=exprs,
        target=target,
    )


def channels_first_strides(c: Convolution) -> tuple[int, ...]:
    """Strides of a row-major ``[images, filters, *out]`` as :func:`channels_first_kernel` wants them."""
    image, channel, *steps = contiguous((c.images, c.filters, *c.out))
    return (c.filters // c.groups * channel, image, *steps[:-1], channel, steps[-1])


def weight_gradient_kernel(c: Convolution, target: Host | None = None) -> Kernel:
    """Gradient by the weights. Pointers: padded input, gradient of the output ``[images, *out, filters]``,
    gradient of the weights ``[group, *kernel, channel, filter]`` row-major."""
    per_group, filters = c.channels // c.groups, c.filters // c.groups
    along_out, along_kernel = c._windows()
    image = c.input_strides()[0]
    group, *dy = output_strides(c)
    weights = contiguous((c.groups, *c.kernel, per_group, filters))
    return contract_kernel(
        (c.groups,),
        (*c.kernel, per_group),
        filters,
        (c.images, *c.out),
        (per_group, *along_kernel, 1, image, *along_out),
        [Output(0, "f32", weights)],
        b=(group, *dy),
        target=target,
    )


def input_gradient(c: Convolution) -> Convolution:
    """The convolution whose result is the gradient by the (unpadded) input.

    Its input is the gradient of the output, spread with ``stride - 1`` zeros between its elements (``size``
    says so); its weights are the original ones with every kernel dimension reversed and channels and filters
    exchanged; its stride is 1.
    """
    spread = tuple((n - 1) * s + 1 for n, s in zip(c.out, c.stride, strict=True))
    padding = []
    for n, wide, k, d, (low, _) in zip(c.size, spread, c.kernel, c.dilation, c.padding, strict=True):
        before = d * (k - 1) - low
        if before < 0 or n + d * (k - 1) < wide + before:
            raise Unsupported("the gradient of a convolution whose padding is wider than its kernel")
        padding.append((before, n + d * (k - 1) - wide - before))
    ones = (1,) * len(c.size)
    return Convolution(c.images, spread, c.filters, c.channels, c.kernel, ones, c.dilation, tuple(padding), c.groups)

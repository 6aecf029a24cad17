"""Convolutions and transposed convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional as F

from abele.importers.torch.emitter import Emitter
from abele.importers.torch.table import function, rule
from abele.importers.torch.tracer import Tracer
from abele.ir import Value


def _spread(values: Sequence[int], rank: int) -> tuple[int, ...]:
    return tuple(values) * rank if len(values) == 1 else tuple(values)


@rule("convolution", "_convolution", "convolution_overrideable")
def convolution(
    e: Emitter,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *_: Any,
) -> Value:
    x = e.operand(x)
    rank = len(weight.shape) - 2
    batched = len(x.shape) == rank + 2
    if not batched:
        x = e.reshape(x, (1, *x.shape))
    attributes = {
        "strides": _spread(stride, rank),
        "padding": tuple((p, p) for p in _spread(padding, rank)),
        "dilation": _spread(dilation, rank),
        "groups": groups,
    }
    weight = e.operand(weight)
    if transposed:
        # The gradient of a convolution by its input. Output padding shows positions that the padding at the high end
        # hides; what lies beyond all padding is zero.
        low, more = _spread(padding, rank), _spread(output_padding, rank)
        beyond = [max(0, m - p) for p, m in zip(low, more, strict=True)]
        attributes["padding"] = tuple((p, max(0, p - m)) for p, m in zip(low, more, strict=True))
        outs = [n - extra for n, extra in zip(e.out.shape[-rank:], beyond, strict=True)]
        shape = (x.shape[0], weight.shape[1] * groups, *outs)
        y = e.emit("conv_input_grad", x, weight, input_shape=shape, **attributes)
        if any(beyond):
            y = e.emit("pad", y, low=(0,) * (rank + 2), high=(0, 0, *beyond), value=0.0)
    else:
        y = e.emit("conv", x, weight, **attributes)
    if bias is not None:
        y = e.binary("add", y, e.broadcast_vector(bias, rank + 2, 1))
    return y if batched else e.reshape(y, e.out.shape)


@function(torch.conv1d, torch.conv2d, torch.conv3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
def conv_of_two_types(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    """Weights are cast to the type of the input, as PopTorch does; everything else goes the ordinary way."""
    given = dict(zip(("input", "weight", "bias"), args)) | kwargs
    kind = given["input"].dtype
    for name in ("weight", "bias"):
        if given.get(name) is not None and given[name].dtype != kind:
            given[name] = given[name].to(kind)
    return func(given.pop("input"), given.pop("weight"), given.pop("bias", None), *args[3:], **given)

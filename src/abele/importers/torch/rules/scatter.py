"""Writing by index: scatters, ``x[i] = v``, and their accumulating forms."""

from __future__ import annotations

import math
from typing import Any

import torch

from abele.errors import DataDependent
from abele.importers.torch import dependent
from abele.importers.torch.emitter import Emitter, Operand, axis_of
from abele.importers.torch.rules.indexing import find_places, from_start, row
from abele.importers.torch.table import function, raw, rule
from abele.importers.torch.tracer import Tracer
from abele.ir import DType, Value

_REDUCTIONS = {"add": "add", "sum": "add", "multiply": "mul", "prod": "mul", "amax": "max", "amin": "min"}


def _scatter(e: Emitter, x: Value, dim: int, index: Value, src: Operand, reduction: str) -> Value:
    base, index = row(e, x), row(e, e.cast(index, DType.I32))
    if isinstance(src, Value):
        updates = e.crop(row(e, e.cast(src, x.dtype)), index.shape)
    else:
        updates = e.number(src, x.dtype, index.shape)
    axis = axis_of(dim, len(base.shape))
    found = e.emit("scatter_elements", base, index, updates, axis=axis, reduction=reduction)
    return e.reshape(found, x.shape)


@rule("scatter")
def scatter(e: Emitter, x: Value, dim: int, index: Value, src: Operand, reduce: str | None = None) -> Value:
    return _scatter(e, x, dim, index, src, _REDUCTIONS[reduce] if reduce else "none")


@rule("scatter.value", "scatter_.value", "scatter.value_reduce", "scatter_.value_reduce")
def scatter_value(e: Emitter, x: Value, dim: int, index: Value, value: float, reduce: str | None = None) -> Value:
    return _scatter(e, x, dim, index, value, _REDUCTIONS[reduce] if reduce else "none")


@rule("scatter_add")
def scatter_add(e: Emitter, x: Value, dim: int, index: Value, src: Value) -> Value:
    return _scatter(e, x, dim, index, src, "add")


@function(torch.bincount, torch.Tensor.bincount)
def bincount(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    """Counts in ``minlength`` bins, which must be given; larger elements, for which torch would add bins, are left out.

    Whether an element is larger is known when the program runs only, when the result has its size already.
    """
    given = dict(zip(("input", "weights", "minlength"), args)) | kwargs
    x, weights, bins = given["input"], given.get("weights"), given.get("minlength", 0)
    if not tracer.involved([t for t in (x, weights) if t is not None]):
        return func(*args, **kwargs)
    if bins == 0:
        raise DataDependent(
            "Bincount `minlength` must be specified and must be a constant. On the IPU MK2 platform the minimum length "
            "is also the maximum length",
            where=tracer.where(),
            remedy="Give the number of bins as minlength: larger elements are left out.",
        )
    if weights is None:
        weights = torch.ones_like(x, dtype=torch.int64)
    elif weights.dtype != torch.float32:
        weights = weights.to(torch.float64)
    counts = torch.zeros(bins + 1, dtype=weights.dtype)  # one more, for all that are too large
    return counts.scatter_add(0, x.clamp(max=bins).to(torch.int64), weights)[:bins]


@rule("scatter_reduce")
def scatter_reduce(
    e: Emitter, x: Value, dim: int, index: Value, src: Value, reduce: str, include_self: bool = True
) -> Value:
    base = x
    if not include_self:
        # What is written to starts from the value that changes nothing.
        limits = (float("-inf"), float("inf")) if x.dtype.is_float else (-(2**31), 2**31 - 1)
        start = {"prod": 1, "amax": limits[0], "amin": limits[1]}.get(reduce, 0)
        base = _scatter(e, x, dim, index, start, "none")
    total = _scatter(e, base, dim, index, src, _REDUCTIONS.get(reduce, "add"))
    if reduce != "mean":
        return total
    ones = e.number(1 if include_self else 0, x.dtype, x.shape)
    counts = _scatter(e, ones, dim, index, 1, "add")
    counts = e.emit("max", counts, e.number(1, x.dtype))
    return e.emit("div" if x.dtype.is_float else "floor_div", total, counts)


@rule("index_add")
def index_add(e: Emitter, x: Value, dim: int, index: Value, source: Value, alpha: float = 1) -> Value:
    source = e.cast(source, x.dtype)
    if alpha != 1:
        source = e.emit("mul", source, e.number(alpha, x.dtype))
    return _along(e, x, dim, index, source, "add")


@rule("index_copy")
def index_copy(e: Emitter, x: Value, dim: int, index: Value, source: Value) -> Value:
    return _along(e, x, dim, index, e.cast(source, x.dtype), "none")


@rule("index_fill")
def index_fill(e: Emitter, x: Value, dim: int, index: Value, value: Operand) -> Value:
    axis = axis_of(dim, len(x.shape))
    shape = (*x.shape[:axis], index.type.size, *x.shape[axis + 1 :]) if x.shape else ()
    return _along(e, x, dim, index, e.expand(e.operand(value, x.dtype), shape), "none")


def _along(e: Emitter, x: Value, dim: int, index: Value, source: Value, reduction: str) -> Value:
    """Write slices of one dimension at the positions of a vector."""
    base, updates = row(e, x), row(e, source)
    axis = axis_of(dim, len(base.shape))
    index = from_start(e, e.reshape(index, (index.type.size,)), base.shape[axis])
    if reduction == "add":
        found = e.emit("scatter_add", base, index, updates, axis=axis)
    else:
        shaped = e.expand(e.broadcast_vector(index, len(base.shape), axis), updates.shape)
        found = e.emit("scatter_elements", base, shaped, updates, axis=axis, reduction=reduction)
    return e.reshape(found, x.shape)


@rule("index_reduce")
def index_reduce(
    e: Emitter, x: Value, dim: int, index: Value, source: Value, reduce: str, include_self: bool = True
) -> Value:
    axis, base, updates = axis_of(dim, len(x.shape)), row(e, x), row(e, source)
    shaped = e.expand(e.broadcast_vector(e.cast(index, DType.I32), len(base.shape), axis), updates.shape)
    return e.reshape(scatter_reduce(e, base, axis, shaped, updates, reduce, include_self), x.shape)


@rule("put")
def put(e: Emitter, x: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    flat, count = e.reshape(x, (x.type.size,)), index.type.size
    updates = e.reshape(e.cast(source, x.dtype), (count,))
    found = _along(e, flat, 0, index, updates, "add" if accumulate else "none")
    return e.reshape(found, x.shape)


@rule("masked_scatter")
def masked_scatter(e: Emitter, x: Value, mask: Value, source: Value) -> Value:
    """The elements under the mask are taken from the source in order: each knows its number from a running count."""
    shape = e.out.shape
    mask = e.reshape(e.expand(mask, shape), (e.out.size,))
    number = e.emit("sub", e.emit("cumsum", e.cast(mask, DType.I32), axis=0), e.number(1, DType.I32))
    number = e.emit("clamp", number, low=0, high=source.type.size - 1)
    taken = e.emit("gather", e.reshape(e.cast(source, x.dtype), (source.type.size,)), number, axis=0)
    return e.reshape(e.emit("select", mask, taken, e.reshape(e.expand(x, shape), (e.out.size,))), shape)


@raw("index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put")
def index_put(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    x, indices, values = args[:3]
    accumulate = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    masks = [i for i in indices if i is not None and i.dtype in (torch.bool, torch.uint8)]
    if any(tracer.places.knows(m) for m in masks):
        value = _put_mask(tracer, x, indices, values, bool(accumulate))
    else:
        value = _put_places(tracer, x, indices, values, bool(accumulate))
    if func.overloadpacket.__name__.endswith("_"):
        tracer.write(x, value)
        return x
    return tracer.new(value, x.dtype)


def _put_mask(
    tracer: Tracer, x: torch.Tensor, indices: list[torch.Tensor | None], values: torch.Tensor, accumulate: bool
) -> Value:
    """``x[mask] = v`` chooses element by element, where ``v`` does not depend on which element it is."""
    e = tracer.e
    lead = 0
    while lead < len(indices) and indices[lead] is None:
        lead += 1
    mask = indices[lead]
    rest = x.shape[lead + mask.dim() :] if mask is not None else ()
    simple = mask is not None and all(i is None for i in indices[lead + 1 :])
    # Elements selected by the mask are one dimension of the values; it must be of size one or absent.
    shape = tuple(values.shape)
    if len(shape) > len(rest) and shape[-len(rest) - 1 :][0] == 1:
        shape = shape[len(shape) - len(rest) :]
    if mask is None or not simple or lead or len(shape) > len(rest):
        dependent.refuse("mask_index", tracer.where())
    old, new = tracer.read(x), e.cast(e.reshape(tracer.read(values), shape), tracer.read(x).dtype)
    if accumulate:
        new = e.emit("add", old, new)
    condition = tracer.read(mask)
    condition = e.cast(condition, DType.BOOL)
    condition = e.reshape(condition, (*condition.shape, *(1,) * len(rest)))
    return e.expand(e.emit("select", condition, new, old), x.shape)


def _put_places(
    tracer: Tracer, x: torch.Tensor, indices: list[torch.Tensor | None], values: torch.Tensor, accumulate: bool
) -> Value:
    e = tracer.e
    places = find_places(tracer, x.shape, indices)
    base = e.transpose(tracer.read(x), places.order)
    rest = base.shape[places.count :]
    rank, front = len(places.index.shape), places.front
    # The values broadcast to the shape of x[indices], in which the index dimensions stand at ``front``.
    shape = (*rest[:front], *places.index.shape, *rest[front:])
    updates = e.expand(e.cast(tracer.read(values), base.dtype), shape)
    updates = e.transpose(updates, [*range(front, front + rank), *range(front), *range(front + rank, rank + len(rest))])
    count, width = places.index.type.size, math.prod(rest)
    updates = e.reshape(updates, (count, width))
    flat = e.reshape(base, (places.size, width))
    at = e.reshape(places.index, (count,))
    if accumulate:
        found = e.emit("scatter_add", flat, at, updates, axis=0)
    else:
        shaped = e.expand(e.reshape(at, (count, 1)), (count, width))
        found = e.emit("scatter_elements", flat, shaped, updates, axis=0, reduction="none")
    inverse = sorted(range(len(places.order)), key=places.order.__getitem__)
    return e.transpose(e.reshape(found, base.shape), inverse)

"""Reading by index: gathers, embeddings, one-hot codes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from abele.errors import DataDependent
from abele.importers.torch import dependent
from abele.importers.torch.emitter import Emitter, axis_of
from abele.importers.torch.table import function, raw, rule
from abele.importers.torch.tracer import Tracer
from abele.ir import DType, Value


@rule("index_select")
def index_select(e: Emitter, x: Value, dim: int, index: Value) -> Value:
    if not x.shape:
        return x
    index = e.reshape(e.cast(index, DType.I32), (index.type.size,))
    return e.emit("gather", x, index, axis=axis_of(dim, len(x.shape)))


@rule("gather")
def gather(e: Emitter, x: Value, dim: int, index: Value, sparse_grad: bool = False) -> Value:
    index = e.cast(index, DType.I32)
    if not index.type.size:
        return e.number(0, x.dtype, index.shape)
    if not x.shape or not index.shape:
        flat = e.emit("gather_elements", row(e, x), row(e, index), axis=0)
        return e.reshape(flat, index.shape)
    return e.emit("gather_elements", x, index, axis=axis_of(dim, len(x.shape)))


def row(e: Emitter, x: Value) -> Value:
    """A number as a vector of one."""
    return x if x.shape else e.reshape(x, (1,))


@rule("take")
def take(e: Emitter, x: Value, index: Value) -> Value:
    size = x.type.size
    return e.emit("gather", e.reshape(x, (size,)), from_start(e, index, size), axis=0)


@rule("embedding")
def embedding(
    e: Emitter, weight: Value, indices: Value, padding_idx: int = -1, scale_grad_by_freq: bool = False, *_: Any
) -> Value:
    """``sparse``, the last argument, says how torch keeps the gradient."""
    padding = None if padding_idx < 0 else padding_idx
    indices = e.cast(indices, DType.I32)
    rows = e.emit("embedding", weight, indices, padding_index=padding)
    if not scale_grad_by_freq:
        return rows
    # The gradient of a row is divided by how often the micro-batch looks it up.
    flat = e.reshape(indices, (indices.type.size,))
    ones = e.number(1, weight.dtype, flat.shape)
    counts = e.emit("scatter_add", e.number(0, weight.dtype, weight.shape[:1]), flat, ones, axis=0)
    shares = e.emit("reciprocal", e.emit("gather", counts, indices, axis=0))
    shares = e.reshape(shares, (*indices.shape, 1))
    return e.emit("straight_through", rows, e.emit("mul", rows, e.expand(shares, rows.shape)))


def from_start(e: Emitter, index: Value, size: int) -> Value:
    """Indices that may count from the end, as positions."""
    index = e.cast(index, DType.I32)
    positive = e.emit("add", index, e.number(size, DType.I32))
    return e.emit("select", e.emit("lt", index, e.number(0, DType.I32)), positive, index)


@function(torch.nn.functional.one_hot)
def one_hot(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    given = dict(zip(("tensor", "num_classes"), args)) | kwargs
    classes = int(given.get("num_classes", -1))
    if classes < 0:
        raise DataDependent(
            "OneHot num classes must be specified and must be constant. one_hot would find it from the values",
            where=tracer.where(),
            remedy="Pass num_classes.",
        )
    e = tracer.e
    with tracer.located():
        index = e.cast(tracer.read(given["tensor"]), DType.I32)
        return tracer.new(e.emit("one_hot", index, classes=classes, dtype="i32"), torch.int64)


# Indexing with tensors: x[i, :, j]


@dataclass(frozen=True)
class Places:
    """Where ``x[i, :, j]`` reads.

    Attributes:
        order: a permutation that brings the indexed dimensions to the front, where they become one.
        count: how many dimensions are indexed.
        size: number of positions in them, taken as one.
        index: positions in it, ``i32`` in the shape of the broadcast indices.
        front: the axis of the result at which the dimensions of the index stand.
    """

    order: tuple[int, ...]
    count: int
    size: int
    index: Value
    front: int


def find_places(tracer: Tracer, shape: Sequence[int], indices: Sequence[torch.Tensor | None]) -> Places:
    """Work out indices of integers (a known mask counts as its positions)."""
    e = tracer.e
    expanded = _without_masks(tracer, indices)
    dims = [d for d, i in enumerate(expanded) if i is not None]
    given = [i for i in expanded if i is not None]
    result = torch.broadcast_shapes(*(i.shape for i in given))
    flat: Value | None = None
    known = np.zeros(result, np.int64)
    for d, index in zip(dims, given, strict=True):
        size = shape[d]
        if flat is not None:
            flat = e.emit("mul", flat, e.number(size, DType.I32))
        known = known * size
        if tracer.places.knows(index):
            value = from_start(e, tracer.read(index), size)
            flat = value if flat is None else e.emit("add", flat, value)
        else:
            # Positions that are known now are added up now.
            array = index.long().numpy()
            known = known + np.where(array < 0, array + size, array)
    at: Value
    if flat is None:
        at = e.constant(np.broadcast_to(known, result).astype(np.int32))
    else:
        at = e.emit("add", flat, e.constant(known.astype(np.int32))) if known.any() else flat
    rest = [d for d in range(len(shape)) if d not in dims]
    together = dims == list(range(dims[0], dims[0] + len(dims)))
    return Places(
        (*dims, *rest),
        len(dims),
        math.prod(shape[d] for d in dims),
        e.expand(at, result),
        dims[0] if together else 0,
    )


def _without_masks(tracer: Tracer, indices: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    found: list[torch.Tensor | None] = []
    for index in indices:
        if index is None or index.dtype not in (torch.bool, torch.uint8):
            found.append(index)
        elif tracer.places.knows(index) or index.device.type == "meta":
            dependent.refuse("mask_index", tracer.where())
        else:
            found.extend(torch.nonzero(index, as_tuple=True))
    return found


@raw("index", "_unsafe_index")
def index(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    x, indices = args
    e = tracer.e
    places = find_places(tracer, x.shape, indices)
    value = e.transpose(tracer.read(x), places.order)
    rest = value.shape[places.count :]
    value = e.reshape(value, (places.size, *rest))
    value = e.emit("gather", value, places.index, axis=0)
    rank, front = len(places.index.shape), places.front
    order = [*range(rank, rank + front), *range(rank), *range(rank + front, rank + len(rest))]
    return tracer.new(e.transpose(value, order), x.dtype)

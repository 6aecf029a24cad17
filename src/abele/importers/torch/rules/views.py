"""Views: how each is read from its operand, and how a write to it goes back into the operand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from abele.importers.torch.emitter import Emitter, axis_of
from abele.importers.torch.storage import positions_view, selection_view
from abele.importers.torch.table import Read, Write, view
from abele.ir import Value

Pair = tuple[Read, Write]


def _reshaped(before: Sequence[int], after: Sequence[int]) -> Pair:
    old, new = tuple(before), tuple(after)
    return (lambda e, x: e.reshape(x, new)), (lambda e, x, v: e.reshape(v, old))


def _permuted(order: Sequence[int]) -> Pair:
    inverse = [0] * len(order)
    for position, axis in enumerate(order):
        inverse[axis] = position
    return (lambda e, x: e.transpose(x, order)), (lambda e, x, v: e.transpose(v, inverse))


def _part(axis: int, start: int, stop: int) -> Pair:
    return (
        lambda e, x: e.slice(x, axis, start, stop),
        lambda e, x, v: e.replace(x, axis, start, stop, v),
    )


def _chained(first: Pair, second: Pair) -> Pair:
    """A view of a view as one."""
    (read1, write1), (read2, write2) = first, second

    def read(e: Emitter, x: Value) -> Value:
        return read2(e, read1(e, x))

    def write(e: Emitter, x: Value, v: Value) -> Value:
        return write1(e, x, write2(e, read1(e, x), v))

    return read, write


def _selected(x: torch.Tensor, picked: torch.Tensor) -> Pair:
    """Any view, given the numbers of the elements that it shows."""
    return selection_view(picked.reshape(-1).numpy().astype(np.int32), tuple(x.shape), tuple(picked.shape))


def _numbers(x: torch.Tensor) -> torch.Tensor:
    """The number of every element of a tensor of this shape, for real."""
    return torch.arange(x.numel()).reshape(x.shape)


@view("alias", "detach", "lift_fresh")
def same(x: torch.Tensor, args: tuple, kwargs: dict) -> list[Pair]:
    return [_reshaped(x.shape, x.shape)]


@view("view", "_unsafe_view", "_reshape_alias", "reshape")
def reshaped(x: torch.Tensor, args: tuple, kwargs: dict) -> list[Pair]:
    shape = list(args[0] if args else kwargs["size"])
    if -1 in shape:
        known = math.prod(n for n in shape if n != -1)
        shape[shape.index(-1)] = x.numel() // known if known else 0
    return [_reshaped(x.shape, shape)]


@view("unsqueeze")
def unsqueeze(x: torch.Tensor, args: tuple, kwargs: dict) -> list[Pair]:
    dim = args[0] if args else kwargs["dim"]
    shape = list(x.shape)
    shape.insert(dim % (len(shape) + 1), 1)
    return [_reshaped(x.shape, shape)]


@view("squeeze")
def squeeze(x: torch.Tensor, args: tuple, kwargs: dict) -> list[Pair]:
    dims = args[0] if args else kwargs.get("dim", range(x.dim()))
    dims = [dims] if isinstance(dims, int) else dims
    gone = {axis_of(d, x.dim()) for d in dims}
    return [_reshaped(x.shape, [n for i, n in enumerate(x.shape) if n != 1 or i not in gone])]


@view("transpose", "swapaxes", "swapdims")
def transpose(x: torch.Tensor, args: tuple, kwargs: dict) -> list[Pair]:
    a, b = (axis_of(d, x.dim()) for d in (*args, *kwargs.values()))
    order = list(range(x.dim()))
    if order:
        order[a], order[b] = order[b], order[a]
    return [_permuted(order)]


@view("t", "numpy_T")
def t(x: torch.Tensor, args: tuple, kwargs: dict) -> list[Pair]:
    return [_permuted(range(x.dim())[::-1])]


@view("mT", "mH", "adjoint")
def matrix_transpose(x: torch.Tensor, args: tuple, kwargs: dict) -> list[Pair]:
    """Of the last two dimensions alone."""
    return transpose(x, (-2, -1), {})


@view("permute")
def permute(x: torch.Tensor, args: tuple, kwargs: dict) -> list[Pair]:
    return [_permuted([axis_of(d, x.dim()) for d in (args[0] if args else kwargs["dims"])])]


@view("select")
def select(x: torch.Tensor, args: tuple, kwargs: dict) -> list[Pair]:
    dim, index = (*args, *kwargs.values())
    axis = axis_of(dim, x.dim())
    at = index % x.shape[axis]
    part = list(x.shape)
    part[axis] = 1
    return [_chained(_part(axis, at, at + 1), _reshaped(part, part[:axis] + part[axis + 1 :]))]


@view("slice")
def slice_(x: torch.Tensor, args: tuple, kwargs: dict) -> list[Pair]:
    given = dict(zip(("dim", "start", "end", "step"), args)) | kwargs
    axis = axis_of(given.get("dim", 0), x.dim())
    step = given.get("step", 1)
    start, stop, _ = slice(given.get("start"), given.get("end")).indices(x.shape[axis])
    if step == 1 and stop >= start:
        return [_part(axis, start, stop)]
    index = [slice(None)] * x.dim()
    index[axis] = slice(start, stop, step)
    count = len(range(start, stop, step))
    picked = _numbers(x)[tuple(index)]
    _, write = _selected(x, picked)
    # The stop that the operation is given lies just behind the last element.
    end = start + (count - 1) * step + 1 if count else start
    return [((lambda e, v: e.slice(v, axis, start, end, step)), write)]


@view("narrow")
def narrow(x: torch.Tensor, args: tuple, kwargs: dict) -> list[Pair]:
    dim, start, length = (*args, *kwargs.values())
    axis = axis_of(dim, x.dim())
    return [_part(axis, start % max(1, x.shape[axis]), start % max(1, x.shape[axis]) + length)]


@view("unbind")
def unbind(x: torch.Tensor, args: tuple, kwargs: dict) -> list[Pair]:
    dim = args[0] if args else kwargs.get("dim", 0)
    return [select(x, (dim, i), {})[0] for i in range(x.shape[dim])]


@view("split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes", "chunk", "unsafe_chunk")
def split(x: torch.Tensor, args: tuple, kwargs: dict) -> list[Pair]:
    sizes, dim, *_ = (*args, *kwargs.values(), 0)
    axis = axis_of(dim, x.dim())
    length = x.shape[axis]
    if isinstance(sizes, int):
        sizes = [min(sizes, length - at) for at in range(0, length, sizes)] if length else [0]
    ends = np.cumsum(sizes)
    return [_part(axis, int(end) - size, int(end)) for size, end in zip(sizes, ends, strict=True)]


@view("expand", "expand_as")
def expand(x: torch.Tensor, args: tuple, kwargs: dict) -> list[Pair]:
    given = args[0] if args else kwargs["size"]
    sizes = list(given.shape if isinstance(given, torch.Tensor) else given)
    added = len(sizes) - x.dim()
    shape = [x.shape[i - added] if n == -1 else n for i, n in enumerate(sizes)]

    def write(e: Emitter, old: Value, new: Value) -> Value:
        # All copies of an element are one: torch refuses to write them except where they were written alike.
        first = e.crop(new, [1] * added + list(old.shape))
        return e.reshape(first, old.shape)

    return [((lambda e, v: e.expand(v, shape)), write)]


@view("diagonal")
def diagonal(x: torch.Tensor, args: tuple, kwargs: dict) -> list[Pair]:
    return [_selected(x, _numbers(x).diagonal(*args, **kwargs))]


@view("unfold")
def unfold(x: torch.Tensor, args: tuple, kwargs: dict) -> list[Pair]:
    return [_selected(x, _numbers(x).unfold(*args, **kwargs))]


@view("as_strided")
def as_strided(x: torch.Tensor, args: tuple, kwargs: dict) -> list[Pair]:
    """Positions in the storage; those that the operand itself does not show cannot be read through it."""
    given = dict(zip(("size", "stride", "storage_offset"), args)) | kwargs
    start = int(x.storage_offset())
    offset = given.get("storage_offset")
    place = (0, start, tuple(x.shape), x.stride(), x.dtype)
    wanted = (0, start if offset is None else int(offset), tuple(given["size"]), tuple(given["stride"]), x.dtype)
    return [positions_view(place, wanted)]

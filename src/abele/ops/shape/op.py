"""Primitives that move elements and compute nothing. They take every dtype; none counts flops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from abele.errors import InvalidOperand
from abele.ir.builder import Builder
from abele.ir.graph import Operation, Value
from abele.ir.operation import REQUIRED, Arg, Gradient, Primitive, Sample, register
from abele.ir.types import DType, TensorType, boolean, f16, f32, i32
from abele.ops.rules import (
    Attributes,
    need_axis,
    need_operands,
    need_same_dtype,
    no_flops,
    unbroadcast,
)

Numbers = tuple[int, ...]


def numbers(
    name: str, attributes: Attributes, key: str, length: int | None = None, least: int | None = None
) -> Numbers:
    """An attribute that is a list of integers, one for each of ``length`` dimensions, none below ``least``."""
    value = attributes[key]
    if not isinstance(value, tuple) or not all(isinstance(v, int) and not isinstance(v, bool) for v in value):
        raise InvalidOperand(f"{name} has {key} {value!r}; it must be a list of integers")
    if length is not None and len(value) != length:
        raise InvalidOperand(f"{name} has {key} {list(value)} for {length} dimensions")
    if least is not None and any(v < least for v in value):
        raise InvalidOperand(f"{name} has {key} {list(value)}; none may be below {least}")
    return value


def _register(
    name: str,
    attributes: dict[str, Any],
    infer: Callable[[Sequence[TensorType], Attributes], TensorType],
    reference: Callable[[Sequence[np.ndarray], Attributes], np.ndarray],
    gradient: Callable[[Builder, Operation, Value], Sequence[Value | None]],
    samples: Callable[[], Iterable[Sample]],
    traits: frozenset[str] = frozenset(),
) -> None:
    def slot(b: Builder, op: Operation, given: Sequence[Value | None]) -> Sequence[Value | None]:
        (dy,) = given
        assert dy is not None
        return gradient(b, op, dy)

    filled: Gradient = slot
    register(
        Primitive(
            name,
            attributes,
            lambda operands, a: (infer(operands, a),),
            lambda operands, a, results: (reference(operands, a),),
            filled,
            no_flops,
            samples,
            traits=traits,
        )
    )


def _dtypes(*shapes: tuple[int, ...]) -> list[tuple[Arg, ...]]:
    """Operands of one sample in float, half, an integer and bool."""
    return [
        tuple(Arg(f32(*s)) for s in shapes),
        tuple(Arg(f16(*s)) for s in shapes),
        tuple(Arg(i32(*s), "integers", -99, 99) for s in shapes),
        tuple(Arg(boolean(*s), "boolean") for s in shapes),
    ]


# reshape


def _reshape_type(operands: Sequence[TensorType], attributes: Attributes) -> TensorType:
    need_operands("reshape", operands, 1)
    shape = numbers("reshape", attributes, "shape", least=0)
    made = operands[0].with_shape(shape)
    if made.size != operands[0].size:
        raise InvalidOperand(f"reshape of {operands[0]} to {list(shape)}: {operands[0].size} elements, not {made.size}")
    return made


def _reshape_samples() -> Iterable[Sample]:
    for operands in _dtypes((4, 6)):
        yield Sample(operands, {"shape": (3, 8)})
    yield Sample((Arg(f32(1, 1)),), {"shape": ()})
    yield Sample((Arg(f32(0, 3)),), {"shape": (2, 0)})


_register(
    "reshape",
    {"shape": REQUIRED},
    _reshape_type,
    lambda operands, a: operands[0].reshape(a["shape"]),
    lambda b, op, dy: (b.reshape(dy, shape=op.operands[0].shape),),
    _reshape_samples,
    traits=frozenset({"uniform", "view"}),
)


# transpose


def _transpose_type(operands: Sequence[TensorType], attributes: Attributes) -> TensorType:
    need_operands("transpose", operands, 1)
    order = numbers("transpose", attributes, "permutation", operands[0].rank)
    if sorted(order) != list(range(operands[0].rank)):
        raise InvalidOperand(f"transpose of {operands[0]} has permutation {list(order)}")
    return operands[0].with_shape(tuple(operands[0].shape[d] for d in order))


def _transpose_samples() -> Iterable[Sample]:
    for operands in _dtypes((5, 3, 8)):
        yield Sample(operands, {"permutation": (2, 0, 1)})
    yield Sample((Arg(f32(7, 9)),), {"permutation": (1, 0)})
    yield Sample((Arg(f32(2, 3, 4, 5)),), {"permutation": (0, 2, 1, 3)})
    yield Sample((Arg(f32()),), {"permutation": ()})
    yield Sample((Arg(f32(3, 0)),), {"permutation": (1, 0)})


def inverse(permutation: Sequence[int]) -> Numbers:
    """The permutation that undoes this one."""
    return tuple(int(d) for d in np.argsort(permutation)) if len(permutation) else ()


_register(
    "transpose",
    {"permutation": REQUIRED},
    _transpose_type,
    lambda operands, a: np.transpose(operands[0], a["permutation"]),
    lambda b, op, dy: (b.transpose(dy, permutation=inverse(op.attributes["permutation"])),),
    _transpose_samples,
    traits=frozenset({"any_strides", "uniform"}),
)


# expand


def _expand_type(operands: Sequence[TensorType], attributes: Attributes) -> TensorType:
    need_operands("expand", operands, 1)
    shape, (x,) = numbers("expand", attributes, "shape", least=0), operands
    kept = shape[len(shape) - x.rank :] if x.rank else ()
    if x.rank > len(shape) or any(n not in (1, want) for n, want in zip(x.shape, kept, strict=True)):
        raise InvalidOperand(f"expand of {x} to {list(shape)}: sizes other than 1 must stay as they are")
    return x.with_shape(shape)


def _expand_samples() -> Iterable[Sample]:
    for operands in _dtypes((3, 1)):
        yield Sample(operands, {"shape": (2, 3, 5)})
    yield Sample((Arg(f32(1, 40)),), {"shape": (6, 40)})
    yield Sample((Arg(f32()),), {"shape": (4, 9)})
    yield Sample((Arg(f32(1, 3)),), {"shape": (0, 3)})
    yield Sample((Arg(f32(2, 2)),), {"shape": (2, 2)})


_register(
    "expand",
    {"shape": REQUIRED},
    _expand_type,
    lambda operands, a: np.broadcast_to(operands[0], a["shape"]),
    lambda b, op, dy: (unbroadcast(b, dy, op.operands[0].shape),),
    _expand_samples,
    traits=frozenset({"any_strides", "uniform"}),
)


# slice


def _slice_type(operands: Sequence[TensorType], attributes: Attributes) -> TensorType:
    need_operands("slice", operands, 1)
    (x,) = operands
    starts, stops = (numbers("slice", attributes, key, x.rank, 0) for key in ("starts", "stops"))
    steps = numbers("slice", attributes, "steps", x.rank, 1)
    for d, (a, b, n) in enumerate(zip(starts, stops, x.shape, strict=True)):
        if not a <= b <= n:
            raise InvalidOperand(f"slice of {x} takes {a}:{b} of dimension {d}", remedy="0 <= start <= stop <= size.")
    return x.with_shape(tuple(len(range(*r)) for r in zip(starts, stops, steps, strict=True)))


def _slice(operands: Sequence[np.ndarray], a: Attributes) -> np.ndarray:
    return operands[0][tuple(slice(*r) for r in zip(a["starts"], a["stops"], a["steps"], strict=True))]


def _slice_gradient(b: Builder, op: Operation, dy: Value) -> Sequence[Value | None]:
    """Zeros with the gradient at the places that were taken: spread apart where there are steps, then padded."""
    (x,) = op.operands
    starts, steps = (op.attributes[key] for key in ("starts", "steps"))
    assert isinstance(starts, tuple) and isinstance(steps, tuple)
    for d, step in enumerate(steps):
        size = dy.shape[d]
        if step == 1 or size <= 1:
            continue
        # [.., n, ..] -> [.., n, 1, ..] -> pad -> [.., n, step, ..] -> [.., n * step, ..], less the last step - 1
        before, after = dy.shape[:d], dy.shape[d + 1 :]
        apart = b.reshape(dy, shape=(*before, size, 1, *after))
        none = (0,) * len(before) + (0,)
        behind = (0,) * len(after)
        apart = b.pad(apart, low=(*none, 0, *behind), high=(*none, step - 1, *behind), value=0.0)
        apart = b.reshape(apart, shape=(*before, size * step, *after))
        stops = [*before, (size - 1) * step + 1, *after]
        dy = b.slice(apart, starts=(0,) * len(stops), stops=tuple(stops), steps=(1,) * len(stops))
    high = tuple(n - a - m for n, a, m in zip(x.shape, starts, dy.shape, strict=True))
    return (b.pad(dy, low=starts, high=high, value=0.0),)


def _slice_samples() -> Iterable[Sample]:
    for operands in _dtypes((7, 10)):
        yield Sample(operands, {"starts": (1, 2), "stops": (6, 10), "steps": (1, 1)})
    yield Sample((Arg(f32(9, 4, 11)),), {"starts": (2, 0, 1), "stops": (9, 4, 10), "steps": (3, 1, 2)})
    yield Sample((Arg(f32(5, 3)),), {"starts": (2, 0), "stops": (2, 3), "steps": (1, 1)})
    yield Sample((Arg(f32()),), {"starts": (), "stops": (), "steps": ()})


_register(
    "slice",
    {"starts": REQUIRED, "stops": REQUIRED, "steps": REQUIRED},
    _slice_type,
    _slice,
    _slice_gradient,
    _slice_samples,
    traits=frozenset({"any_strides", "uniform"}),
)


# pad


def _pad_type(operands: Sequence[TensorType], attributes: Attributes) -> TensorType:
    need_operands("pad", operands, 1)
    (x,) = operands
    low, high = (numbers("pad", attributes, key, x.rank, 0) for key in ("low", "high"))
    return x.with_shape(tuple(a + n + b for a, n, b in zip(low, x.shape, high, strict=True)))


def _pad(operands: Sequence[np.ndarray], a: Attributes) -> np.ndarray:
    (x,) = operands
    low, high = a["low"], a["high"]
    assert isinstance(low, tuple) and isinstance(high, tuple)
    done = np.full([p + n + q for p, n, q in zip(low, x.shape, high, strict=True)], a["value"], x.dtype)
    done[tuple(slice(p, p + n) for p, n in zip(low, x.shape, strict=True))] = x
    return done


def _pad_gradient(b: Builder, op: Operation, dy: Value) -> Sequence[Value | None]:
    low, shape = op.attributes["low"], op.operands[0].shape
    assert isinstance(low, tuple)
    stops = tuple(p + n for p, n in zip(low, shape, strict=True))
    return (b.slice(dy, starts=low, stops=stops, steps=(1,) * len(shape)),)


def _pad_samples() -> Iterable[Sample]:
    for operands in _dtypes((5, 6)):
        yield Sample(operands, {"low": (1, 0), "high": (2, 3), "value": 0})
    yield Sample((Arg(f32(2, 3, 4)),), {"low": (0, 9, 1), "high": (0, 0, 9), "value": -1.5})
    yield Sample((Arg(f32(0, 3)),), {"low": (2, 0), "high": (1, 0), "value": 2.0})
    yield Sample((Arg(f32()),), {"low": (), "high": (), "value": 0.0})


_register(
    "pad",
    {"low": REQUIRED, "high": REQUIRED, "value": 0.0},
    _pad_type,
    _pad,
    _pad_gradient,
    _pad_samples,
    traits=frozenset({"any_strides"}),
)


# concat


def _concat_type(operands: Sequence[TensorType], attributes: Attributes) -> TensorType:
    if not operands:
        raise InvalidOperand("concat needs an operand")
    need_same_dtype("concat", operands)
    first = operands[0]
    axis = need_axis("concat", attributes["axis"], first.rank)
    for i, t in enumerate(operands):
        if t.rank != first.rank or any(d != axis and n != m for d, (n, m) in enumerate(zip(t.shape, first.shape))):
            raise InvalidOperand(f"Operand {i} of concat is {t}, operand 0 is {first}: they differ beside axis {axis}")
    total = sum(t.shape[axis] for t in operands)
    return first.with_shape((*first.shape[:axis], total, *first.shape[axis + 1 :]))


def pieces_of(shapes: Sequence[tuple[int, ...]], axis: int) -> list[int]:
    """Where each operand of a concat starts in the result."""
    starts, at = [], 0
    for shape in shapes:
        starts.append(at)
        at += shape[axis]
    return starts


def _concat_gradient(b: Builder, op: Operation, dy: Value) -> Sequence[Value | None]:
    axis = int(op.attributes["axis"])
    shapes = [v.shape for v in op.operands]
    done = []
    for shape, start in zip(shapes, pieces_of(shapes, axis), strict=True):
        starts, stops = [0] * len(shape), list(shape)
        starts[axis], stops[axis] = start, start + shape[axis]
        done.append(b.slice(dy, starts=tuple(starts), stops=tuple(stops), steps=(1,) * len(shape)))
    return done


def _concat_samples() -> Iterable[Sample]:
    for operands in _dtypes((3, 4), (3, 1), (3, 6)):
        yield Sample(operands, {"axis": 1})
    yield Sample((Arg(f32(2, 5)), Arg(f32(7, 5))), {"axis": 0})
    yield Sample((Arg(f32(2, 0, 3)), Arg(f32(2, 4, 3))), {"axis": 1})
    yield Sample((Arg(f32(9)),), {"axis": 0})


_register(
    "concat",
    {"axis": REQUIRED},
    _concat_type,
    lambda operands, a: np.concatenate(operands, axis=a["axis"]),
    _concat_gradient,
    _concat_samples,
    traits=frozenset({"any_strides"}),
)


# flip


def _flip_type(operands: Sequence[TensorType], attributes: Attributes) -> TensorType:
    need_operands("flip", operands, 1)
    for axis in numbers("flip", attributes, "axes"):
        need_axis("flip", axis, operands[0].rank)
    return operands[0]


def _flip_samples() -> Iterable[Sample]:
    for operands in _dtypes((5, 6)):
        yield Sample(operands, {"axes": (1,)})
    yield Sample((Arg(f32(2, 3, 40)),), {"axes": (0, 2)})
    yield Sample((Arg(f32(0, 3)),), {"axes": (0,)})
    yield Sample((Arg(f32(3)),), {"axes": ()})


_register(
    "flip",
    {"axes": REQUIRED},
    _flip_type,
    lambda operands, a: np.flip(operands[0], a["axes"]),
    lambda b, op, dy: (b.flip(dy, axes=op.attributes["axes"]),),
    _flip_samples,
    traits=frozenset({"any_strides", "uniform"}),
)


# dynamic slices


def _need_starts(name: str, starts: TensorType, rank: int) -> None:
    if starts.shape != (rank,) or starts.dtype is not DType.I32:
        raise InvalidOperand(f"The starts of {name} are {starts}; they must be i32[{rank}]")


def clamped(starts: np.ndarray, sizes: Sequence[int], shape: Sequence[int]) -> list[int]:
    """Starts moved so that the slice lies inside the tensor."""
    return [int(min(max(0, s), n - m)) for s, m, n in zip(starts, sizes, shape, strict=True)]


def _dynamic_slice_type(operands: Sequence[TensorType], attributes: Attributes) -> TensorType:
    need_operands("dynamic_slice", operands, 2)
    x, starts = operands
    _need_starts("dynamic_slice", starts, x.rank)
    sizes = numbers("dynamic_slice", attributes, "sizes", x.rank, 0)
    if any(m > n for m, n in zip(sizes, x.shape, strict=True)):
        raise InvalidOperand(f"dynamic_slice takes {list(sizes)} of {x}")
    return x.with_shape(sizes)


def _dynamic_slice(operands: Sequence[np.ndarray], a: Attributes) -> np.ndarray:
    x, starts = operands
    sizes = a["sizes"]
    assert isinstance(sizes, tuple)
    at = clamped(starts, sizes, x.shape)
    return x[tuple(slice(s, s + m) for s, m in zip(at, sizes, strict=True))]


def _dynamic_slice_gradient(b: Builder, op: Operation, dy: Value) -> Sequence[Value | None]:
    x, starts = op.operands
    return b.dynamic_update(b.constant(0.0, dy.dtype, x.shape), dy, starts), None


def _starts(rank: int, most: int = 4) -> Arg:
    return Arg(i32(rank), "integers", 0, most)


def _dynamic_slice_samples() -> Iterable[Sample]:
    for operands in _dtypes((7, 9)):
        yield Sample((*operands, _starts(2)), {"sizes": (3, 5)})
    yield Sample((Arg(f32(2, 5, 40)), _starts(3, 9)), {"sizes": (2, 1, 40)})
    yield Sample((Arg(f32(4, 3)), _starts(2)), {"sizes": (0, 3)})


_register(
    "dynamic_slice",
    {"sizes": REQUIRED},
    _dynamic_slice_type,
    _dynamic_slice,
    _dynamic_slice_gradient,
    _dynamic_slice_samples,
)


def _dynamic_update_type(operands: Sequence[TensorType], attributes: Attributes) -> TensorType:
    need_operands("dynamic_update", operands, 3)
    x, update, starts = operands
    need_same_dtype("dynamic_update", operands[:2])
    _need_starts("dynamic_update", starts, x.rank)
    if update.rank != x.rank or any(m > n for m, n in zip(update.shape, x.shape, strict=True)):
        raise InvalidOperand(f"dynamic_update puts {update} into {x}")
    return x


def _dynamic_update(operands: Sequence[np.ndarray], a: Attributes) -> np.ndarray:
    x, update, starts = operands
    done = np.array(x)
    at = clamped(starts, update.shape, x.shape)
    done[tuple(slice(s, s + m) for s, m in zip(at, update.shape, strict=True))] = update
    return done


def _dynamic_update_gradient(b: Builder, op: Operation, dy: Value) -> Sequence[Value | None]:
    _, update, starts = op.operands
    none = b.constant(0.0, dy.dtype, update.shape)
    return b.dynamic_update(dy, none, starts), b.dynamic_slice(dy, starts, sizes=update.shape), None


def _dynamic_update_samples() -> Iterable[Sample]:
    for operands in _dtypes((7, 9), (3, 9)):
        yield Sample((*operands, _starts(2)), {})
    yield Sample((Arg(f32(2, 5, 20)), Arg(f32(1, 2, 3)), _starts(3, 9)), {})
    yield Sample((Arg(f32(4, 3)), Arg(f32(0, 3)), _starts(2)), {})


_register(
    "dynamic_update",
    {},
    _dynamic_update_type,
    _dynamic_update,
    _dynamic_update_gradient,
    _dynamic_update_samples,
)

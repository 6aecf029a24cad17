"""Matrix products: the primitive ``matmul`` and the composite ``linear``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from abele.errors import InvalidOperand
from abele.ir import Arg, Builder, Composite, Operation, Primitive, Sample, TensorType, Value, register
from abele.ir.operation import Attributes
from abele.ir.types import f16, f32
from abele.ops.rules import float8_product, product_type

PARTIALS = ("f32", "f16")


def check_float(operation: str, operands: Sequence[TensorType]) -> None:
    """Raise ``InvalidOperand`` unless all operands have one floating-point type."""
    for position, type_ in enumerate(operands):
        if not type_.dtype.is_float:
            raise InvalidOperand(
                f"Operand {position} of {operation} is {type_}, which is not floating point",
                remedy="Cast it to f32 or f16 first.",
            )
        if type_.dtype != operands[0].dtype:
            raise InvalidOperand(
                f"Operands 0 and {position} of {operation} are {operands[0]} and {type_}",
                remedy="Cast them to one type.",
            )


def check_partials(operation: str, attributes: Attributes) -> None:
    """Raise ``InvalidOperand`` unless ``partials`` names a type in which products may be summed."""
    if attributes["partials"] not in PARTIALS:
        raise InvalidOperand(
            f"{operation} cannot sum products in {attributes['partials']!r}", remedy="Known: 'f32', 'f16'."
        )


def check_count(operation: str, operands: Sequence[TensorType], *counts: int) -> None:
    """Raise ``InvalidOperand`` unless there are as many operands as the operation takes."""
    if len(operands) not in counts:
        raise InvalidOperand(f"{operation} takes {' or '.join(map(str, counts))} operands, not {len(operands)}")


def product_sizes(operands: Sequence[TensorType], attributes: Attributes) -> tuple[tuple[int, ...], int, int, int]:
    """Batch shape, M, N and K of ``matmul`` on operands of these types; raises ``InvalidOperand``."""
    check_count("matmul", operands, 2)
    if not float8_product("matmul", operands, attributes):
        check_float("matmul", operands)
        check_partials("matmul", attributes)
    a, b = operands
    for position, type_ in enumerate(operands):
        if type_.rank < 2:
            raise InvalidOperand(
                f"Operand {position} of matmul is {type_}; it needs at least 2 dimensions",
                remedy="Reshape a vector to a matrix of one row or column.",
            )
    m, ka = a.shape[-2:][:: -1 if attributes["transpose_a"] else 1]
    kb, n = b.shape[-2:][:: -1 if attributes["transpose_b"] else 1]
    if ka != kb:
        raise InvalidOperand(
            f"matmul of {a} with {b} sums over {ka} elements of operand 0 and {kb} of operand 1; they must be equal"
        )
    try:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise InvalidOperand(f"Batch dimensions of operands 0 and 1 of matmul, {a} and {b}, do not broadcast") from None
    return tuple(batch), m, n, ka


def _infer(operands: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    batch, m, n, _ = product_sizes(operands, attributes)
    return (TensorType((*batch, m, n), product_type(operands[0])),)


def matmul_reference(
    operands: Sequence[np.ndarray], attributes: Attributes, results: Sequence[TensorType] = ()
) -> tuple[np.ndarray, ...]:
    """``matmul`` in NumPy, with batch dimensions broadcast."""
    a, b = operands
    a = np.swapaxes(a, -1, -2) if attributes["transpose_a"] else a
    b = np.swapaxes(b, -1, -2) if attributes["transpose_b"] else b
    return (np.matmul(a, b),)


def _flops(operands: Sequence[TensorType], results: Sequence[TensorType], attributes: Attributes) -> int:
    k = operands[0].shape[-2 if attributes["transpose_a"] else -1]
    return 2 * results[0].size * k


def sum_to_shape(b: Builder, x: Value, shape: tuple[int, ...]) -> Value:
    """Undo a NumPy broadcast: sum ``x`` over the dimensions along which ``shape`` was repeated."""
    if x.shape == shape:
        return x
    padded = (1,) * (len(x.shape) - len(shape)) + shape
    axes = tuple(i for i, (big, small) in enumerate(zip(x.shape, padded, strict=True)) if big != small)
    summed = b.reduce_sum(x, axes=axes, keep=True) if axes else x
    return summed if summed.shape == shape else b.reshape(summed, shape=shape)


def _gradient(b: Builder, op: Operation, outer: Sequence[Value | None]) -> Sequence[Value | None]:
    (dy,) = outer
    x, w = op.operands
    if dy is None:
        return (None, None)
    ta, tb = bool(op.attributes["transpose_a"]), bool(op.attributes["transpose_b"])
    partials = op.attributes["partials"]
    if ta:
        dx = b.matmul(w, dy, transpose_a=tb, transpose_b=True, partials=partials)
    else:
        dx = b.matmul(dy, w, transpose_a=False, transpose_b=not tb, partials=partials)
    dx = sum_to_shape(b, dx, x.shape)
    if math.prod(w.shape[:-2]) == 1 and not ta and len(x.shape) > 2:
        # One matrix for the whole batch: its gradient is one product over all rows of the batch.
        rows = math.prod(x.shape[:-1])
        x = b.reshape(x, shape=(rows, x.shape[-1]))
        dy = b.reshape(dy, shape=(rows, dy.shape[-1]))
        left, right = (dy, x) if tb else (x, dy)
        dw = b.matmul(left, right, transpose_a=True, transpose_b=False, partials=partials)
        return (dx, dw if dw.shape == w.shape else b.reshape(dw, shape=w.shape))
    if tb:
        dw = b.matmul(dy, x, transpose_a=True, transpose_b=ta, partials=partials)
    else:
        dw = b.matmul(x, dy, transpose_a=not ta, transpose_b=False, partials=partials)
    return (dx, sum_to_shape(b, dw, w.shape))


def _sample(a: TensorType, b: TensorType, note: str = "", **attributes) -> Sample:
    full = {"transpose_a": False, "transpose_b": False, "partials": "f32"} | attributes
    return Sample((Arg(a), Arg(b)), full, note)


def _samples() -> Iterable[Sample]:
    yield _sample(f32(3, 5), f32(5, 7), "odd sizes")
    yield _sample(f16(9, 33), f16(33, 17), "odd sizes, half")
    yield _sample(f32(1, 40), f32(40, 3), "one row")
    yield _sample(f32(6, 1), f32(1, 9), "outer product")
    yield _sample(f32(7, 5), f32(7, 3), "left transposed", transpose_a=True)
    yield _sample(f16(5, 24), f16(6, 24), "right transposed, half", transpose_b=True)
    yield _sample(f32(7, 5), f32(3, 7), "both transposed", transpose_a=True, transpose_b=True)
    yield _sample(f32(2, 3, 4, 5), f32(2, 3, 5, 6), "batches")
    yield _sample(f32(2, 1, 4, 5), f32(3, 5, 6), "batches broadcast")
    yield _sample(f32(2, 3, 8), f32(8, 5), "one matrix for the batch")
    yield _sample(f32(4, 8), f32(3, 8, 5), "one matrix on the left")
    yield _sample(f16(16, 32), f16(32, 16), "half partials", partials="f16")
    yield _sample(f32(0, 4), f32(4, 3), "no rows")
    yield _sample(f32(4, 0), f32(0, 3), "nothing to sum")


register(
    Primitive(
        "matmul",
        {"transpose_a": False, "transpose_b": False, "partials": "f32"},
        _infer,
        matmul_reference,
        _gradient,
        _flops,
        _samples,
        traits=frozenset({"root"}),
    )
)


def _expand_linear(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    check_count("linear", [v.type for v in operands], 2, 3)
    x, w, *bias = operands
    if w.type.rank != 2 or x.type.rank < 1 or x.shape[-1] != w.shape[1]:
        raise InvalidOperand(
            f"linear of {x.type} with weights {w.type}",
            remedy="The last dimension of operand 0 must be the second of operand 1, which has two.",
        )
    if bias and bias[0].shape != (w.shape[0],):
        raise InvalidOperand(f"The bias of linear is {bias[0].type}, not [{w.shape[0]}]")
    rows = x if x.type.rank == 2 else b.reshape(x, shape=(math.prod(x.shape[:-1]), x.shape[-1]))
    y = b.matmul(rows, w, transpose_a=False, transpose_b=True, partials=attributes["partials"])
    if bias:
        y = b.add(y, bias[0])
    return (y if x.type.rank == 2 else b.reshape(y, shape=(*x.shape[:-1], w.shape[0])),)


def _linear_samples() -> Iterable[Sample]:
    for types in (
        (f32(4, 6), f32(5, 6), f32(5)),
        (f32(2, 3, 6), f32(5, 6)),
        (f16(3, 20), f16(9, 20), f16(9)),
        (f32(6), f32(5, 6), f32(5)),
        (f32(0, 6), f32(5, 6), f32(5)),
    ):
        yield Sample(tuple(Arg(t) for t in types), {"partials": "f32"})


register(Composite("linear", {"partials": "f32"}, _expand_linear, _linear_samples))

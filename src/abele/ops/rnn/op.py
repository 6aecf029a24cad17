"""LSTM and GRU layers over a whole sequence, and their gradients.

Gate order as in torch: ``i f g o`` for LSTM, ``r z n`` for GRU (with the recurrent bias of ``n`` inside the product
with ``r``). Time steps, gates and cells are computed in float; the output of each step is rounded to the operands' type
before it is fed back, since that is what is stored. ``reserve`` keeps what the gradient needs, in float:
LSTM ``[T, B, 5 H]`` = ``i f g o c`` and GRU ``[T, B, 4 H]`` = ``r z n s`` with ``s = W_hn h + b_hn``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from abele.errors import InvalidOperand
from abele.ir import (
    Arg,
    Builder,
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
from abele.ops.rnn.cells import GATES, gru, gru_grad, lstm, lstm_grad

RESERVED = {"lstm": 5, "gru": 4}
"""How many times H the reserve holds for each step and batch row."""


def _expect(name: str, names: Sequence[str], operands: Sequence[TensorType], wanted: Sequence[TensorType]) -> None:
    for position, (label, have, want) in enumerate(zip(names, operands, wanted, strict=True)):
        if have != want:
            raise InvalidOperand(f"{name}: operand {position} ({label}) must be {want}, it is {have}")


def _sizes(name: str, names: Sequence[str], operands: Sequence[TensorType], x: int, h0: int) -> tuple[int, ...]:
    """T, B, I, H of a layer from its operands ``x`` and ``h0``."""
    if len(operands) != len(names):
        raise InvalidOperand(f"{name} takes {len(names)} operands ({', '.join(names)}), not {len(operands)}")
    if operands[x].rank != 3 or not operands[x].dtype.is_float:
        raise InvalidOperand(f"{name}: operand {x} (x) must be float [T, B, I], it is {operands[x]}")
    if operands[h0].rank != 2:
        raise InvalidOperand(f"{name}: operand {h0} (h0) must be [B, H], it is {operands[h0]}")
    if not operands[x].shape[0]:
        raise InvalidOperand(f"{name}: operand {x} (x) has no time steps")
    return (*operands[x].shape, operands[h0].shape[1])


FORWARD = {
    "lstm": ("x", "h0", "c0", "w_ih", "w_hh", "b"),
    "gru": ("x", "h0", "w_ih", "w_hh", "b_ih", "b_hh"),
}
BACKWARD = {
    "lstm": ("dy", "dhT", "dcT", "x", "h0", "c0", "w_ih", "w_hh", "y", "reserve"),
    "gru": ("dy", "dhT", "x", "h0", "w_ih", "w_hh", "y", "reserve"),
}


def _shapes(cell: str, dtype: DType, t: int, b: int, i: int, h: int) -> dict[str, TensorType]:
    """The type of every operand and result of a layer, by name."""
    g = GATES[cell] * h
    shapes = {"x": (t, b, i), "y": (t, b, h), "w_ih": (g, i), "w_hh": (g, h)}
    shapes |= dict.fromkeys(("h0", "c0", "hT", "cT"), (b, h)) | dict.fromkeys(("b", "b_ih", "b_hh"), (g,))
    types = {name: TensorType(shape, dtype) for name, shape in shapes.items()}
    types |= {f"d{name}": type_ for name, type_ in types.items()}
    return types | {"reserve": TensorType((t, b, RESERVED[cell] * h), DType.F32)}


RESULTS = {"lstm": ("y", "hT", "cT", "reserve"), "gru": ("y", "hT", "reserve")}
GRADIENTS = {cell: tuple(f"d{name}" for name in names) for cell, names in FORWARD.items()}


def _infer(cell: str, grad: bool):
    name = f"{cell}_grad" if grad else cell
    operands_of, results_of = (BACKWARD, GRADIENTS) if grad else (FORWARD, RESULTS)

    def infer(operands: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        names = operands_of[cell]
        t, b, i, h = _sizes(name, names, operands, names.index("x"), names.index("h0"))
        types = _shapes(cell, operands[names.index("x")].dtype, t, b, i, h)
        _expect(name, names, operands, [types[n] for n in names])
        return [types[n] for n in results_of[cell]]

    return infer


def _zeros(b: Builder, type_: TensorType) -> Value:
    return b.constant(0.0, type_.dtype, type_.shape)


def _gradient(cell: str):
    def gradient(b: Builder, op: Operation, d: Sequence[Value | None]) -> list[Value | None]:
        carried = d[:-1]  # the reserve feeds the gradient alone
        if all(x is None for x in carried):
            return [None] * len(op.operands)
        values = dict(zip(FORWARD[cell], op.operands, strict=True)) | dict(zip(RESULTS[cell], op.results, strict=True))
        for name, x, result in zip(RESULTS[cell], carried, op.results, strict=False):
            values[f"d{name}"] = _zeros(b, result.type) if x is None else x
        return list(b.emit(f"{cell}_grad", [values[n] for n in BACKWARD[cell]]))

    return gradient


def _flops(cell: str, passes: int):
    """Multiply-adds of the gates' products (twice more in the gradient) and about 4 flops an element and gate."""

    def flops(operands: Sequence[TensorType], results: Sequence[TensorType], attributes: Attributes) -> int:
        names = BACKWARD[cell] if passes > 1 else FORWARD[cell]
        t, b, i = operands[names.index("x")].shape
        h = operands[names.index("h0")].shape[1]
        gates = GATES[cell] * h
        return t * b * gates * (2 * (i + h) * passes + 4 * passes)

    return flops


def _samples(cell: str, grad: bool):
    def samples() -> Iterable[Sample]:
        for dtype, t, b, i, h in (
            (DType.F32, 3, 3, 4, 6),
            (DType.F32, 1, 1, 1, 1),
            (DType.F16, 1, 2, 5, 8),
            (DType.F32, 2, 7, 3, 2),
            (DType.F32, 2, 0, 3, 2),
        ):
            types = _shapes(cell, dtype, t, b, i, h)
            names = BACKWARD[cell] if grad else FORWARD[cell]
            # The reserve holds gates: numbers in (0, 1).
            args = (Arg(types[n], "uniform", 0.1, 0.9) if n == "reserve" else Arg(types[n]) for n in names)
            yield Sample(tuple(args), {})

    return samples


def _run(function):
    def reference(operands: Sequence[np.ndarray], attributes: Attributes, results: Sequence[TensorType]):
        return function(*operands, dtype=results[0].dtype.numpy)

    return reference


_SECOND = NotDifferentiable("second derivatives of recurrent layers are not provided")

for _cell, _forward, _backward in (("lstm", lstm, lstm_grad), ("gru", gru, gru_grad)):
    register(
        Primitive(
            _cell,
            {},
            _infer(_cell, False),
            _run(_forward),
            _gradient(_cell),
            _flops(_cell, 1),
            _samples(_cell, False),
        )
    )
    register(
        Primitive(
            f"{_cell}_grad",
            {},
            _infer(_cell, True),
            _run(_backward),
            _SECOND,
            _flops(_cell, 2),
            _samples(_cell, True),
        )
    )

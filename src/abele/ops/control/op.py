"""What moves data off the tiles or marks a place: host streams and calls, streaming memory, checkpoints, prints.

The references here are those of one replica alone; ``host_load`` and ``host_store`` are run by whoever has a host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from abele.errors import Bug, InvalidOperand, Unsupported
from abele.ir.builder import Builder
from abele.ir.graph import Operation, Value
from abele.ir.operation import REQUIRED, Arg, Composite, NotDifferentiable, Primitive, Sample, register
from abele.ir.types import DType, TensorType, f16, f32, i32
from abele.ops.rules import (
    Attributes,
    dtype_attribute,
    need_operands,
    no_flops,
)


def _same(name: str):
    def infer(operands: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        need_operands(name, operands, 1)
        return (operands[0],)

    return infer


def _identity(operands: Sequence[np.ndarray], attributes: Attributes, results: Sequence[TensorType]):
    return (operands[0],)


def _pass_on(b: Builder, op: Operation, given: Sequence[Value | None]) -> Sequence[Value | None]:
    return (given[0],)


def _samples(attributes: Attributes):
    def samples() -> Iterable[Sample]:
        for type_ in (f32(3, 5), f32(), f16(67), f32(0, 2)):
            yield Sample((Arg(type_),), attributes)

    return samples


register(
    Primitive(
        "checkpoint",
        {},
        _same("checkpoint"),
        _identity,
        _pass_on,
        no_flops,
        _samples({}),
        traits=frozenset({"view", "uniform"}),
    )
)
register(
    Primitive(
        "transfer",
        {},
        _same("transfer"),
        _identity,
        _pass_on,
        no_flops,
        _samples({}),
        traits=frozenset({"transfer"}),
    )
)
for _name in ("remote_load", "remote_store"):
    # What lies in streaming memory, brought to the tiles; and what is sent back there. An overlapped one runs beside
    # what comes after it, until its result is read.
    register(
        Primitive(
            _name,
            {"overlap": False},
            _same(_name),
            _identity,
            _pass_on,
            no_flops,
            _samples({"overlap": False}),
            traits=frozenset({"remote"}),
        )
    )
register(
    Primitive(
        "print_tensor",
        {"title": ""},
        _same("print_tensor"),
        _identity,
        _pass_on,
        no_flops,
        _samples({"title": "x"}),
        effect=True,
    )
)


def _stop(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    need_operands("stop_gradient", [v.type for v in operands], 1)
    return operands


register(Composite("stop_gradient", {}, _stop, _samples({}), NotDifferentiable("the program detached its operand")))


def _straight_through(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    need_operands("straight_through", [v.type for v in operands], 2)
    if operands[0].type != operands[1].type:
        raise InvalidOperand(f"straight_through has operands {operands[0].type} and {operands[1].type}")
    return operands[:1]


def _to_source(b: Builder, op: Operation, given: Sequence[Value | None]) -> Sequence[Value | None]:
    return (None, given[0])


# The first operand, whose gradient goes to the second as it is: what was written over a tensor behind autograd's back.
register(
    Composite(
        "straight_through",
        {},
        _straight_through,
        lambda: [Sample((Arg(t), Arg(t)), {}) for t in (f32(3, 5), f32(), f16(67), f32(0, 2))],
        _to_source,
    )
)


# Streams


def _no_host(name: str):
    def reference(operands: Sequence[np.ndarray], attributes: Attributes, results: Sequence[TensorType]):
        raise Bug(f"{name} of the stream {attributes['stream']!r} has no meaning without a host")

    return reference


def _infer_load(operands: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    need_operands("host_load", operands, 0)
    return (TensorType(tuple(attributes["shape"]), dtype_attribute("host_load", attributes)),)


def _infer_store(operands: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    need_operands("host_store", operands, 1)
    return ()


register(
    Primitive(
        "host_load",
        {"stream": REQUIRED, "shape": REQUIRED, "dtype": REQUIRED, "overlap": False},
        _infer_load,
        _no_host("host_load"),
        NotDifferentiable("it has no operands"),
        no_flops,
        lambda: [
            Sample((), {"stream": "x", "shape": shape, "dtype": dtype, "overlap": False})
            for shape, dtype in (((4, 9), "f32"), ((), "i32"), ((0, 2), "f16"))
        ],
        effect=True,
        traits=frozenset({"host"}),
    )
)
register(
    Primitive(
        "host_store",
        {"stream": REQUIRED, "overlap": False},
        _infer_store,
        _no_host("host_store"),
        NotDifferentiable("it has no results"),
        no_flops,
        lambda: [Sample((Arg(t),), {"stream": "y", "overlap": False}) for t in (f32(4, 9), f16(3), i32())],
        effect=True,
        traits=frozenset({"host"}),
    )
)


# Functions of the host

HOST_FUNCTIONS: dict[str, Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]] = {
    "abele.same": lambda arrays: arrays
}
"""What ``host_call`` runs, by name: a function of arrays, which arrive in float64 where the operands are floats."""


def _host_results(attributes: Attributes) -> list[TensorType]:
    return [TensorType(tuple(s), DType(d)) for s, d in zip(attributes["shapes"], attributes["dtypes"], strict=True)]


def _host_call(operands: Sequence[np.ndarray], attributes: Attributes, results: Sequence[TensorType]):
    name = str(attributes["function"])
    if name not in HOST_FUNCTIONS:
        raise Unsupported(
            f"The program calls the function {name!r} of the host, which is not in this process",
            remedy="Capture the model here again: a function of Python is not stored with a compiled program.",
        )
    return HOST_FUNCTIONS[name](operands)


register(
    Primitive(
        "host_call",
        {"function": REQUIRED, "shapes": REQUIRED, "dtypes": REQUIRED},
        lambda operands, attributes: _host_results(attributes),
        _host_call,
        NotDifferentiable("nothing is known of the host's function"),
        no_flops,
        lambda: [
            Sample((Arg(t),), {"function": "abele.same", "shapes": (t.shape,), "dtypes": (str(t.dtype),)})
            for t in (f32(3, 5), f16(7), i32(), f32(0, 2))
        ],
        effect=True,
        traits=frozenset({"host"}),
    )
)

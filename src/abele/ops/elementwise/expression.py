"""The body of a ``map``: a chain of elementwise functions, its types and its value in NumPy.

A body is a tuple of nodes ``(fn, dtype, args, params)``: the name of an elementwise primitive (or ``constant``, with
its value as the only parameter), the dtype of the result, the nodes that it reads (0, 1 … an earlier node; -1, -2 …
operand 0, 1 …), and the values of the primitive's attributes in declared order. The last node is the result. Every node
is rounded to its dtype, as the same operations one by one would be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from abele.errors import InvalidOperand
from abele.ir.graph import Operation, Value
from abele.ir.operation import NotDifferentiable, Primitive, flops, has, infer_types, lookup
from abele.ir.types import DType, TensorType
from abele.ops.rules import Attributes

Body = Sequence[Any]
FUSED_LATE = NotDifferentiable("the compiler makes it after differentiation")
"""Why neither a map nor what holds one has a gradient."""


def body_of(attributes: Attributes) -> Body:
    """The attribute ``body``; raises ``InvalidOperand`` when it is not a list of nodes."""
    body = attributes["body"]
    if not isinstance(body, tuple) or not all(isinstance(node, tuple) and len(node) == 4 for node in body):
        raise InvalidOperand("The body of a map must be a list of nodes (fn, dtype, args, params)")
    return body


def node_attributes(fn: str, params: Sequence[Any]) -> dict[str, Any]:
    """The attributes of one node, by name."""
    return dict(zip(lookup(fn).attributes, params, strict=True))


def body_types(body: Body, operands: Sequence[TensorType]) -> list[TensorType]:
    """The type of every node; raises ``InvalidOperand`` where a node does not have the dtype that it says."""
    if not body:
        raise InvalidOperand("The body of a map has no nodes")
    types: list[TensorType] = []
    for number, (fn, dtype, args, params) in enumerate(body):
        for arg in args:
            if not -len(operands) <= arg < number:
                raise InvalidOperand(
                    f"Node {number} of a map reads {arg}, which is neither an earlier node nor an operand"
                )
        if fn == "constant":
            found = TensorType((), DType(dtype))
        elif not has(fn, "elementwise"):
            raise InvalidOperand(f"Node {number} of a map is {fn!r}, which is not an elementwise primitive")
        else:
            read = [types[a] if a >= 0 else operands[-1 - a] for a in args]
            (found,) = infer_types(fn, read, node_attributes(fn, params))
        if found.dtype != DType(dtype):
            raise InvalidOperand(f"Node {number} of a map, {fn}, is said to be {dtype} and is {found.dtype}")
        types.append(found)
    return types


def flops_of(name: str, operands: Sequence[TensorType], results: Sequence[TensorType], attributes: Attributes) -> int:
    """Floating-point operations of one operation on operands of these types."""
    return flops(Operation(name, tuple(map(Value, operands)), tuple(map(Value, results)), attributes))


def map_flops(body: Body, operands: Sequence[TensorType]) -> int:
    """Operations of all nodes, each on its own shape."""
    types, total = body_types(body, operands), 0
    for (fn, _, args, params), made in zip(body, types, strict=True):
        if fn != "constant":
            read = [types[a] if a >= 0 else operands[-1 - a] for a in args]
            total += flops_of(fn, read, [made], node_attributes(fn, params))
    return total


def rounded(array: Any, dtype: DType) -> np.ndarray:
    """``array`` on the grid of ``dtype``; floats come back as float64."""
    done = np.asarray(array).astype(dtype.numpy)
    return done.astype(np.float64) if dtype.is_float else done


def evaluate_body(body: Body, operands: Sequence[np.ndarray]) -> np.ndarray:
    """The value of the last node on operands that broadcast, floats as float64."""
    values: list[np.ndarray] = []
    for fn, dtype, args, params in body:
        kind = DType(dtype)
        if fn == "constant":
            values.append(rounded(params[0], kind))
            continue
        read = [values[a] if a >= 0 else operands[-1 - a] for a in args]
        primitive = lookup(fn)
        assert isinstance(primitive, Primitive)
        result = TensorType(np.broadcast_shapes(*(v.shape for v in read)), kind)
        values.append(rounded(primitive.reference(read, node_attributes(fn, params), [result])[0], kind))
    return values[-1]


def operand_dtype(body: Body, operand: int) -> DType | None:
    """The dtype of an operand as the body uses it; ``None`` when no node says.

    Arithmetic has operands of its own dtype, comparisons of their other operand's; a cast between floats is taken
    to change the type.
    """
    mine = -1 - operand
    for fn, dtype, args, _ in body:
        if mine not in args:
            continue
        if fn == "cast":
            return {"f32": DType.F16, "f16": DType.F32, "f143": DType.F16, "f152": DType.F16}.get(dtype)
        if fn == "select":
            if mine in args[1:]:
                return DType(dtype)
        elif DType(dtype) is not DType.BOOL:
            return DType(dtype)
        for other in args:
            if other >= 0:
                return DType(body[other][1])
    return None

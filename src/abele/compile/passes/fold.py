"""Constant folding: what is known when the program is compiled is not computed by the machine.

A tensor filled with one number is known. Elementwise operations on such tensors give such a tensor; so do changes of
shape. Operations that change nothing (a cast to the same type, a product with one) vanish.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from abele.ir.graph import Graph, Operation, Value
from abele.ir.interpret import evaluate_operation
from abele.ir.operation import has, lookup
from abele.ir.rules import CONTROL
from abele.ir.types import TensorType


@dataclass(frozen=True)
class Fold:
    """Evaluate what is uniform and known, and drop what changes nothing."""

    name: str = "fold"

    def run(self, graph: Graph) -> Graph:
        functions = {name: self.folded(f) for name, f in graph.functions.items()}
        return self.folded(graph).replace(functions=functions)

    def folded(self, graph: Graph) -> Graph:
        known: dict[Value, float | int | bool] = {}
        mapping: dict[Value, Value] = {}
        kept = []
        for op in graph.operations:
            operands = tuple(mapping.get(v, v) for v in op.operands)
            current = op if operands == op.operands else replace(op, operands=operands)
            same = None if op.name in CONTROL else _unchanged(current, known)
            if same is not None:
                mapping[op.result] = same
                continue
            value = None if op.name in CONTROL or len(op.results) != 1 else self.value(current, known)
            if value is not None:
                known[op.result] = value
                if op.name != "fill":
                    attributes = {"value": value, "dtype": str(op.result.dtype), "shape": op.result.shape}
                    current = replace(current, name="fill", operands=(), attributes=attributes)
            kept.append(current)
        outputs = tuple(mapping.get(v, v) for v in graph.outputs)
        return graph.replace(operations=tuple(kept), outputs=outputs)

    def value(self, op: Operation, known: dict[Value, float | int | bool]) -> float | int | bool | None:
        """The number with which the result is filled, if it is known."""
        if op.name == "fill":
            return op.attributes["value"]
        if not op.operands or any(v not in known for v in op.operands) or lookup(op.name).effect:
            return None
        if has(op, "uniform"):
            return known[op.operands[0]]
        if not has(op, "elementwise"):
            return None
        scalars = [np.array(known[v]).astype(v.dtype.numpy) for v in op.operands]
        (result,) = evaluate_operation(op.name, scalars, op.attributes, [TensorType((), op.result.dtype)])
        return result.item()


def _unchanged(op: Operation, known: dict[Value, float | int | bool]) -> Value | None:
    """The operand that the result equals, when the operation changes nothing."""
    if not op.operands or len(op.results) != 1:
        return None
    first, result = op.operands[0], op.result
    if op.name in ("cast", "expand", "reshape") and first.type == result.type:
        return first
    if op.name == "transpose" and op.attributes["permutation"] == tuple(range(len(first.shape))):
        return first
    if op.name in ("mul", "div"):
        second = op.operands[1]
        if known.get(second) == 1 and first.type == result.type:
            return first
        if op.name == "mul" and known.get(first) == 1 and second.type == result.type:
            return second
    return None

"""8-bit floats: products of weights in inference take their operands in 8 bits.

Before: ``conv`` and ``matmul`` of half activations with half weights. After: both operands are cast to an 8-bit float,
products are summed in half and leave half, as before. The first and the last product of the program stay in half: as
published conversions of ResNet-50 for the C600 left them (its first convolution and its last matrix product). Casts of
weights depend on weights alone, so that ``Hoist`` moves them out of the step.

A product counts when its weights are made of states alone. Convolutions in groups stay as they are, and so does what
stands in functions.
"""

from __future__ import annotations

from dataclasses import dataclass

from abele.ir.builder import Builder
from abele.ir.graph import Graph, Operation, Value
from abele.ir.operation import has
from abele.ir.types import DType

PRODUCTS = ("conv", "linear", "matmul")


@dataclass(frozen=True)
class Float8:
    """Take the operands of half products in ``dtype`` (``f143`` or ``f152``)."""

    dtype: str
    name: str = "float8"

    def run(self, graph: Graph) -> Graph:
        found = _products(graph)
        wanted = {op for op in found[1:-1] if op.operands[0].dtype is DType.F16 and op.attributes.get("groups", 1) == 1}
        if not wanted:
            return graph
        builder = Builder(graph.name, graph.functions)
        builder.inputs, builder.input_ports = list(graph.inputs), list(graph.input_ports)
        for op in graph.operations:
            if op in wanted:
                with builder.at(op.origin):
                    x, w = (builder.cast_to(v, DType(self.dtype)) for v in op.operands[:2])
                attributes = {**op.attributes, "partials": "f16"}
                builder.operations.append(
                    Operation(op.name, (x, w, *op.operands[2:]), op.results, attributes, op.origin)
                )
            else:
                builder.operations.append(op)
        return builder.finish(graph.outputs, graph.output_ports)


def _products(graph: Graph) -> list[Operation]:
    """The products of weights in program order."""
    changed = graph.outputs_of("state")
    fixed: set[Value] = {v for name, v in graph.inputs_of("state").items() if name not in changed}
    found = []
    for op in graph.operations:
        if has(op, "constant") or (op.operands and fixed.issuperset(op.operands)):
            fixed.update(op.results)
        elif op.name in PRODUCTS and op.operands[1] in fixed:
            found.append(op)
    return found

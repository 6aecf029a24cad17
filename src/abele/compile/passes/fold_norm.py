"""Batch norm of known statistics goes into the convolution before it.

Before: ``conv(x, w)`` and ``batch_norm_inference`` of its result. After: a convolution with scaled weights, and the
shift that is left. The scaled weights depend on state alone, so the engine makes them once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from abele.ir.builder import Builder
from abele.ir.graph import Graph, Operation, Value
from abele.ir.types import DType


@dataclass(frozen=True)
class FoldNorm:
    """Fold ``batch_norm_inference`` where a convolution makes its operand for it alone."""

    name: str = "fold-norm"

    def run(self, graph: Graph) -> Graph:
        made, users, outputs = graph.producers(), graph.users(), set(graph.outputs)
        norms: dict[Operation, Operation] = {}
        for op in graph.operations:
            if op.name == "batch_norm_inference":
                conv = made.get(op.operands[0])
                if (
                    conv is not None
                    and conv.name == "conv"
                    and users[conv.result] == [op]
                    and conv.result not in outputs
                ):
                    norms[op] = conv
        if not norms:
            return graph
        convs = set(norms.values())
        builder = Builder(graph.name, graph.functions)
        builder.inputs, builder.input_ports = list(graph.inputs), list(graph.input_ports)
        for op in graph.operations:
            if op in norms:
                _fold(builder, norms[op], op)
            elif op not in convs:
                builder.operations.append(op)
        return builder.finish(graph.outputs, graph.output_ports)


def _fold(b: Builder, conv: Operation, norm: Operation) -> None:
    """Emit the folded pair; the last operation makes the norm's own result."""
    x, w = conv.operands
    scale, shift, mean, variance = (_as(b, v, DType.F32) for v in norm.operands[1:])
    channels, rank = w.shape[0], len(w.shape)
    with b.at(norm.origin):
        epsilon = b.constant(norm.attributes["eps"], DType.F32)  # type: ignore[arg-type]
        scale = b.mul(scale, b.rsqrt(b.add(variance, epsilon)))
        shift = b.sub(shift, b.mul(mean, scale))
        wide = b.mul(_as(b, w, DType.F32), b.reshape(scale, shape=(channels,) + (1,) * (rank - 1)))
    with b.at(conv.origin):
        (y,) = b.emit("conv", (x, _as(b, wide, w.dtype)), conv.attributes)
    with b.at(norm.origin):
        b.add(y, b.reshape(_as(b, shift, y.dtype), shape=(channels,) + (1,) * (rank - 2)))
    b.operations[-1] = replace(b.operations[-1], results=norm.results)


def _as(b: Builder, value: Value, dtype: DType) -> Value:
    return value if value.dtype == dtype else b.cast(value, dtype=str(dtype))

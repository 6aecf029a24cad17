"""Streams: what the host sends and receives for every micro-batch becomes operations of the program.

Before: ``data`` inputs, ``anchor`` and ``loss`` outputs. After: ``host_load`` operations at the front, in the order of
the inputs, and ``host_store`` operations at the end; only ``state`` and ``hyper`` ports are left (and gradients).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from abele.ir.builder import Builder
from abele.ir.graph import Graph


@dataclass(frozen=True)
class Streams:
    """Turn data inputs, anchors and losses into streams. An anchor and a loss of the same value store it twice.

    Attributes:
        overlap: they run on tiles of their own, beside the compute of the micro-batch before or behind.
    """

    overlap: bool = False
    name: str = "streams"

    def run(self, graph: Graph) -> Graph:
        builder = Builder(graph.name, graph.functions)
        loads = {}
        for value, port in zip(graph.inputs, graph.input_ports, strict=True):
            if port.kind == "data":
                loads[value] = builder.host_load(
                    stream=port.name, shape=value.shape, dtype=str(value.dtype), overlap=self.overlap
                )
            else:
                builder.inputs.append(value)
                builder.input_ports.append(port)
        operations = list(builder.operations)
        for op in graph.operations:
            operands = tuple(loads.get(v, v) for v in op.operands)
            operations.append(op if operands == op.operands else replace(op, operands=operands))
        builder.operations = operations
        outputs, ports = [], []
        for value, port in zip(graph.outputs, graph.output_ports, strict=True):
            current = loads.get(value, value)
            if port.kind in ("anchor", "loss"):
                builder.emit("host_store", (current,), {"stream": port.name, "overlap": self.overlap})
            else:
                outputs.append(current)
                ports.append(port)
        return builder.finish(outputs, ports)

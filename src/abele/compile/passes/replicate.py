"""Replication: gradients are reduced over the replicas before they are used."""

from __future__ import annotations

from dataclasses import dataclass, replace

from abele.ir.builder import Builder
from abele.ir.graph import Graph


@dataclass(frozen=True)
class Replicate:
    """Insert an all-reduce on every gradient output.

    Attributes:
        replicas: with 1 the graph is left as it is.
        mean: take the mean over the replicas rather than the sum.
    """

    replicas: int
    mean: bool = True
    name: str = "replicate"

    def run(self, graph: Graph) -> Graph:
        if self.replicas == 1 or "gradient" not in {p.kind for p in graph.output_ports}:
            return graph
        builder = Builder(graph.name, graph.functions)
        builder.inputs, builder.input_ports = list(graph.inputs), list(graph.input_ports)
        builder.operations = list(graph.operations)
        made = graph.producers()
        outputs = []
        for value, port in zip(graph.outputs, graph.output_ports, strict=True):
            current = value
            if port.kind == "gradient":
                origin = replace(made[value].origin if value in made else builder.origin, phase="update")
                with builder.at(origin):
                    current = builder.all_reduce(value, reduction="mean" if self.mean else "sum")
            outputs.append(current)
        return builder.finish(outputs, graph.output_ports)

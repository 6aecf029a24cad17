"""Replication: gradients are reduced over the replicas before they are used, or each replica gets its part of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from abele.compile.passes.sharding import Sharding
from abele.ir.builder import Builder
from abele.ir.graph import Graph


@dataclass(frozen=True)
class Replicate:
    """Insert an all-reduce on every gradient output, or a reduce-scatter where the state of its weight is sharded.

    Statistics become means over the replicas.

    Attributes:
        replicas: with 1 the graph is left as it is.
        mean: take the mean over the replicas rather than the sum.
        first: divide before summing rather than after, so that sums in half do not overflow.
        sharding: the weights of which each replica updates a part.
    """

    replicas: int
    mean: bool = True
    sharding: Sharding = field(default_factory=Sharding)
    first: bool = False
    name: str = "replicate"

    def run(self, graph: Graph) -> Graph:
        if self.replicas == 1 or "gradient" not in {p.kind for p in graph.output_ports}:
            return graph
        builder = Builder(graph.name, graph.functions)
        builder.inputs, builder.input_ports = list(graph.inputs), list(graph.input_ports)
        builder.operations = list(graph.operations)
        made, reduction = graph.producers(), "mean" if self.mean and not self.first else "sum"
        outputs = list(graph.outputs)
        gradients = [i for i, port in enumerate(graph.output_ports) if port.kind == "gradient"]
        # Equal collectives stand in a row: they are done as one, over all IPUs at once.
        for i in sorted(gradients, key=lambda i: self.sharding.takes(outputs[i].type)):
            value = outputs[i]
            origin = replace(made[value].origin if value in made else builder.origin, phase="update")
            with builder.at(origin):
                if self.mean and self.first:
                    value = builder.mul(value, builder.constant(1.0 / self.replicas, value.dtype))
                if self.sharding.takes(outputs[i].type):
                    outputs[i] = builder.reduce_scatter(value, reduction=reduction, **self.sharding.groups())
                else:
                    outputs[i] = builder.all_reduce(value, reduction=reduction)
        for i, port in enumerate(graph.output_ports):
            if port.kind == "statistic":
                with builder.at(replace(builder.origin, phase="update")):
                    outputs[i] = builder.all_reduce(outputs[i], reduction="mean")
        return builder.finish(outputs, graph.output_ports)

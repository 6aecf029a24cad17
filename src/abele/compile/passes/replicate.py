"""Replication: gradients are reduced over the replicas before they are used, or each replica gets its part of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from abele.compile.passes.sharding import Sharding
from abele.ir.builder import Builder
from abele.ir.graph import Graph, Origin


@dataclass(frozen=True)
class Replicate:
    """Insert an all-reduce on every gradient output, or a reduce-scatter where the state of its weight is sharded, with
    an all-reduce of the parts where that is not over all replicas.

    Statistics become means over the replicas.

    Attributes:
        replicas: with 1 the graph is left as it is.
        mean: take the mean over the replicas rather than the sum.
        first: divide before summing rather than after, so that sums in half do not overflow.
        sharding: the weights of which each replica updates a part.
        groups: weights that only some replicas share: name, how many, how far apart. Theirs are summed over those, and
            a mean divides by the number of all replicas, over which the loss is one.
    """

    replicas: int
    mean: bool = True
    sharding: Sharding = field(default_factory=Sharding)
    first: bool = False
    groups: tuple[tuple[str, int, int], ...] = ()
    name: str = "replicate"

    def run(self, graph: Graph) -> Graph:
        if self.replicas == 1 or "gradient" not in {p.kind for p in graph.output_ports}:
            return graph
        builder = Builder(graph.name, graph.functions)
        builder.inputs, builder.input_ports = list(graph.inputs), list(graph.input_ports)
        builder.operations = list(graph.operations)
        made, reduction = graph.producers(), "mean" if self.mean and not self.first else "sum"
        outputs = list(graph.outputs)
        grouped = {name: (size, stride) for name, size, stride in self.groups}
        gradients = [i for i, port in enumerate(graph.output_ports) if port.kind == "gradient"]
        spread: dict[int, Origin] = {}
        # Equal collectives stand in a row: they are done as one, over all IPUs at once.
        for i in sorted(gradients, key=lambda i: self.sharding.takes(outputs[i].type)):
            value = outputs[i]
            origin = replace(made[value].origin if value in made else builder.origin, phase="update")
            with builder.at(origin):
                size, stride = grouped.get(graph.output_ports[i].name, (self.replicas, 1))
                if self.mean and (self.first or size != self.replicas):
                    value = builder.mul(value, builder.constant(1.0 / self.replicas, value.dtype))
                if size == 1:
                    outputs[i] = value
                elif size != self.replicas:
                    outputs[i] = builder.all_reduce(value, reduction="sum", group=size, stride=stride)
                elif self.sharding.takes(outputs[i].type):
                    outputs[i] = builder.reduce_scatter(value, reduction=reduction, **self.sharding.spread())
                    spread[i] = origin
                else:
                    outputs[i] = builder.all_reduce(value, reduction=reduction)
        over = self.sharding.replicas
        for i, origin in spread.items() if over < self.replicas else ():
            with builder.at(origin):  # every part is summed with the same one of the other groups
                others = {"group": self.replicas // over, "stride": over}
                outputs[i] = builder.all_reduce(outputs[i], reduction=reduction, **others)
        for i, port in enumerate(graph.output_ports):
            if port.kind == "statistic":
                with builder.at(replace(builder.origin, phase="update")):
                    outputs[i] = builder.all_reduce(outputs[i], reduction="mean")
        return builder.finish(outputs, graph.output_ports)

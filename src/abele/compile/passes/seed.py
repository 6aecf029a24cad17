"""Random numbers: the seed moves on with every micro-batch."""

from __future__ import annotations

from dataclasses import dataclass

from abele.ir.builder import Builder
from abele.ir.graph import Graph, Port


@dataclass(frozen=True)
class AdvanceSeed:
    """Give the state ``seed`` (``u32[2]``, a key and a count) its next value: the count goes up by one."""

    name: str = "advance-seed"

    def run(self, graph: Graph) -> Graph:
        seed = graph.inputs_of("state").get("seed")
        if seed is None or "seed" in graph.outputs_of("state"):
            return graph
        builder = Builder(graph.name, graph.functions)
        builder.inputs, builder.input_ports = list(graph.inputs), list(graph.input_ports)
        builder.operations = list(graph.operations)
        step = builder.iota(shape=(2,), axis=0, dtype=str(seed.dtype))
        following = builder.add(seed, step)
        return builder.finish((*graph.outputs, following), (*graph.output_ports, Port("state", "seed")))

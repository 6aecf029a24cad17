"""Gradient accumulation: the micro-batch becomes the body of a loop that sums gradients.

Before: a graph that makes gradients from one micro-batch. After: zeroed accumulators, ``repeat count`` of the
micro-batch which adds to them, and the accumulated gradients as outputs. State that a micro-batch changes (running
statistics, the random seed) is carried from turn to turn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from abele.ir.builder import Builder
from abele.ir.graph import Graph, Operation, Origin, Port, Value
from abele.ir.types import DType, TensorType


@dataclass(frozen=True)
class Accumulate:
    """Run the micro-batch ``count`` times and sum its gradients.

    Attributes:
        count: turns of the loop; with 1 and ``always`` false the graph is left as it is.
        mean: divide the sums by ``count``.
        dtype: element type of the accumulators, or empty for that of each gradient.
        always: make the loop even for one turn (a pipeline needs it).
        stages: pipeline stages over which the turns overlap, in the manner of ``pipeline`` (``schedule.PIPELINES``).
    """

    count: int
    mean: bool = True
    dtype: str = ""
    always: bool = False
    stages: int = 1
    pipeline: str = "grouped"
    name: str = "accumulate"

    def run(self, graph: Graph) -> Graph:
        if self.count == 1 and not self.always:
            return graph
        gradients = graph.outputs_of("gradient")
        changed = graph.outputs_of("state")
        states = graph.inputs_of("state")
        body, carried_types = self.body(graph)
        builder = Builder(graph.name, {**graph.functions, body.name: body})
        given = {}
        for value, port in zip(graph.inputs, graph.input_ports, strict=True):
            given[value] = builder.input(value.type, port.kind, port.name)
        fixed = [given[v] for v, p in zip(graph.inputs, graph.input_ports, strict=True) if not _is_changed(p, changed)]
        origins = [_origin(graph, v) for v in gradients.values()]
        start = []
        for type_, origin in zip(carried_types, origins, strict=True):
            with builder.at(origin):
                start.append(builder.constant(0.0, type_.dtype, type_.shape))
        operands = [*start, *(given[states[name]] for name in changed), *fixed]
        results = builder.repeat(body.name, self.count, operands, **self.manner())
        sums = list(results[: len(gradients)])
        if self.mean and self.count > 1:
            for i, origin in enumerate(origins):
                with builder.at(replace(origin, phase="update")):
                    sums[i] = builder.mul(sums[i], builder.constant(1.0 / self.count, sums[i].dtype))
        ports = [Port("gradient", name) for name in gradients] + [Port("state", name) for name in changed]
        return builder.finish([*sums, *results[len(gradients) :]], ports)

    def manner(self) -> dict[str, int | str]:
        """Attributes of the loop."""
        pipelined = {"pipeline": self.pipeline} if self.stages > 1 else {}
        return {"stages": self.stages} | pipelined

    def body(self, graph: Graph) -> tuple[Graph, list[TensorType]]:
        """The function of one turn, and the types of the accumulators."""
        gradients = graph.outputs_of("gradient")
        changed = graph.outputs_of("state")
        builder = Builder("micro_batch", graph.functions)
        types = [v.type.with_dtype(DType(self.dtype)) if self.dtype else v.type for v in gradients.values()]
        sums = [builder.input(t) for t in types]
        states = graph.inputs_of("state")
        given = {states[name]: builder.input(states[name].type) for name in changed}
        for value, port in zip(graph.inputs, graph.input_ports, strict=True):
            if not _is_changed(port, changed):
                given[value] = builder.input(value.type)
        outputs = builder.inline(graph, [given[v] for v in graph.inputs])
        made = dict(zip(graph.outputs, outputs, strict=True))
        # Each gradient is added as soon as it is made, so that it does not wait on the tiles for the end of the turn.
        turn, builder.operations = builder.operations, []
        added, behind = [], dict[Value, list[Operation]]()
        for before, gradient in zip(sums, gradients.values(), strict=True):
            with builder.at(_origin(graph, gradient)):
                new = made[gradient]
                summand = new if new.dtype == before.dtype else builder.cast(new, dtype=str(before.dtype))
                added.append(builder.add(before, summand))
            behind.setdefault(new, []).extend(builder.operations)
            builder.operations = []
        for op in turn:
            builder.operations.append(op)
            for value in op.results:
                builder.operations += behind.pop(value, ())
        builder.operations += [op for late in behind.values() for op in late]  # a gradient that is an input
        return builder.finish([*added, *(made[v] for v in changed.values())]), types


def _origin(graph: Graph, gradient: Value) -> Origin:
    """Where a gradient is made: its accumulator belongs on the same IPU."""
    made = graph.producers().get(gradient)
    return replace(made.origin if made else Origin(), phase="backward")


def _is_changed(port: Port, changed) -> bool:
    return port.kind == "state" and port.name in changed

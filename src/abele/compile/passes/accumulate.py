"""Gradient accumulation: the micro-batch becomes the body of a loop that sums gradients.

Before: a graph that makes gradients from one micro-batch. After: zeroed accumulators, ``repeat count`` of the
micro-batch which adds to them, and the accumulated gradients as outputs. Statistics are summed like gradients, in
their own type, and become means. State that a micro-batch changes (running statistics, the random seed) is carried
from turn to turn.
"""

from __future__ import annotations

from collections.abc import Iterable
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
        running: keep means instead of sums, which in half do not overflow: turn ``k`` makes ``(k m + g) / (k + 1)`` of
            the mean ``m`` so far and a gradient ``g``. With ``mean`` alone.
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
    running: bool = False
    name: str = "accumulate"

    def run(self, graph: Graph) -> Graph:
        if self.count == 1 and not self.always:
            return graph
        gradients, names = _summed(graph)
        changed = graph.outputs_of("state")
        states = graph.inputs_of("state")
        body, carried_types = self.body(graph)
        builder = Builder(graph.name, {**graph.functions, body.name: body})
        given = {}
        for value, port in zip(graph.inputs, graph.input_ports, strict=True):
            given[value] = builder.input(value.type, port.kind, port.name)
        fixed = [given[v] for v, p in zip(graph.inputs, graph.input_ports, strict=True) if not _is_changed(p, changed)]
        origins = [_origin(graph, v) for v in gradients]
        start = []
        for type_, origin in zip(carried_types, origins, strict=True):
            with builder.at(origin):
                start.append(builder.constant(0.0, type_.dtype, type_.shape))
        turns = self.places(origins)
        for place in turns:
            with builder.at(place):
                start.append(builder.constant(0.0, DType.F32))
        operands = [*start, *(given[states[name]] for name in changed), *fixed]
        results = builder.repeat(body.name, self.count, operands, **self.manner())
        sums = list(results[: len(gradients)])
        for i, (origin, port) in enumerate(zip(origins, names, strict=True)):
            if self.count > 1 and (self.mean or port.kind == "statistic") and not turns:
                with builder.at(replace(origin, phase="update")):
                    sums[i] = builder.mul(sums[i], builder.constant(1.0 / self.count, sums[i].dtype))
        ports = names + [Port("state", name) for name in changed]
        return builder.finish([*sums, *results[len(gradients) + len(turns) :]], ports)

    def places(self, origins: Iterable[Origin]) -> list[Origin]:
        """Where turns are counted for running means: beside the accumulators of every stage."""
        if not self.running:
            return []
        return list({(o.stage, o.ipu): replace(o, file="", line=0, module="") for o in origins}.values())

    def manner(self) -> dict[str, int | str]:
        """Attributes of the loop."""
        pipelined = {"pipeline": self.pipeline} if self.stages > 1 else {}
        return {"stages": self.stages} | pipelined

    def body(self, graph: Graph) -> tuple[Graph, list[TensorType]]:
        """The function of one turn, and the types of the accumulators."""
        gradients, names = _summed(graph)
        changed = graph.outputs_of("state")
        builder = Builder("micro_batch", graph.functions)
        types = [
            v.type.with_dtype(DType(self.dtype)) if self.dtype and port.kind == "gradient" else v.type
            for v, port in zip(gradients, names, strict=True)
        ]
        sums = [builder.input(t) for t in types]
        origins = [_origin(graph, v) for v in gradients]
        turns = {(o.stage, o.ipu): (builder.input(TensorType((), DType.F32)), o) for o in self.places(origins)}
        states = graph.inputs_of("state")
        given = {states[name]: builder.input(states[name].type) for name in changed}
        for value, port in zip(graph.inputs, graph.input_ports, strict=True):
            if not _is_changed(port, changed):
                given[value] = builder.input(value.type)
        following, kept = {}, {}
        for place, (turn, origin) in turns.items():
            with builder.at(origin):
                following[place] = builder.add(turn, builder.constant(1.0, DType.F32))
                kept[place] = builder.div(turn, following[place]), builder.reciprocal(following[place])
        outputs = builder.inline(graph, [given[v] for v in graph.inputs])
        made = dict(zip(graph.outputs, outputs, strict=True))
        # Each gradient is added as soon as it is made, so that it does not wait on the tiles for the end of the turn.
        operations, builder.operations = builder.operations, []
        added, behind = [], dict[Value, list[Operation]]()
        for before, gradient, origin in zip(sums, gradients, origins, strict=True):
            with builder.at(origin):
                new = made[gradient]
                summand = builder.cast_to(new, before.dtype)
                if self.running:
                    old_share, share = (builder.cast_to(v, before.dtype) for v in kept[origin.stage, origin.ipu])
                    before, summand = builder.mul(before, old_share), builder.mul(summand, share)
                added.append(builder.add(before, summand))
            behind.setdefault(new, []).extend(builder.operations)
            builder.operations = []
        for op in operations:
            builder.operations.append(op)
            for value in op.results:
                builder.operations += behind.pop(value, ())
        builder.operations += [op for late in behind.values() for op in late]  # a gradient that is an input
        return builder.finish([*added, *following.values(), *(made[v] for v in changed.values())]), types


def _summed(graph: Graph) -> tuple[list[Value], list[Port]]:
    """What is summed over the turns: gradients and statistics."""
    found = [
        (v, p) for v, p in zip(graph.outputs, graph.output_ports, strict=True) if p.kind in ("gradient", "statistic")
    ]
    return [v for v, _ in found], [p for _, p in found]


def _origin(graph: Graph, gradient: Value) -> Origin:
    """Where a gradient is made: its accumulator belongs on the same IPU."""
    made = graph.producers().get(gradient)
    return replace(made.origin if made else Origin(), phase="backward")


def _is_changed(port: Port, changed) -> bool:
    return port.kind == "state" and port.name in changed

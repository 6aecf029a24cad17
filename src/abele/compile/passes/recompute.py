"""Recomputation: the backward phase computes forward values again instead of keeping them in memory.

Before: backward operations read values of the forward phase, which live until then. After: they read clones that start
from what is kept. What that is, ``how`` says; the names are PopART's, beside two of Abele's own.

What has checkpoints on its results and on all that it reads is not made again. Where the statistics of a batch norm
have a checkpoint, they are applied again, not made again, as TensorFlow for the IPU has it where replicas share them
(graphcore/tensorflow, ``passes/distributed_batch_norm_decomposer.h``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from abele.compile.passes.segments import kept_values
from abele.ir.builder import Builder
from abele.ir.graph import Attribute, Graph, Operation, Value
from abele.ir.operation import has, lookup
from abele.ir.rules import CONTROL
from abele.ir.types import DType

HOW = ("none", "checkpoints", "layers", "standard", "norm_only", "pipeline", "recompute_all")
"""How much is computed again:

- ``none``: nothing.
- ``checkpoints``: all but what the user marked with a checkpoint, where there is one.
- ``layers``: each repeated layer, which keeps its inputs.
- ``standard``: the layers, and segments that are cut where little is crossed, such as residual blocks.
- ``norm_only``: normalisations and the non-linearities behind them.
- ``pipeline``: every pipeline stage but the last, from its inputs.
- ``recompute_all``: everything from the inputs of the model, or of each stage.
"""

NORMS = ("batch_norm", "layer_norm", "group_norm", "rms_norm", "instance_norm")
"""Operations that ``norm_only`` makes again, as the graph has them before and after expansion."""

Keeps = Callable[[Operation], bool]


@dataclass(frozen=True)
class Recompute:
    """Clone forward operations into the backward phase.

    In any case kept are graph inputs, results of ``checkpoint``, of operations with effects, and of random numbers.
    Each clone stands just before its first reader in the backward phase, so that it lives briefly.

    Attributes:
        how: one of ``HOW``.
        pipeline: how the stages of a pipeline take turns.
    """

    how: str = "checkpoints"
    pipeline: str = "grouped"
    name: str = "recompute"

    def run(self, graph: Graph) -> Graph:
        if self.how in ("none", "layers"):
            return graph
        again = _Repeatable(graph, calls=self.how in ("pipeline", "recompute_all"))
        functions = {name: self.rewritten(f, again) for name, f in graph.functions.items()}
        return self.rewritten(graph, again).replace(functions=functions)

    def rewritten(self, graph: Graph, repeatable: Callable[[Operation], bool]) -> Graph:
        phases = {op.origin.phase for op in graph.operations}
        if "forward" not in phases or "backward" not in phases:
            return graph
        keeps = self.keeper(graph, repeatable)
        if keeps is None:
            return graph
        made, kept = graph.producers(), _kept_results(graph)
        clones: dict[Value, Value] = {}
        builder = Builder(graph.name)
        operations = builder.operations

        def again(value: Value, like: Operation) -> Value:
            op = made.get(value)
            if op is None or op.origin.phase != "forward" or op.origin.stage != like.origin.stage or keeps(op):
                return value
            if value in kept:
                return kept[value]
            if value not in clones:
                operands = tuple(again(v, like) for v in op.operands)
                origin = replace(op.origin, phase=like.origin.phase)
                if op.name == "batch_norm" and op.results[1] in kept:
                    statistics = [kept[v] for v in op.results[1:]]
                    with builder.at(origin):
                        clones[value] = _normalised(builder, operands, statistics, op.attributes["eps"])
                else:
                    results = tuple(Value(v.type) for v in op.results)
                    clones.update(zip(op.results, results, strict=True))
                    operations.append(Operation(op.name, operands, results, op.attributes, origin))
            return clones[value]

        for op in graph.operations:
            if op.origin.phase == "backward" and op.name != "repeat":
                operands = tuple(again(v, op) for v in op.operands)
                operations.append(op if operands == op.operands else replace(op, operands=operands))
            else:
                operations.append(op)
        return graph.replace(operations=tuple(operations))

    def keeper(self, graph: Graph, repeatable: Callable[[Operation], bool]) -> Keeps | None:
        """Which forward operations of a graph have their results kept; ``None`` where all have."""

        def fixed(op: Operation) -> bool:
            return not repeatable(op)

        last = max((op.origin.stage for op in graph.operations), default=0)
        match self.how:
            case "checkpoints":
                return fixed if any(op.name == "checkpoint" for op in graph.operations) else None
            case "norm_only":
                norms = norm_operations(graph)
                return lambda op: fixed(op) or op not in norms
            case "pipeline":
                return (lambda op: fixed(op) or op.origin.stage == last) if last else None
            case "standard":
                kept = kept_values(graph, fixed, self.pipeline)
                return lambda op: fixed(op) or any(v in kept for v in op.results)
        return fixed


def _kept_results(graph: Graph) -> dict[Value, Value]:
    """Checkpoints of what is not made again, by what they are of: see the module."""
    made = graph.producers()
    kept = {op.operands[0]: op.result for op in graph.operations if op.name == "checkpoint"}

    def near(op: Operation) -> bool:
        producers = [made[v] for v in op.operands if v in made]
        return all(v in kept for v in op.results) and all(p.name in ("checkpoint", "constant") for p in producers)

    found: dict[Value, Value] = {}
    for op in graph.operations:
        if op.name == "batch_norm" and len(op.operands) == 3 and all(v in kept for v in op.results[1:]):
            found |= {v: kept[v] for v in op.results[1:]}
        if near(op):
            found |= {v: kept[v] for v in op.results}
    return found


def _normalised(b: Builder, operands: Sequence[Value], statistics: Sequence[Value], eps: Attribute) -> Value:
    """Batch norm by statistics that are known, as PopLibs does it: one product and one sum for each element.

    Args:
        operands: ``x[batch, channels, …]``, scale and shift ``[channels]``.
        statistics: mean and variance, ``f32[channels]``.
    """
    x, scale, shift = operands
    mean, variance = statistics
    assert isinstance(eps, float)
    factor = b.mul(b.cast_to(scale, DType.F32), b.rsqrt(b.add(variance, b.constant(eps, DType.F32))))
    term = b.sub(b.cast_to(shift, DType.F32), b.mul(mean, factor))
    kept = (1, x.shape[1], *(1,) * (len(x.shape) - 2))
    factor, term = (b.reshape(b.cast_to(v, x.dtype), shape=kept) for v in (factor, term))
    return b.add(b.mul(x, factor), term)


def norm_operations(graph: Graph) -> set[Operation]:
    """Normalisations of the forward phase, and what has only them as operand: views, casts, non-linearities."""
    found: set[Operation] = set()
    results: set[Value] = set()
    for op in graph.operations:
        if op.origin.phase != "forward":
            continue
        follows = (has(op, "elementwise") or has(op, "view") or op.name == "cast") and bool(op.operands)
        behind = follows and all(v in results or not v.type.rank for v in op.operands) and op.operands[0] in results
        if op.name.removesuffix("_inference") in NORMS or behind:
            found.add(op)
            results.update(op.results)
    return found


class _Repeatable:
    """Whether an operation may run a second time; calls where asked and nothing inside forbids it."""

    def __init__(self, graph: Graph, calls: bool) -> None:
        self.graph, self.calls = graph, calls
        self.functions: dict[str, bool] = {}

    def __call__(self, op: Operation) -> bool:
        if op.name == "call" and self.calls:
            return self.function(str(op.attributes["function"]))
        kept = op.name in (*CONTROL, "checkpoint") or has(op, "constant") or has(op, "random")
        return not kept and not lookup(op.name).effect

    def function(self, name: str) -> bool:
        if name not in self.functions:
            operations = self.graph.functions[name].operations
            self.functions[name] = all(self(op) or has(op, "constant") for op in operations)
        return self.functions[name]

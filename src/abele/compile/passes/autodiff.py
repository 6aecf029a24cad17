"""Reverse-mode differentiation of a graph: adds the gradients of the loss as outputs.

Before: outputs ``loss``, anchors and cotangents. After: the same, with anchors of their gradients in the place of
cotangents, and a ``gradient`` output for each parameter. A call of a function becomes a call of its forward twin, which
also returns what the gradient needs, and of a backward function; each is made once, however many layers call it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from abele.compile.passes.inline import inline_results
from abele.compile.passes.loss_scale import FACTOR, LARGE, AdaptiveScale
from abele.compile.passes.recompute import norm_operations
from abele.errors import InvalidOption, Unsupported
from abele.ir.builder import Builder
from abele.ir.graph import Graph, Operation, Port, Value
from abele.ir.operation import Composite, NotDifferentiable, expansion, lookup
from abele.ir.types import DType, TensorType


@dataclass(frozen=True)
class Autodiff:
    """Differentiate the loss with respect to parameters.

    Attributes:
        parameters: names of the state inputs whose gradients are wanted.
        loss_scaling: name of a hyper input that multiplies the loss before differentiation, or empty for none.
        share: the loss is multiplied by this too: what a mean of gradients over replicas divides by, done beforehand.
        adaptive: how that number is adapted to the gradients, or ``None`` when it is not.
        recompute_layers: backward functions compute the forward of their layer again instead of keeping its
            intermediate values, so that a layer keeps only its inputs.
        recompute_norms: backward functions compute normalisations and the non-linearities behind them again.
    """

    parameters: tuple[str, ...]
    loss_scaling: str = ""
    recompute_layers: bool = False
    recompute_norms: bool = False
    adaptive: AdaptiveScale | None = None
    share: float = 1.0
    name: str = "autodiff"

    def run(self, graph: Graph) -> Graph:
        losses = graph.outputs_of("loss")
        if len(losses) != 1:
            raise InvalidOption(
                f"The graph has {len(losses)} losses; training needs exactly one",
                remedy="Mark it with poptorch.identity_loss, or return one of torch's losses.",
            )
        states = graph.inputs_of("state")
        wanted = {name: states[name] for name in self.parameters if name in states}
        asked = {v for v, p in zip(graph.outputs, graph.output_ports, strict=True) if p.kind == "cotangent"}
        adaptive = self.adaptive
        # Counted in functions too, unless only certain weights are looked at.
        walk = _Differentiation(
            graph, self.recompute_layers, self.recompute_norms, None if adaptive and adaptive.weights else adaptive
        )
        (loss,) = losses.values()
        joint = _Joint(walk, graph, set(wanted.values()) | asked)
        builder = joint.builder
        origin = replace(joint.producer_origin(loss), phase="backward", file="", line=0)
        extra: list[tuple[Value, Port]] = []
        with builder.at(origin):
            seed = builder.constant(self.share, loss.dtype, loss.shape)
            if self.loss_scaling:
                number = TensorType((), DType.F32)
                scale = builder.input(number, "hyper", self.loss_scaling)
                if adaptive is not None:
                    scale = adaptive.scale(builder, scale, builder.input(number, "state", FACTOR))
                    if adaptive.anchor:
                        extra.append((scale, Port("anchor", adaptive.anchor)))
                seed = builder.mul(seed, builder.cast(scale, dtype=str(loss.dtype)))
        before = len(builder.operations)
        joint.backward({loss: seed})

        def gradient_of(value: Value) -> Value:
            found = joint.cotangents.get(value)
            return builder.constant(0.0, value.dtype, value.shape) if found is None else found

        gradients = {name: gradient_of(value) for name, value in wanted.items()}
        if adaptive is not None:
            made = builder.operations[before:]
            if adaptive.weights:
                chosen = {gradients[name] for name in adaptive.weights if name in gradients}
                made = [op for op in made if chosen & set(op.results)]
            extra += self.statistic(joint, adaptive, made)
        outputs = [
            (gradient_of(v), Port("anchor", p.name)) if p.kind == "cotangent" else (v, p)
            for v, p in zip(graph.outputs, graph.output_ports, strict=True)
        ]
        outputs += [(gradient, Port("gradient", name)) for name, gradient in gradients.items()]
        outputs += extra
        return builder.finish([v for v, _ in outputs], [p for _, p in outputs])

    def statistic(
        self, joint: _Joint, adaptive: AdaptiveScale, made: Sequence[Operation]
    ) -> Iterable[tuple[Value, Port]]:
        """The share of elements of half gradients that are large; nothing where there is none in half."""
        builder = joint.builder
        for count in joint.large(adaptive, made):
            with builder.at(replace(made[-1].origin, phase="backward")):
                yield builder.mul(count, builder.constant(1.0 / joint.elements, DType.F32)), Port("statistic", LARGE)


@dataclass
class _Twins:
    """What the gradient of a function needs: its forward twin, its backward function, and how to bind them.

    ``kept`` lists, for each leading input of the backward function, the forward input (``("input", i)``) or
    the extra result of the forward twin (``("result", i)``) that feeds it. Where half gradients are counted, the last
    result of the backward function is how many of their ``elements`` are large, unless there are none.
    """

    forward: str
    backward: str
    kept: list[tuple[str, int]]
    active_inputs: list[int]
    elements: int = 0


@dataclass
class _Differentiation:
    """Functions differentiated so far, by name and by which inputs and results matter."""

    graph: Graph
    recompute: bool
    recompute_norms: bool
    adaptive: AdaptiveScale | None = None
    twins: dict[tuple, _Twins] = field(default_factory=dict)
    functions: dict[str, Graph] = field(default_factory=dict)
    active_memo: dict[tuple, tuple[bool, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.functions = dict(self.graph.functions)

    def active_results(self, name: str, mask: tuple[bool, ...]) -> tuple[bool, ...]:
        """Which results of a function depend on its inputs marked in ``mask``."""
        key = (name, mask)
        if key not in self.active_memo:
            callee = self.functions[name]
            active = {v for v, m in zip(callee.inputs, mask, strict=True) if m}
            self.spread(callee.operations, active)
            self.active_memo[key] = tuple(v in active for v in callee.outputs)
        return self.active_memo[key]

    def spread(self, operations: Iterable[Operation], active: set[Value]) -> None:
        """Add to ``active`` every float value that depends on it differentiably."""
        for op in operations:
            mask = tuple(v in active for v in op.operands)
            if not any(mask):
                continue
            if op.name == "call":
                found = self.active_results(str(op.attributes["function"]), mask)
            elif op.name == "repeat" or not isinstance(lookup(op.name).gradient, NotDifferentiable):
                found = tuple(v.dtype.is_float for v in op.results)
            else:
                continue
            active.update(v for v, yes in zip(op.results, found, strict=True) if yes and v.dtype.is_float)

    def differentiate(self, name: str, mask: tuple[bool, ...], used: tuple[bool, ...]) -> _Twins:
        """Forward twin and backward function of a function for these active inputs and used results."""
        key = (name, mask, used)
        if key in self.twins:
            return self.twins[key]
        callee = self.functions[name]
        joint = _Joint(self, callee, {v for v, m in zip(callee.inputs, mask, strict=True) if m})
        builder = joint.builder
        seeds = {v: builder.input(v.type) for v, u in zip(callee.outputs, used, strict=True) if u and v in joint.active}
        split = len(builder.operations)
        # A result returned twice has one cotangent here: the caller adds before it calls.
        joint.backward(seeds)
        forward_ops, backward_ops = builder.operations[:split], builder.operations[split:]
        active_inputs = [i for i, v in enumerate(callee.inputs) if mask[i] and v in joint.cotangents]
        outputs = [joint.cotangents[callee.inputs[i]] for i in active_inputs]
        if self.adaptive is not None:
            outputs += joint.large(self.adaptive, backward_ops)
            backward_ops = builder.operations[split:]
        again = self.repeated(callee, forward_ops)
        remade = {v for op in again for v in op.results}
        backward_ops = [*(replace(op, origin=replace(op.origin, phase="backward")) for op in again), *backward_ops]
        if self.recompute:
            forward_needed, forward_ops, forward_name = [], list(callee.operations), name
        else:
            made = {v: op for op in forward_ops for v in op.results if v not in remade}
            read = [v for op in backward_ops for v in op.operands] + outputs
            needed = [v for v in dict.fromkeys(read) if v in made]
            # A constant is made again rather than kept.
            backward_ops = [made[v] for v in needed if made[v].name == "fill"] + backward_ops
            forward_needed = [v for v in needed if made[v].name != "fill"]
            forward_name = self.fresh(f"{name}.forward")
        read = dict.fromkeys([v for op in backward_ops for v in op.operands] + outputs)
        kept: list[tuple[str, int]] = [("input", i) for i, v in enumerate(callee.inputs) if v in read]
        kept_values = [callee.inputs[i] for _, i in kept]
        kept += [("result", len(callee.outputs) + i) for i in range(len(forward_needed))]
        kept_values += forward_needed
        if forward_name != name:
            self.functions[forward_name] = Graph(
                forward_name, callee.inputs, tuple(forward_ops), (*callee.outputs, *forward_needed)
            )
        backward_name = self.fresh(f"{name}.backward")
        self.functions[backward_name] = Graph(
            backward_name, (*kept_values, *seeds.values()), tuple(backward_ops), tuple(outputs)
        )
        self.twins[key] = _Twins(forward_name, backward_name, kept, active_inputs, joint.elements)
        return self.twins[key]

    def repeated(self, callee: Graph, operations: Sequence[Operation]) -> list[Operation]:
        """Which operations of a function its backward function runs again."""
        if self.recompute:
            return list(operations)
        norms = norm_operations(callee) if self.recompute_norms else ()
        return [op for op in operations if op in norms]

    def fresh(self, name: str) -> str:
        names = (name, *(f"{name}.{i}" for i in range(2, 10_000)))
        return next(n for n in names if n not in self.functions)


class _Joint:
    """One graph with its forward operations emitted and its backward ones to come, in one builder."""

    def __init__(self, walk: _Differentiation, graph: Graph, wanted: set[Value]) -> None:
        self.walk, self.graph = walk, graph
        self.builder = Builder(graph.name)
        self.builder.functions = walk.functions
        self.builder.inputs = list(graph.inputs)
        self.builder.input_ports = list(graph.input_ports)
        self.active = set(wanted)
        self.cotangents: dict[Value, Value] = {}
        self.counts: list[Value] = []
        self.elements = 0
        operations = list(_expand(graph.operations))
        walk.spread(operations, self.active)
        self.forward = operations
        self.calls: dict[Operation, int] = {}
        for op in operations:
            if op.name == "call" and any(v in self.active for v in op.results):
                # Its place is kept: the call is replaced by that of the forward twin once we know what it must return.
                self.calls[op] = len(self.builder.operations)
            self.builder.operations.append(op)

    def producer_origin(self, value: Value):
        return next((op.origin for op in self.forward if value in op.results), self.builder.origin)

    def large(self, adaptive: AdaptiveScale, operations: Sequence[Operation]) -> list[Value]:
        """How many elements are large of the half gradients that these operations make, functions that they call
        included; nothing where there is none in half. ``elements`` is then of how many."""
        found = adaptive.tracked(operations)
        self.elements += sum(value.type.size for _, value in found)
        counts = [*self.counts, *filter(None, [adaptive.counted(self.builder, found)])]
        if not counts:
            return []
        with self.builder.at(replace(operations[-1].origin, phase="backward")):
            return [functools.reduce(self.builder.add, counts)]

    def backward(self, seeds: Mapping[Value, Value]) -> None:
        """Walk the forward operations from the last to the first, emitting the gradients."""
        for value, seed in seeds.items():
            self.add(value, seed)
        for op in reversed(self.forward):
            given = [self.cotangents.get(v) for v in op.results]
            if not any(g is not None for g in given) or not any(v in self.active for v in op.operands):
                continue
            with self.builder.at(replace(op.origin, phase="backward")):
                gradients = self.call(op, given) if op.name == "call" else self.operation(op, given)
                for value, gradient in zip(op.operands, gradients, strict=True):
                    if gradient is not None and value in self.active:
                        self.add(value, gradient)

    def add(self, value: Value, gradient: Value) -> None:
        before = self.cotangents.get(value)
        self.cotangents[value] = gradient if before is None else self.builder.add(before, gradient)

    def operation(self, op: Operation, given: Sequence[Value | None]) -> Sequence[Value | None]:
        if op.name == "repeat":
            raise Unsupported(
                "The gradient of a loop is not supported", where=op.origin.where, remedy="Write the turns out."
            )
        rule = lookup(op.name).gradient
        assert rule is not None and not isinstance(rule, NotDifferentiable), op.name
        return rule(self.builder, op, given)

    def call(self, op: Operation, given: Sequence[Value | None]) -> Sequence[Value | None]:
        name = str(op.attributes["function"])
        callee = self.walk.functions[name]
        mask = tuple(v in self.active for v in op.operands)
        first = {v: i for i, v in reversed(list(enumerate(callee.outputs)))}
        merged: dict[int, Value] = {}
        for position, gradient in enumerate(given):
            if gradient is not None:
                at = first[callee.outputs[position]]
                merged[at] = gradient if at not in merged else self.builder.add(merged[at], gradient)
        active = self.walk.active_results(name, mask)
        used = tuple(i in merged and active[i] for i in range(len(callee.outputs)))
        twins = self.walk.differentiate(name, mask, used)
        forward = self.walk.functions[twins.forward]
        extra = tuple(Value(v.type) for v in forward.outputs[len(op.results) :])
        if twins.forward != name:
            twin_call = replace(op, results=(*op.results, *extra), attributes={"function": twins.forward})
            self.builder.operations[self.calls[op]] = twin_call
        results = (*op.results, *extra)
        kept = [op.operands[i] if kind == "input" else results[i] for kind, i in twins.kept]
        cotangents = self.builder.call(twins.backward, [*kept, *(merged[i] for i, u in enumerate(used) if u)])
        if twins.elements:
            *cotangents, count = cotangents
            self.counts.append(count)
            self.elements += twins.elements
        gradients: list[Value | None] = [None] * len(op.operands)
        for position, cotangent in zip(twins.active_inputs, cotangents, strict=True):
            gradients[position] = cotangent
        return gradients


def _expand(operations: Iterable[Operation]) -> Iterable[Operation]:
    """The operations with every composite that has no gradient of its own replaced by its expansion."""
    for op in operations:
        if op.name in ("call", "repeat"):
            yield op
            continue
        composite = lookup(op.name)
        if not isinstance(composite, Composite) or composite.gradient is not None:
            yield op
            continue
        inner = expansion(op.name, [v.type for v in op.operands], op.attributes)
        yield from _expand(inline_results(inner, op))

"""The optimizer as operations of the graph: gradients become the next values of the weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from abele.compile.passes.loss_scale import FACTOR, LARGE, WAITED, AdaptiveScale
from abele.compile.passes.rounding import StochasticRounding
from abele.compile.passes.sharding import Sharding
from abele.errors import InvalidOption, Unsupported, suggest
from abele.ir.builder import Builder
from abele.ir.graph import Graph, Origin, Port, Value
from abele.ir.rules import CONTROL
from abele.ir.types import DType, TensorType
from abele.ops.optim.op import MAY_BE_ZERO

HYPERS = {
    "sgd": ("learning_rate", "momentum", "dampening", "weight_decay"),
    "adam": ("learning_rate", "beta1", "beta2", "eps", "weight_decay"),
    "rmsprop": ("learning_rate", "alpha", "eps", "momentum", "weight_decay"),
    "lamb": ("learning_rate", "beta1", "beta2", "eps", "weight_decay", "max_weight_norm"),
    "lars": ("learning_rate", "momentum", "weight_decay", "eta"),
}
"""The numbers of each kind of optimiser, in the order in which its operation takes them."""

STATES = {
    "sgd": ("velocity",),
    "adam": ("first_moment", "second_moment"),
    "rmsprop": ("square_average", "momentum_buffer", "gradient_average"),
    "lamb": ("first_moment", "second_moment"),
    "lars": ("velocity",),
}
"""The tensors, each like its weight, that each kind of optimiser keeps."""


@dataclass(frozen=True)
class Optimiser:
    """Which optimiser, for which weights, with which numbers.

    Attributes:
        kind: a key of ``HYPERS``.
        groups: parameter groups: names of the weights in each.
        constants: for each group, the numbers that are fixed in the program; the others are hyper inputs named
            ``<number>.<group>`` that the host may change between steps.
        attributes: attributes of the operation (``nesterov``, ``decoupled`` …).
        state_dtype: element type of the optimiser's tensors.
        loss_scaling: name of the hyper input by which the gradients are divided, or empty.
        max_grad_norm: gradients are scaled so that their joint norm is at most this, when positive.
    """

    kind: str
    groups: tuple[tuple[str, ...], ...]
    constants: tuple[tuple[tuple[str, float], ...], ...] = ()
    attributes: tuple[tuple[str, bool], ...] = ()
    state_dtype: str = "f32"
    loss_scaling: str = ""
    max_grad_norm: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in HYPERS:
            raise InvalidOption(f"There is no optimizer {self.kind!r}", remedy=suggest(self.kind, HYPERS))


@dataclass(frozen=True)
class Update:
    """Consume the gradients: each weight gets a next value, and the optimiser's own state is added.

    Attributes:
        optimiser: which one.
        offload: keep the optimiser's tensors in streaming memory; they come to the tiles for their weight's update.
        sharding: the weights of which each replica updates a part, and of whose state it keeps that part alone.
        adaptive: how the loss scaling follows the gradients, or ``None`` when it does not.
        stochastic: half weights are rounded stochastically (``passes.rounding``), else to the nearest.
    """

    optimiser: Optimiser
    offload: bool = False
    sharding: Sharding = field(default_factory=Sharding)
    adaptive: AdaptiveScale | None = None
    stochastic: bool = False
    name: str = "update"

    def run(self, graph: Graph) -> Graph:
        spec = self.optimiser
        builder = Builder(graph.name, graph.functions)
        builder.inputs, builder.input_ports = list(graph.inputs), list(graph.input_ports)
        builder.operations = list(graph.operations)
        states = graph.inputs_of("state")
        gradients = {name: g for name, g in graph.outputs_of("gradient").items() if name in states}
        homes = {v: replace(o, phase="update", file="", line=0) for v, o in _places(graph).items()}
        places = {name: homes.get(states[name], Origin(phase="update")) for name in gradients}
        written = graph.outputs_of("state")  # a forward may write weights too; what it wrote is updated
        updated = {name for names in spec.groups for name in names if name in gradients}
        outputs = [
            (v, p)
            for v, p in zip(graph.outputs, graph.output_ports, strict=True)
            if p.kind not in ("gradient", "statistic") and not (p.kind == "state" and p.name in updated)
        ]
        parts: list[_Part] = []
        with builder.at(replace(builder.origin, phase="update")):
            gradients = self.scaled(builder, graph, gradients, places)
            if self.adaptive is not None:
                self.adapt(builder, graph, self.adaptive, outputs)
            halves = any(states[name].dtype is DType.F16 for name in updated)
            rounding = StochasticRounding(builder) if self.stochastic and halves else None
            step = [self.count_steps(builder, outputs)] if spec.kind in ("adam", "lamb") else []
            shared = _Shared(builder, outputs, step, rounding)
            for index, names in enumerate(spec.groups):
                numbers = self.numbers(builder, index)
                for name in names:
                    if name not in gradients:
                        continue
                    origin = places[name]
                    with builder.at(origin):
                        weight = written.get(name, states[name])
                        if self.sharding.takes(weight.type):
                            parts.append(_Part(name, weight, origin, numbers))
                            self.part(shared, parts[-1], gradients[name])
                        else:
                            after = self.stepped(shared, name, weight, gradients[name], [*step, *numbers])
                            outputs.append((after, Port("state", name)))
            self.gathered(shared, parts)
            if rounding is not None:
                outputs.append(rounding.following())
        return builder.finish([v for v, _ in outputs], [p for _, p in outputs])

    def scaled(
        self, b: Builder, graph: Graph, gradients: Mapping[str, Value], places: Mapping[str, Origin]
    ) -> dict[str, Value]:
        """Gradients, or parts of them, with the loss scaling undone and their joint norm clipped, each at its place."""
        spec, done = self.optimiser, dict(gradients)
        weights = graph.inputs_of("state")
        factor = None
        if spec.loss_scaling:
            scale = graph.inputs_of("hyper")[spec.loss_scaling]
            if self.adaptive is not None:
                scale = self.adaptive.scale(b, scale, weights[FACTOR])
            factor = b.reciprocal(scale)
        if spec.max_grad_norm > 0 and done:
            sums: dict[bool, Value] = {}
            for name, gradient in done.items():
                with b.at(places[name]):
                    wide = b.cast_to(gradient, DType.F32)
                    square = b.reduce_sum(b.mul(wide, wide), axes=tuple(range(len(wide.shape))))
                sharded = self.sharding.takes(weights[name].type)
                sums[sharded] = b.add(sums[sharded], square) if sharded in sums else square
            if True in sums:  # each replica has the squares of its own parts
                sums[True] = b.all_reduce(sums[True], **self.sharding.groups())
            total = b.add(*sums.values()) if len(sums) > 1 else next(iter(sums.values()))
            norm = b.sqrt(total)
            norm = norm if factor is None else b.mul(norm, factor)
            limit = b.constant(spec.max_grad_norm, DType.F32)
            clip = b.min(b.div(limit, b.add(norm, b.constant(1e-6, DType.F32))), b.constant(1.0, DType.F32))
            factor = clip if factor is None else b.mul(factor, clip)
        if factor is None:
            return done
        for name, gradient in done.items():
            with b.at(places[name]):
                done[name] = b.mul(b.cast_to(gradient, DType.F32), factor)
        return done

    def adapt(self, b: Builder, graph: Graph, adaptive: AdaptiveScale, outputs: list[tuple[Value, Port]]) -> None:
        """Give the factor of the loss scaling its next value; without gradients in half it stays."""
        factor, share = graph.inputs_of("state")[FACTOR], graph.outputs_of("statistic").get(LARGE)
        following = factor
        if share is not None:
            number = graph.inputs_of("hyper")[self.optimiser.loss_scaling]
            following = adaptive.following(b, number, factor, share)
        if share is not None and adaptive.period > 1:
            before = b.input(TensorType((), DType.F32), "state", WAITED)
            waited = b.add(before, b.constant(1.0, DType.F32))
            due = b.ge(waited, b.constant(float(adaptive.period), DType.F32))
            following = b.select(due, following, factor)
            outputs.append((b.select(due, b.constant(0.0, DType.F32), waited), Port("state", WAITED)))
        outputs.append((following, Port("state", FACTOR)))

    def count_steps(self, b: Builder, outputs: list[tuple[Value, Port]]) -> Value:
        """The number of this update, counted from one in a state of its own."""
        before = b.input(TensorType((), DType.F32), "state", "optimiser.step")
        step = b.add(before, b.constant(1.0, DType.F32))
        outputs.append((step, Port("state", "optimiser.step")))
        return step

    def numbers(self, b: Builder, group: int) -> list[Value]:
        fixed = dict(self.optimiser.constants[group]) if self.optimiser.constants else {}
        return [
            b.constant(fixed[h], DType.F32)
            if h in fixed
            else b.input(TensorType((), DType.F32), "hyper", f"{h}.{group}")
            for h in HYPERS[self.optimiser.kind]
        ]

    def zeros(self, weight: str) -> tuple[str, ...]:
        """The numbers that are 0 for good for this weight, and whose terms its update leaves out."""
        spec = self.optimiser
        group = next(i for i, names in enumerate(spec.groups) if weight in names)
        fixed = dict(spec.constants[group]) if spec.constants else {}
        return tuple(h for h in MAY_BE_ZERO if fixed.get(h) == 0.0)

    def stepped(
        self, shared: _Shared, name: str, weight: Value, gradient: Value, numbers: Sequence[Value], operation: str = ""
    ) -> Value:
        """Emit the optimiser's operation on a weight, or a part of one; its state goes to the outputs.

        Returns what the operation makes first: the next weight, or a direction.
        """
        spec, b = self.optimiser, shared.b
        kept = STATES[spec.kind]
        type_ = weight.type.with_dtype(DType(spec.state_dtype))
        before = [b.input(type_, "state", f"optimiser.{k}.{name}") for k in kept]
        if self.offload:
            before = [b.remote_load(v) for v in before]
        rounded = shared.rounding_of(weight) if not operation else None
        if rounded is not None:
            weight, gradient = b.cast_to(weight, DType.F32), b.cast_to(gradient, DType.F32)
        operands = [weight, gradient, *before, *numbers]
        after = b.emit(operation or spec.kind, operands, dict(spec.attributes) | {"zero": self.zeros(name)})
        nexts = [b.remote_store(v) for v in after[1:]] if self.offload else after[1:]
        shared.outputs += [(v, Port("state", f"optimiser.{k}.{name}")) for k, v in zip(kept, nexts, strict=True)]
        return after[0] if rounded is None else rounded(after[0])

    def part(self, shared: _Shared, part: _Part, gradient: Value) -> None:
        """Emit the update of one replica's part of a weight; of LAMB, which needs norms of the whole, its direction."""
        part.before = shared.b.replica_shard(part.weight, **self.sharding.groups())
        numbers, operation = part.numbers, ""
        if self.optimiser.kind == "lars":
            raise Unsupported(
                "LARS needs the norms of whole weights, of which a replica updates only a part",
                remedy="Leave its state whole on every replica (no sharding), or use LAMB.",
            )
        if self.optimiser.kind == "lamb":
            part.rate, *numbers, _ = part.numbers
            operation = "lamb_step"
        part.after = self.stepped(shared, part.name, part.before, gradient, [*shared.step, *numbers], operation)

    def gathered(self, shared: _Shared, parts: Sequence[_Part]) -> None:
        """Gather the weights from their parts, all in a row: what stands together is exchanged together."""
        groups, b = self.sharding.groups(), shared.b
        if self.optimiser.kind == "lamb":
            squares: list[list[Value]] = []
            for part in parts:
                with b.at(part.origin):
                    wide = [b.cast_to(v, DType.F32) for v in (part.before, part.after)]
                    squares.append([b.reduce_sum(b.mul(v, v), axes=(0,)) for v in wide])
            for part, own in zip(parts, squares, strict=True):
                with b.at(part.origin):
                    part.squares = [b.all_reduce(square, **groups) for square in own]
            for part in parts:
                with b.at(part.origin):
                    rounded = shared.rounding_of(part.before)
                    before = part.before if rounded is None else b.cast_to(part.before, DType.F32)
                    operands = [before, part.after, *part.squares, part.rate, part.numbers[-1]]
                    after = b.emit("lamb_apply", operands)[0]
                    part.after = after if rounded is None else rounded(after)
        for part in parts:
            with b.at(part.origin):
                whole = b.all_gather(part.after, part.weight, shape=part.weight.shape, **self.sharding.spread())
            shared.outputs.append((whole, Port("state", part.name)))


@dataclass
class _Shared:
    """What the updates of all weights share.

    Attributes:
        b: what they are emitted with.
        outputs: of the graph, so far.
        step: the number of this update, for the optimisers that take it.
        rounding: what rounds half weights, where they are not rounded to the nearest.
    """

    b: Builder
    outputs: list[tuple[Value, Port]]
    step: Sequence[Value]
    rounding: StochasticRounding | None

    def rounding_of(self, weight: Value) -> StochasticRounding | None:
        """What rounds this weight; it is then updated in float."""
        return self.rounding if weight.dtype is DType.F16 else None


@dataclass
class _Part:
    """A weight of which each replica updates a part: the part before and after, and what LAMB needs in between."""

    name: str
    weight: Value
    origin: Origin
    numbers: list[Value]
    before: Value = field(init=False)
    after: Value = field(init=False)
    rate: Value = field(init=False)
    squares: list[Value] = field(default_factory=list)


def _places(graph: Graph) -> dict[Value, Origin]:
    """The origin of the operation that reads each weight first: the weight is updated where it lies."""
    found: dict[Value, Origin] = {}

    def visit(g: Graph, outer: Mapping[Value, Value]) -> None:
        for op in g.operations:
            for value in op.operands:
                if op.name not in CONTROL and value in outer:
                    found.setdefault(outer[value], op.origin)
            if op.name in CONTROL:
                callee = graph.functions[str(op.attributes["function"])]
                bound = {i: outer[v] for i, v in zip(callee.inputs, op.operands, strict=True) if v in outer}
                if any(v not in found for v in bound.values()):
                    visit(callee, bound)

    visit(graph, {v: v for v in graph.inputs})
    return found

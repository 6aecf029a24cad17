"""Batch norm of known statistics goes into the convolution before it.

Before: ``conv(x, w)`` and ``batch_norm_inference`` of its result. After: a convolution with scaled weights, and the
shift that is left. In inference the scaled weights of the main graph depend on state alone, so that ``Hoist`` moves
them out of the step. Where they are made in every step (in functions, and behind frozen norms in training) it is done
only for weights that are no larger than the convolution's result, which the norm would go over instead.

Where two such pairs are only added to one another (a residual block whose shortcut is a convolution), their shifts
become one, added behind the second.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from abele.ir.builder import Builder
from abele.ir.graph import Graph, Operation, Value
from abele.ir.types import DType

NORM = "batch_norm_inference"


@dataclass(frozen=True)
class FoldNorm:
    """Fold ``batch_norm_inference`` where a convolution makes its operand for it alone.

    Attributes:
        hoisted: whether what depends on the states of the main graph alone is made once and not in every step.
    """

    hoisted: bool = True
    name: str = "fold-norm"

    def run(self, graph: Graph) -> Graph:
        functions = {name: _folded(f, set()) for name, f in graph.functions.items()}
        fixed: set[Value] = set()
        if self.hoisted:
            changed = graph.outputs_of("state")
            fixed = {v for name, v in graph.inputs_of("state").items() if name not in changed}
        folded = _folded(graph, fixed)
        same = all(f is graph.functions[name] for name, f in functions.items())
        return folded if same else folded.replace(functions=functions)


def _folded(graph: Graph, fixed: set[Value]) -> Graph:
    """The graph, without its functions, with norms folded; what is made of ``fixed`` values costs nothing."""
    made, users, outputs = graph.producers(), graph.users(), set(graph.outputs)
    norms: dict[Operation, Operation] = {}
    for op in graph.operations:
        if op.operands and fixed.issuperset(op.operands):
            fixed.update(op.results)
        conv = made.get(op.operands[0]) if op.name == NORM else None
        if conv is None or conv.name != "conv" or users[conv.result] != [op] or conv.result in outputs:
            continue
        weights = conv.operands[1]
        free = fixed.issuperset((weights, *op.operands[1:]))
        if free or weights.type.size <= conv.result.type.size:
            norms[op] = conv
    if not norms:
        return graph
    convs = set(norms.values())
    twins = _twins(graph, norms, users, outputs)
    shifts: dict[Operation, Value] = {}
    builder = Builder(graph.name, graph.functions)
    builder.inputs, builder.input_ports = list(graph.inputs), list(graph.input_ports)
    for op in graph.operations:
        if op in norms:
            shift = _fold(builder, norms[op], op, shifts.get(op), op not in twins)
            if op in twins:
                shifts[twins[op]] = shift
        elif op not in convs:
            builder.operations.append(op)
    return builder.finish(graph.outputs, graph.output_ports)


def _twins(
    graph: Graph, norms: dict[Operation, Operation], users: dict[Value, list[Operation]], outputs: set[Value]
) -> dict[Operation, Operation]:
    """Norms whose shift may be added behind another's: of two whose results are only added, the first to the second."""
    made, place = graph.producers(), {op: at for at, op in enumerate(graph.operations)}
    found: dict[Operation, Operation] = {}
    for op in graph.operations:
        if op.name != "add" or op.operands[0] is op.operands[1] or op.operands[0].type != op.operands[1].type:
            continue
        both = [made.get(value) for value in op.operands]
        alone = all(users[value] == [op] and value not in outputs for value in op.operands)
        folded = sorted((n for n in both if n is not None and n in norms), key=place.__getitem__)
        if alone and len(folded) == 2:
            found[folded[0]] = folded[1]
    return found


def _fold(b: Builder, conv: Operation, norm: Operation, more: Value | None, shifted: bool) -> Value:
    """Emit the folded pair, and give its whole shift; the last operation makes the norm's own result.

    Args:
        more: a shift to be added beside the norm's own, in float.
        shifted: whether the shift is added here.
    """
    x, w = conv.operands
    scale, shift, mean, variance = (b.cast_to(v, DType.F32) for v in norm.operands[1:])
    channels, rank = w.shape[0], len(w.shape)
    with b.at(norm.origin):
        epsilon = b.constant(norm.attributes["eps"], DType.F32)
        scale = b.mul(scale, b.rsqrt(b.add(variance, epsilon)))
        shift = b.sub(shift, b.mul(mean, scale))
        if more is not None:
            shift = b.add(shift, more)
        wide = b.mul(b.cast_to(w, DType.F32), b.reshape(scale, shape=(channels,) + (1,) * (rank - 1)))
    with b.at(conv.origin):
        (y,) = b.emit("conv", (x, b.cast_to(wide, w.dtype)), conv.attributes)
    if shifted:
        with b.at(norm.origin):
            b.add(y, b.reshape(b.cast_to(shift, y.dtype), shape=(channels,) + (1,) * (rank - 2)))
    b.operations[-1] = replace(b.operations[-1], results=norm.results)
    return shift

"""Activations inside maps: a tile has a published loop for each, so that its primitives are not charged one by one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from abele.ir.graph import Attributes, Graph, Operation, Value
from abele.ir.operation import expansion
from abele.ir.types import DType, TensorType
from abele.ops.elementwise.expression import Body

_COMPOSITES: Mapping[str, tuple[str, Attributes]] = {
    "gelu": ("gelu", {"approximate": "none"}),
    "gelu_tanh": ("gelu", {"approximate": "tanh"}),
    "silu": ("silu", {}),
    "gelu_grad": ("gelu_grad", {"approximate": "none"}),
    "gelu_tanh_grad": ("gelu_grad", {"approximate": "tanh"}),
}
"""Name in the machine's tables of cycles -> the composite whose expansion is looked for."""
_GRADIENTS = frozenset({"gelu_grad"})
"""Composites of two operands: the gradient of the activation's result, and the activation's operand."""
_FUNCTIONS = frozenset({"relu", "sigmoid", "tanh"})
_EITHER_WAY = frozenset({"add", "mul"})


@lru_cache
def _expansions() -> tuple[tuple[str, str, Graph], ...]:
    """Name, dtype and graph of each, the longest first: ``silu`` holds a sigmoid."""
    found = [
        (kind, str(dtype), expansion(name, [TensorType((2,), dtype)] * (2 if name in _GRADIENTS else 1), attributes))
        for kind, (name, attributes) in _COMPOSITES.items()
        for dtype in (DType.F16, DType.F32)
    ]
    return tuple(sorted(found, key=lambda each: -len(each[2].operations)))


Bound = tuple[int | None, ...]


def _match(body: Body, at: int, graph: Graph) -> tuple[tuple[int, ...], set[int]] | None:
    """What the graph's operands are in the body (as ``args`` count) and the nodes it covers, when it ends at a node."""
    made = graph.producers()

    def same(value: Value, at: int, bound: Bound, covered: set[int]) -> tuple[Bound, set[int]] | None:
        for i, operand in enumerate(graph.inputs):
            if value is operand:
                known = (*bound[:i], at, *bound[i + 1 :])
                return (known, covered) if bound[i] in (None, at) else None
        if at < 0:
            return None
        (fn, dtype, args, params), op = body[at], made[value]
        if op.name == "fill":
            known = fn == "constant" and params == (op.attributes["value"],)
            return (bound, covered) if known else None
        if (fn, dtype, params) != (op.name, str(value.dtype), tuple(op.attributes.values())):
            return None
        return in_some_order(op, args, bound, {*covered, at})

    def in_some_order(op: Operation, args: tuple[int, ...], bound: Bound, covered: set[int]):
        for order in (args, args[::-1]) if op.name in _EITHER_WAY else (args,):
            state = bound, covered
            for operand, arg in zip(op.operands, order, strict=True):
                found = same(operand, arg, *state)
                if found is None:
                    break
                state = found
            else:
                return state
        return None

    found = same(graph.outputs[0], at, (None,) * len(graph.inputs), set())
    if found is None:
        return None
    known = tuple(a for a in found[0] if a is not None)
    return (known, found[1]) if len(known) == len(graph.inputs) else None


@lru_cache(maxsize=4096)
def with_activations(body: Body) -> Body:
    """The body in which the primitives of an activation are one node of its name; for charging, not for running."""
    for kind, dtype, graph in _expansions():
        at = len(body) - 1
        while at >= 0:
            found = _match(body, at, graph)
            if found is not None and not _read_elsewhere(body, found[1] - {at}, found[1]):
                body, at = _replaced(body, at, found[1] - {at}, (kind, dtype, found[0], ()))
            at -= 1
    return body


def last_activation(body: Body) -> tuple[Body, str | None]:
    """What comes before the activation that a body ends in, and its name in the tables; the body and ``None`` where it
    does not end in one."""
    found = with_activations(body)
    fn, dtype, *_ = found[-1]
    ends = fn in _FUNCTIONS | set(_COMPOSITES) and DType(dtype).is_float
    return (found[:-1], fn) if ends else (found, None)


def _read_elsewhere(body: Body, nodes: set[int], covered: set[int]) -> bool:
    return any(a in nodes for j, (_, _, args, _) in enumerate(body) if j not in covered for a in args)


def _replaced(body: Body, at: int, gone: set[int], node) -> tuple[Body, int]:
    """The body without some nodes and the constants that nothing reads then, ``node`` in place of ``at``."""
    changed = [node if j == at else each for j, each in enumerate(body)]
    read = {a for j, (_, _, args, _) in enumerate(changed) if j not in gone for a in args}
    kept = [j for j, each in enumerate(changed) if j not in gone and (j in read or each[0] != "constant")]
    number = {old: new for new, old in enumerate(kept)}
    nodes = (changed[j] for j in kept)
    return tuple((fn, d, tuple(number.get(a, a) for a in args), ps) for fn, d, args, ps in nodes), number[at]

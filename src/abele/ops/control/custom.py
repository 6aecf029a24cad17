"""``custom_gradient``: values whose gradient is a graph of the user's, such as the backward of an autograd function.

Operands are the values (``results`` of them), then the operands to which gradients go, then what the backward graph
reads besides. Its inputs are these last ones and a gradient of each value; its outputs are the gradients of the
operands. The graph is an attribute, as text.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from abele.errors import InvalidOperand
from abele.ir.builder import Builder
from abele.ir.graph import Graph, Operation, Value
from abele.ir.operation import REQUIRED, Arg, Attributes, Composite, Sample, register
from abele.ir.text import parse_graph, print_graph
from abele.ir.types import TensorType, f16, f32

_parsed = functools.lru_cache(maxsize=64)(parse_graph)


def _split(operands: Sequence[Value], attributes: Attributes) -> tuple[Graph, int, int]:
    """The backward graph, the number of values, and where what it reads begins."""
    graph, count = _parsed(str(attributes["backward"])), int(attributes["results"])  # type: ignore[arg-type]
    return graph, count, count + len(graph.outputs)


def _expand(b: Builder, operands: Sequence[Value], attributes: Attributes) -> Sequence[Value]:
    graph, count, rest = _split(operands, attributes)
    have = [v.type for v in (*operands[rest:], *operands[:count], *operands[count:rest])]
    want = [v.type for v in (*graph.inputs, *graph.outputs)]
    if have != want:
        raise InvalidOperand("The backward graph of custom_gradient does not fit its operands")
    return operands[:count]


def _gradient(b: Builder, op: Operation, given: Sequence[Value | None]) -> Sequence[Value | None]:
    graph, count, rest = _split(op.operands, op.attributes)
    filled = [
        b.constant(0, v.dtype, v.shape) if g is None else g for g, v in zip(given, op.operands[:count], strict=True)
    ]
    found = b.inline(graph, (*op.operands[rest:], *filled))
    return (*[None] * count, *found, *[None] * (len(op.operands) - rest))


def _sample(type_: TensorType) -> Sample:
    """The gradient of ``y`` goes to ``x`` scaled by ``k``."""
    b = Builder("backward")
    k, dy = b.input(type_), b.input(type_)
    graph = b.finish([b.mul(dy, k)])
    return Sample((Arg(type_),) * 3, {"backward": print_graph(graph), "results": 1})


def _samples() -> Iterable[Sample]:
    return [_sample(t) for t in (f32(3, 5), f16(67), f32(), f32(0, 2))]


register(Composite("custom_gradient", {"backward": REQUIRED, "results": 1}, _expand, _samples, _gradient))

"""Indices that are the same for every element of a slice: whole slices are moved instead of single elements.

Message passing indexes by an index that is expanded over the features, ``index.view(-1, 1).expand_as(messages)``. An
update of each element reads an index of its own; an update of whole slices reads one for all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from abele.ir.graph import Graph, Operation, Value
from abele.ir.types import TensorType


@dataclass(frozen=True)
class IndexRows:
    """Make ``gather_elements`` a ``gather``, and a summing ``scatter_elements`` a ``scatter_add``, where that holds."""

    name: str = "index-rows"

    def run(self, graph: Graph) -> Graph:
        functions = {name: self.changed(f) for name, f in graph.functions.items()}
        return self.changed(graph).replace(functions=functions)

    def changed(self, graph: Graph) -> Graph:
        """The graph with the operations exchanged, an index made a vector before each."""
        producers = graph.producers()
        kept: list[Operation] = []
        for op in graph.operations:
            vector = _vector(op, producers)
            if vector is None:
                kept.append(op)
                continue
            source, axis = vector, op.attributes["axis"]
            if source.type.rank != 1:
                flat = Value(TensorType((source.type.size,), source.dtype))
                shape = {"shape": flat.type.shape}
                kept.append(replace(op, name="reshape", operands=(source,), results=(flat,), attributes=shape))
                source = flat
            if op.name == "gather_elements":
                operands, name = (op.operands[0], source), "gather"
            else:
                operands, name = (op.operands[0], source, op.operands[2]), "scatter_add"
            kept.append(replace(op, name=name, operands=operands, attributes={"axis": axis}))
        return graph.replace(operations=tuple(kept))


def _vector(op: Operation, producers: dict[Value, Operation]) -> Value | None:
    """The index before it was expanded, where an operation's index differs along its axis alone."""
    if op.name not in ("gather_elements", "scatter_elements"):
        return None
    if op.name == "scatter_elements" and (op.attributes["reduction"] != "add" or not op.result.dtype.is_float):
        return None
    base, index = op.operands[0].type, op.operands[1]
    axis = op.attributes["axis"]
    whole = all(base.shape[d] == n for d, n in enumerate(index.shape) if d != axis)
    made = producers.get(index)
    if base.rank < 2 or not whole or made is None or made.name != "expand":
        return None
    (source,) = made.operands
    lead = index.type.rank - source.type.rank
    lengths = (1,) * lead + source.shape
    along = all(n == 1 for d, n in enumerate(lengths) if d != axis) and lengths[axis] == index.shape[axis]
    return source if along else None

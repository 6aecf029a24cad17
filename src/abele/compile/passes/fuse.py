"""Fusion: chains of elementwise operations become one ``map``, and a map after a matrix product joins it.

Before: ``add``, ``gelu``'s dozen operations, ``mul`` …, each reading and writing whole tensors. After: one ``map`` that
reads its operands once and writes one result; or a ``fused`` operation, a product or convolution whose result
passes through the map before it is written. Numbers do not change: every node still rounds to its own type.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from abele.ir.graph import Attribute, Graph, Operation, Value
from abele.ir.operation import has

MOST_NODES = 64
MOST_OPERANDS = 10


@dataclass(frozen=True)
class Fuse:
    """Fuse elementwise operations into maps, and these into roots.

    Attributes:
        epilogues: whether maps may join products and convolutions.
        chains: whether several operations become one map; else only constants join the operation that reads them.
    """

    epilogues: bool = True
    chains: bool = True
    name: str = "fuse"

    def run(self, graph: Graph) -> Graph:
        functions = {name: self.fused(f) for name, f in graph.functions.items()}
        return self.fused(graph).replace(functions=functions)

    def fused(self, graph: Graph) -> Graph:
        clusters = self.clusters(graph)
        fills = {op.result: op for op in graph.operations if op.name == "fill"}
        made, users = graph.producers(), graph.users()
        kept_out = set(graph.outputs)
        absorbed: set[Operation] = set()
        replaced: dict[Operation, Operation] = {}
        for sink, members in clusters.items():
            body, operands = _body(sink, members, fills)
            root = self.root(sink, operands, made, users, kept_out) if self.epilogues else None
            if root is None and len(members) == 1 and len(body) == 1:
                continue
            absorbed.update(m for m in members if m is not sink)
            if root is None:
                replaced[sink] = replace(sink, name="map", operands=tuple(operands), attributes={"body": body})
            else:
                absorbed.add(root)
                replaced[sink] = _joined(root, sink, operands, body)
        operations = tuple(replaced.get(op, op) for op in graph.operations if op not in absorbed)
        return graph.replace(operations=operations)

    def clusters(self, graph: Graph) -> dict[Operation, list[Operation]]:
        """Sink of each cluster to its members, in program order."""
        users, outputs = graph.users(), set(graph.outputs)
        sink_of: dict[Operation, Operation] = {}
        members: dict[Operation, list[Operation]] = {}
        for op in reversed(graph.operations):
            if not has(op, "elementwise") or len(op.results) != 1 or not op.result.type.size:
                continue
            readers = users.get(op.result, [])
            sinks = {sink_of.get(reader) for reader in readers}
            sink = sinks.pop() if len(sinks) == 1 else None
            joins = (
                self.chains
                and sink is not None
                and op.result not in outputs
                and op.result.shape == sink.result.shape
                and (op.origin.phase, op.origin.ipu) == (sink.origin.phase, sink.origin.ipu)
                and len(members[sink]) < MOST_NODES
                and len(_operands([op, *members[sink]])) <= MOST_OPERANDS
            )
            home = sink if joins and sink is not None else op
            sink_of[op] = home
            members.setdefault(home, []).insert(0, op)
        return dict(reversed(members.items()))

    def root(self, sink: Operation, operands: list[Value], made, users, kept_out) -> Operation | None:
        """The product whose only reader is this cluster, if there is one."""
        for value in operands:
            op = made.get(value)
            if (
                op is not None
                and has(op, "root")
                and value not in kept_out
                and value.shape == sink.result.shape
                and len(users[value]) == 1
                and (op.origin.phase, op.origin.ipu) == (sink.origin.phase, sink.origin.ipu)
            ):
                return op
        return None


def _operands(members: list[Operation]) -> list[Value]:
    inside = {op.result for op in members}
    return list(dict.fromkeys(v for op in members for v in op.operands if v not in inside))


def _body(sink: Operation, members: list[Operation], fills: dict[Value, Operation]):
    """The nodes of the map, and the values that it still reads; filled tensors become constants."""
    operands = _operands(members)
    read = [v for v in operands if v not in fills]
    shape = np.broadcast_shapes(*(v.shape for v in read)) if read else None
    if shape != sink.result.shape:
        read = operands
    nodes: list[tuple[Attribute, ...]] = []
    index: dict[Value, int] = {v: -1 - i for i, v in enumerate(read)}
    for value in operands:
        if value not in index:
            index[value] = len(nodes)
            nodes.append(("constant", str(value.dtype), (), (fills[value].attributes["value"],)))
    for op in members:
        arguments = tuple(index[v] for v in op.operands)
        index[op.result] = len(nodes)
        nodes.append((op.name, str(op.result.dtype), arguments, tuple(op.attributes.values())))
    return tuple(nodes), read


def _joined(root: Operation, sink: Operation, operands: list[Value], body) -> Operation:
    """``root`` with the map as its epilogue; the map's operand -1 is the root's result."""
    value = root.result
    order = [value, *(v for v in operands if v is not value)]
    renumber = {-1 - i: -1 - order.index(v) for i, v in enumerate(operands)}
    nodes = tuple(
        (fn, dtype, tuple(renumber.get(a, a) for a in arguments), params) for fn, dtype, arguments, params in body
    )
    attributes = {
        "root": root.name,
        "root_attributes": tuple(root.attributes.items()),
        "root_operands": len(root.operands),
        "body": nodes,
    }
    return replace(sink, name="fused", operands=(*root.operands, *order[1:]), attributes=attributes)

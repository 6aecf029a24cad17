"""Fusion: chains of elementwise operations become one ``map``, and a map after a matrix product joins it.

Before: ``add``, ``gelu``'s dozen operations, ``mul`` …, each reading and writing whole tensors. After: one ``map`` that
reads its operands once and writes one result; a ``fused`` operation, a product or convolution whose result passes
through the map before it is written; or a ``stencil``, a map that reads several slices of one tensor, shifted a
little against each other, where they lie. Numbers do not change: every node still rounds to its own type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from abele.ir.graph import Attribute, Graph, Operation, Value
from abele.ir.operation import has

MOST_NODES = 64
MOST_OPERANDS = 10


@dataclass(frozen=True)
class Fuse:
    """Fuse elementwise operations into maps, and these into roots, and slices into maps.

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
            taps = _neighbours(sink, operands, made) if self.chains and root is None else {}
            if root is None and not taps and len(members) == 1 and len(body) == 1:
                continue
            absorbed.update(m for m in members if m is not sink)
            if taps:
                replaced[sink] = _stencil(sink, operands, taps, body)
            elif root is None:
                replaced[sink] = replace(sink, name="map", operands=tuple(operands), attributes={"body": body})
            else:
                absorbed.add(root)
                replaced[sink] = _joined(root, sink, operands, body)
        operations = tuple(replaced.get(op, op) for op in graph.operations if op not in absorbed)
        return graph.replace(operations=operations)

    def clusters(self, graph: Graph) -> dict[Operation, list[Operation]]:
        """Sink of each cluster to its members, in program order."""
        users, made, outputs = graph.users(), graph.producers(), set(graph.outputs)
        sink_of: dict[Operation, Operation] = {}
        members: dict[Operation, list[Operation]] = {}

        def tensors(cluster: list[Operation], shape: tuple[int, ...]) -> set[Value]:
            """What the map would read in the end: neither constants nor what is made for it alone and joins it next."""
            inside, found = set(cluster), set[Value]()
            for value in _operands(cluster):
                op = made.get(value)
                alone = value not in outputs and value.shape == shape and inside.issuperset(users[value])
                if op is None or not (op.name == "fill" or (has(op, "elementwise") and alone)):
                    found.add(_tap(value, made)[0])
            return found

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
                and len(tensors([op, *members[sink]], sink.result.shape)) <= MOST_OPERANDS
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
    at = root.origin  # the line that takes the time; where it runs stays the sink's
    origin = replace(sink.origin, file=at.file, line=at.line, module=at.module)
    return replace(sink, name="fused", operands=(*root.operands, *order[1:]), attributes=attributes, origin=origin)


_Tap = tuple[Value, tuple[int, ...], float]
"""A tensor, where in it a slice of it starts, and what lies outside it."""


def _tap(value: Value, made: Mapping[Value, Operation]) -> _Tap:
    """The tensor that a value is a slice of, perhaps padded before; any other value is a slice of itself."""
    starts, outside = (0,) * len(value.shape), 0.0
    op = made.get(value)
    if op is not None and op.name == "slice" and all(step == 1 for step in _numbers(op, "steps")):
        value, starts = op.operands[0], _numbers(op, "starts")
        op = made.get(value)
    if op is not None and op.name == "pad":
        value, low = op.operands[0], _numbers(op, "low")
        starts = tuple(s - n for s, n in zip(starts, low, strict=True))
        outside = np.asarray(op.attributes["value"]).astype(value.dtype.numpy).item()
    return value, starts, outside


def _numbers(op: Operation, name: str) -> tuple[int, ...]:
    value = op.attributes[name]
    assert isinstance(value, tuple)
    return value


def _neighbours(sink: Operation, operands: Sequence[Value], made: Mapping[Value, Operation]) -> dict[Value, _Tap]:
    """The operands of a map that are slices of one tensor and overlap by more than half, whole tensors among them."""
    by_source: dict[Value, list[tuple[Value, _Tap]]] = {}
    for value in operands:
        op = made.get(value)
        if value.shape == sink.result.shape and (op is None or op.origin.ipu == sink.origin.ipu):
            tap = _tap(value, made)
            by_source.setdefault(tap[0], []).append((value, tap))
    found: dict[Value, _Tap] = {}
    for source, taps in by_source.items():
        columns = list(zip(*(starts for _, (_, starts, _) in taps), strict=True))
        near = all(
            max(column) - min(column) <= n // 2 and min(column) >= -(n // 2) and max(column) + n <= size + n // 2
            for column, n, size in zip(columns, sink.result.shape, source.shape, strict=True)
        )
        if near and len({starts for _, (_, starts, _) in taps}) > 1:
            found.update(taps)
    return found


def _stencil(sink: Operation, operands: Sequence[Value], taps: Mapping[Value, _Tap], body) -> Operation:
    """The map over the tensors themselves, those of ``taps`` at their shifted places."""
    read = list(dict.fromkeys(taps[v][0] if v in taps else v for v in operands))
    places = tuple((read.index(taps[v][0]), *taps[v][1:]) if v in taps else (read.index(v), (), 0.0) for v in operands)
    attributes = {"taps": places, "shape": sink.result.shape, "body": body}
    return replace(sink, name="stencil", operands=tuple(read), attributes=attributes)

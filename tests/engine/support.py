"""Schedules for tests of the engine: graphs put in order without any plan, since the engine reads none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

import abele.ops  # noqa: F401  (fills the registry)
from abele.ir import Builder, Port
from abele.ir.graph import Graph, Operation, Value
from abele.ir.types import TensorType
from abele.schedule import Call, Function, Plan, Repeat, Schedule, Step, Tensor, Use, spread

NO_PLAN = Plan(())


def schedule_of(graph: Graph, replicas: int = 1) -> Schedule:
    """The schedule of a graph whose data already comes through streams."""
    tensors: dict[str, Tensor] = {}

    def tensor(type: TensorType, kind: str) -> str:
        name = f"t{len(tensors)}"
        tensors[name] = Tensor(name, type, kind, spread(type.size, 1, 1))
        return name

    def function(g: Graph, kinds: Sequence[str]) -> Function:
        parameters = tuple(tensor(v.type, k) for v, k in zip(g.inputs, kinds, strict=True))
        uses: dict[Value, Use] = {v: Use(p, v.type) for v, p in zip(g.inputs, parameters, strict=True)}
        nodes = []
        for op in g.operations:
            if op.name in ("reshape", "checkpoint"):
                uses[op.result] = Use(uses[op.operands[0]].tensor, op.result.type)
                continue
            operands = tuple(uses[v] for v in op.operands)
            results = tuple(Use(tensor(v.type, "value"), v.type) for v in op.results)
            uses.update(zip(op.results, results, strict=True))
            names = tuple(u.tensor for u in operands), tuple(u.tensor for u in results)
            if op.name == "call":
                nodes.append(Call(str(op.attributes["function"]), *names, op.origin))
            elif op.name == "repeat":
                count = op.attributes["count"]
                assert isinstance(count, int)
                nodes.append(Repeat(str(op.attributes["function"]), count, *names, 1, op.origin))
            else:
                nodes.append(Step(op.name, operands, results, op.attributes, NO_PLAN, op.origin))
        return Function(g.name, parameters, tuple(uses[v].tensor for v in g.outputs), tuple(nodes))

    functions = {n: function(f, ["argument"] * len(f.inputs)) for n, f in graph.functions.items()}
    main = function(graph.replace(name="main"), [p.kind for p in graph.input_ports])
    return Schedule(graph.name, "test", 1, 1, replicas, tensors, main, functions, graph.input_ports, graph.output_ports)


def load(b: Builder, stream: str, type: TensorType) -> Value:
    """Take the next micro-batch of a stream."""
    value = Value(type)
    attributes = {"stream": stream, "shape": type.shape, "dtype": str(type.dtype)}
    b.operations.append(Operation("host_load", (), (value,), attributes))
    return value


def store(b: Builder, stream: str, value: Value) -> None:
    """Append to a stream."""
    b.operations.append(Operation("host_store", (value,), (), {"stream": stream}))


def one_operation(
    name: str, operands: Sequence[TensorType], attributes: Mapping, constant: Sequence[int] = ()
) -> Schedule:
    """A program that loads operands ``a0`` … (``constant`` ones are state), runs one operation and stores ``r0`` …"""
    b = Builder("one")
    given = []
    for i, t in enumerate(operands):
        if i in constant:
            given.append(b.input(t, "state", f"a{i}"))
        else:
            given.append(load(b, f"a{i}", t))
    for i, result in enumerate(b.emit(name, given, attributes)):
        store(b, f"r{i}", result)
    return schedule_of(b.finish([]))


def feed(arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Streams ``a0`` … for one turn of one replica."""
    return {f"a{i}": a[None, None] for i, a in enumerate(arrays)}


__all__ = ["NO_PLAN", "Port", "feed", "one_operation", "schedule_of"]

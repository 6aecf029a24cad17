"""The meaning of a graph, operation by operation in NumPy: the oracle against which passes and engines are held.

Slow and simple. Float operands are handed to the references in float64, and every result is rounded to its type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from abele.ir.graph import Graph, Operation, Value
from abele.ir.operation import Attributes, Primitive, expansion, lookup
from abele.ir.types import DType, TensorType


class Host:
    """What ``host_load`` and ``host_store`` talk to: lists of micro-batches by stream name."""

    def __init__(self, streams: Mapping[str, Sequence[np.ndarray]] | None = None) -> None:
        self.inputs = {name: list(arrays) for name, arrays in (streams or {}).items()}
        self.outputs: dict[str, list[np.ndarray]] = {}

    def load(self, name: str) -> np.ndarray:
        return self.inputs[name].pop(0)

    def store(self, name: str, value: np.ndarray) -> None:
        self.outputs.setdefault(name, []).append(np.array(value))


def evaluate_operation(
    name: str, operands: Sequence[np.ndarray], attributes: Attributes, results: Sequence[TensorType]
) -> tuple[np.ndarray, ...]:
    """Run the reference of one operation (a composite runs its expansion) and round to the result types."""
    operation = lookup(name)
    if not isinstance(operation, Primitive):
        types = [TensorType(a.shape, t) for a, t in zip(operands, _dtypes(operands), strict=True)]
        return evaluate(expansion(name, types, attributes), operands)
    wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in operands]
    with np.errstate(all="ignore"):
        raw = operation.reference(wide, attributes, results)
        done = tuple(np.asarray(a).astype(t.dtype.numpy) for a, t in zip(raw, results, strict=True))
    for array, type_ in zip(done, results, strict=True):
        assert array.shape == type_.shape, f"reference of {name} gave {array.shape} for {type_}"
    return done


def _dtypes(arrays: Sequence[np.ndarray]):
    return [DType.of(a.dtype) for a in arrays]


def evaluate(graph: Graph, inputs: Sequence[np.ndarray], host: Host | None = None) -> tuple[np.ndarray, ...]:
    """Outputs of the graph on these inputs, in order."""
    return _run(graph, inputs, graph.functions, host or Host())


def _run(
    graph: Graph, inputs: Sequence[np.ndarray], functions: Mapping[str, Graph], host: Host
) -> tuple[np.ndarray, ...]:
    values: dict[Value, np.ndarray] = dict(zip(graph.inputs, inputs, strict=True))
    for op in graph.operations:
        operands = [values[v] for v in op.operands]
        results = _CONTROL.get(op.name, _plain)(op, operands, functions, host)
        values.update(zip(op.results, results, strict=True))
    return tuple(values[v] for v in graph.outputs)


def _plain(op: Operation, operands: Sequence[np.ndarray], functions: Mapping[str, Graph], host: Host):
    return evaluate_operation(op.name, operands, op.attributes, [v.type for v in op.results])


def _call(op: Operation, operands: Sequence[np.ndarray], functions: Mapping[str, Graph], host: Host):
    return _run(functions[str(op.attributes["function"])], operands, functions, host)


def _repeat(op: Operation, operands: Sequence[np.ndarray], functions: Mapping[str, Graph], host: Host):
    body, carried = functions[str(op.attributes["function"])], tuple(operands[: len(op.results)])
    for _ in range(int(op.attributes["count"])):
        carried = _run(body, (*carried, *operands[len(op.results) :]), functions, host)
    return carried


def _load(op: Operation, operands: Sequence[np.ndarray], functions: Mapping[str, Graph], host: Host):
    return (host.load(str(op.attributes["stream"])).astype(op.result.dtype.numpy),)


def _store(op: Operation, operands: Sequence[np.ndarray], functions: Mapping[str, Graph], host: Host):
    host.store(str(op.attributes["stream"]), operands[0])
    return ()


_CONTROL: dict[str, Callable[..., Sequence[np.ndarray]]] = {
    "call": _call,
    "repeat": _repeat,
    "host_load": _load,
    "host_store": _store,
}

"""Building graphs: emit operations one by one, with types inferred and the origin of each remembered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from abele.errors import AbeleError
from abele.ir.graph import Attribute, Graph, Operation, Origin, Port, Value
from abele.ir.operation import complete_attributes, infer_types
from abele.ir.types import DType, TensorType


class Builder:
    """Collects operations of one graph.

    >>> b = Builder("main")
    >>> x = b.input(f32(2, 3), "data", "x")
    >>> y = b.relu(x)                       # any registered operation is a method
    >>> graph = b.finish([y], [Port("anchor", "y")])

    A method returns one ``Value``, or a tuple of them when the operation has several results.
    """

    def __init__(self, name: str, functions: Mapping[str, Graph] | None = None) -> None:
        self.name = name
        self.inputs: list[Value] = []
        self.input_ports: list[Port] = []
        self.operations: list[Operation] = []
        self.functions: dict[str, Graph] = dict(functions or {})
        self.origin = Origin()

    def input(self, type: TensorType, kind: str = "argument", name: str = "") -> Value:
        """A new graph input."""
        value = Value(type)
        self.inputs.append(value)
        self.input_ports.append(Port(kind, name))
        return value

    @contextmanager
    def at(self, origin: Origin) -> Iterator[None]:
        """Operations emitted inside carry this origin."""
        before, self.origin = self.origin, origin
        try:
            yield
        finally:
            self.origin = before

    def emit(self, name: str, operands: Sequence[Value], attributes: Mapping[str, Any] | None = None) -> tuple:
        """Append one operation and return its results as a tuple."""
        full = complete_attributes(name, attributes or {})
        try:
            types = infer_types(name, [v.type for v in operands], full)
        except AbeleError as error:
            if error.where or not self.origin.where:
                raise
            raise type(error)(error.what, where=self.origin.where, remedy=error.remedy) from None
        results = tuple(Value(t) for t in types)
        self.operations.append(Operation(name, tuple(operands), results, full, self.origin))
        return results

    def call(self, function: str, operands: Sequence[Value]) -> tuple[Value, ...]:
        """Call a function of this graph."""
        callee = self.functions[function]
        results = tuple(Value(v.type) for v in callee.outputs)
        self.operations.append(Operation("call", tuple(operands), results, {"function": function}, self.origin))
        return results

    def repeat(self, function: str, count: int, operands: Sequence[Value], **attributes: Attribute) -> tuple:
        """Run a function ``count`` times. Its outputs feed its first inputs in the next turn; the inputs after
        them stay the same in every turn. Returns the outputs of the last turn."""
        callee = self.functions[function]
        results = tuple(Value(v.type) for v in callee.outputs)
        full = {"function": function, "count": count} | attributes
        self.operations.append(Operation("repeat", tuple(operands), results, full, self.origin))
        return results

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)

        def emit(*operands: Value, **attributes: Any) -> Any:
            results = self.emit(name, operands, attributes)
            return results[0] if len(results) == 1 else results

        return emit

    def constant(self, value: float | int | bool, dtype: DType, shape: Sequence[int] = ()) -> Value:
        """A tensor filled with one number."""
        return self.emit("fill", (), {"value": value, "dtype": str(dtype), "shape": tuple(shape)})[0]

    def cast_to(self, value: Value, dtype: DType) -> Value:
        """``value`` as ``dtype``; itself when it has it."""
        return value if value.dtype is dtype else self.emit("cast", (value,), {"dtype": str(dtype)})[0]

    def inline(self, graph: Graph, operands: Sequence[Value]) -> tuple[Value, ...]:
        """Copy the operations of ``graph`` here with its inputs replaced by ``operands``; returns its outputs.

        Copied operations keep their own origin when they have one, and take this builder's otherwise."""
        mapping = dict(zip(graph.inputs, operands, strict=True))
        for op in graph.operations:
            results = tuple(Value(v.type) for v in op.results)
            mapping.update(zip(op.results, results, strict=True))
            origin = op.origin if op.origin != _NOWHERE else self.origin
            self.operations.append(
                Operation(op.name, tuple(mapping[v] for v in op.operands), results, op.attributes, origin)
            )
        for name, function in graph.functions.items():
            self.functions.setdefault(name, function)
        return tuple(mapping[v] for v in graph.outputs)

    def finish(self, outputs: Sequence[Value], ports: Sequence[Port] = ()) -> Graph:
        """The graph, with these outputs."""
        return Graph(
            self.name,
            tuple(self.inputs),
            tuple(self.operations),
            tuple(outputs),
            tuple(self.input_ports),
            tuple(ports) or (Port(),) * len(outputs),
            self.functions,
        )


_NOWHERE = Origin()

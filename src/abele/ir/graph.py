"""The graph: values, operations in program order, functions, and the ports that face the host.

A graph is immutable. A pass makes a new one, by hand or with a ``Builder``. Values and operations are
compared by identity; two graphs are the same when their text is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from abele.ir.types import TensorType

Attribute = int | float | bool | str | None | tuple["Attribute", ...]

Attributes = Mapping[str, Any]
"""Attributes by name. Each is an ``Attribute``; its type rule says which kind, which the type checker cannot see."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an operation comes from: the user's line and module, its pipeline stage, and its part of the step.

    Attributes:
        file, line: the user's source, or ``""`` and 0 when the compiler made the operation.
        module: dotted path of the module that ran it, such as ``encoder.layer.0.attention``.
        stage: pipeline stage of the operation (0 when the program has one).
        ipu: the IPU of the replica on which it runs.
        phase: ``forward``, ``backward`` or ``update``.
    """

    file: str = ""
    line: int = 0
    module: str = ""
    stage: int = 0
    ipu: int = 0
    phase: str = "forward"

    @property
    def where(self) -> str:
        """For messages: ``file.py:12 in encoder.layer.0``, or an empty string."""
        place = f"{self.file}:{self.line}" if self.file else ""
        inside = f" in {self.module}" if self.module else ""
        return (place + inside).strip()


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """A tensor in a graph: made once, by a graph input or by one operation. Compared by identity."""

    type: TensorType

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self):
        return self.type.dtype


@dataclass(frozen=True, eq=False, slots=True)
class Operation:
    """One operation: its name in the registry, operands, results and attributes.

    ``call`` and ``repeat`` name a function of the graph in their attribute ``function``.
    """

    name: str
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    attributes: Attributes = field(default_factory=dict)
    origin: Origin = field(default_factory=Origin)

    @property
    def result(self) -> Value:
        """The only result; an error when there are several."""
        (value,) = self.results
        return value


@dataclass(frozen=True, slots=True)
class Port:
    """What a graph input or output is to the host.

    Kinds of input: ``data`` (a tensor streamed in for every micro-batch), ``state`` (kept on the device: weights,
    buffers, optimiser state), ``hyper`` (a value that the host may change between steps, such as a learning
    rate). Kinds of output: ``anchor`` (returned to the host), ``loss``, ``gradient``, ``state`` (the next value of
    the state input with the same name), ``cotangent`` (the gradient of this value is to be an anchor),
    ``statistic`` (a number of the micro-batch in f32, of which the update takes the mean over micro-batches and
    replicas). Inputs and outputs of a function have kind ``argument``.
    """

    kind: str = "argument"
    name: str = ""


INPUT_KINDS = ("data", "state", "hyper", "argument")
OUTPUT_KINDS = ("anchor", "loss", "gradient", "state", "cotangent", "statistic", "argument")


@dataclass(frozen=True, eq=False)
class Graph:
    """An ordered list of operations from inputs to outputs, with the functions that it calls.

    ``input_ports`` and ``output_ports`` run parallel to ``inputs`` and ``outputs``. ``functions`` holds every
    function that is reachable, flat: functions have no functions of their own.
    """

    name: str
    inputs: tuple[Value, ...]
    operations: tuple[Operation, ...]
    outputs: tuple[Value, ...]
    input_ports: tuple[Port, ...] = ()
    output_ports: tuple[Port, ...] = ()
    functions: Mapping[str, Graph] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.input_ports and self.inputs:
            object.__setattr__(self, "input_ports", (Port(),) * len(self.inputs))
        if not self.output_ports and self.outputs:
            object.__setattr__(self, "output_ports", (Port(),) * len(self.outputs))

    def replace(self, **changes) -> Graph:
        """A copy with some fields changed."""
        return replace(self, **changes)

    def inputs_of(self, kind: str) -> dict[str, Value]:
        """Name to value of the inputs of one port kind, in order."""
        return {p.name: v for p, v in zip(self.input_ports, self.inputs, strict=True) if p.kind == kind}

    def outputs_of(self, kind: str) -> dict[str, Value]:
        """Name to value of the outputs of one port kind, in order."""
        return {p.name: v for p, v in zip(self.output_ports, self.outputs, strict=True) if p.kind == kind}

    def all_graphs(self) -> Iterator[Graph]:
        """This graph and then its functions."""
        yield self
        yield from self.functions.values()

    def producers(self) -> dict[Value, Operation]:
        """The operation that makes each value (graph inputs are absent)."""
        return {value: op for op in self.operations for value in op.results}

    def users(self) -> dict[Value, list[Operation]]:
        """The operations that read each value, in program order."""
        found: dict[Value, list[Operation]] = {}
        for op in self.operations:
            for value in dict.fromkeys(op.operands):
                found.setdefault(value, []).append(op)
        return found

    def __str__(self) -> str:
        from abele.ir.text import print_graph

        return print_graph(self)


def substitute(operations: Iterable[Operation], mapping: Mapping[Value, Value]) -> list[Operation]:
    """The operations with operands replaced by ``mapping`` (results are kept, unchanged ones are the same object)."""
    done = []
    for op in operations:
        operands = tuple(mapping.get(v, v) for v in op.operands)
        done.append(op if operands == op.operands else replace(op, operands=operands))
    return done

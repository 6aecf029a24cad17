"""The text form of a graph: prints, and parses back to a graph that prints the same.

    graph main(%0: f32[2,3] data "x", %1: f32[3,4] state "fc.weight") {
      %2: f32[2,4] = matmul(%0, %1) {transpose_a=false, transpose_b=false} @ "net.py":12 "fc" 0 0 forward
      return %2 anchor "y"
    }

Functions follow the graph that calls them, in the same form. Values are numbered in order of appearance.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from abele.errors import InvalidOperand
from abele.ir.graph import Attribute, Graph, Operation, Origin, Port, Value
from abele.ir.types import DType, TensorType


def print_graph(graph: Graph) -> str:
    """The graph and its functions as text."""
    return "\n".join(_print_one(g) for g in graph.all_graphs())


def _print_one(graph: Graph) -> str:
    names: dict[Value, str] = {}

    def name(value: Value) -> str:
        return names.setdefault(value, f"%{len(names)}")

    def port(p: Port) -> str:
        return "" if p.kind == "argument" and not p.name else f" {p.kind} {json.dumps(p.name)}"

    inputs = (f"{name(v)}: {v.type}{port(p)}" for v, p in zip(graph.inputs, graph.input_ports, strict=True))
    lines = [f"graph {graph.name}({', '.join(inputs)}) {{"]
    for op in graph.operations:
        operands = ", ".join(name(v) for v in op.operands)
        results = ", ".join(f"{name(v)}: {v.type}" for v in op.results)
        attributes = ", ".join(f"{k}={print_attribute(v)}" for k, v in op.attributes.items())
        equals = f"{results} = " if results else ""
        braces = f" {{{attributes}}}" if attributes else ""
        lines.append(f"  {equals}{op.name}({operands}){braces}{print_origin(op.origin)}")
    outputs = (f"{name(v)}{port(p)}" for v, p in zip(graph.outputs, graph.output_ports, strict=True))
    lines.append(f"  return {', '.join(outputs)}".rstrip())
    lines.append("}")
    return "\n".join(lines)


def print_origin(o: Origin) -> str:
    """`` @ "file":line "module" stage ipu phase``, or nothing for the default origin."""
    if o == Origin():
        return ""
    return f" @ {json.dumps(o.file)}:{o.line} {json.dumps(o.module)} {o.stage} {o.ipu} {o.phase}"


def print_attribute(value: Attribute) -> str:
    """One attribute value as text: numbers, strings in quotes, ``true``, ``none``, lists in brackets."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(print_attribute, value))}]"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value)
    return repr(value)


_TOKEN = re.compile(
    r'\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<number>-?(?:inf|nan|\d+(?:\.\d*)?(?:e[+-]?\d+)?)(?![\w.]))'
    r"|(?P<word>%?[A-Za-z_0-9][\w.$]*)|(?P<punct>[(){}\[\],:=@]))"
)


class Scanner:
    """Splits text into tokens for the parsers of the graph and of the schedule."""

    def __init__(self, text: str) -> None:
        self.tokens = list(self._scan(text))
        self.at = 0

    @staticmethod
    def _scan(text: str) -> Iterator[tuple[str, str, int]]:
        position, end = 0, len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                position += len(text[position:]) - len(text[position:].lstrip())
                line = text.count("\n", 0, position) + 1
                raise InvalidOperand(
                    f"Line {line} of the text is not understood near {text[position : position + 20]!r}"
                )
            position = match.end()
            yield str(match.lastgroup), match[str(match.lastgroup)], match.start()

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def take(self, expected: str) -> bool:
        """Consume ``expected`` when it is next."""
        if self.peek() == expected:
            self.at += 1
            return True
        return False

    def expect(self, expected: str) -> None:
        if not self.take(expected):
            raise InvalidOperand(
                f"Expected {expected!r} before {' '.join(t[1] for t in self.tokens[self.at : self.at + 6])!r}"
            )

    def string(self) -> str:
        return json.loads(self.next())

    def integer(self) -> int:
        return int(self.next())

    def attribute(self) -> Attribute:
        if self.take("["):
            items = []
            while not self.take("]"):
                items.append(self.attribute())
                self.take(",")
            return tuple(items)
        kind, token, _ = self.tokens[self.at]
        self.at += 1
        if kind == "string":
            return json.loads(token)
        if token in ("true", "false"):
            return token == "true"
        if token == "none":
            return None
        return int(token) if re.fullmatch(r"-?\d+", token) else float(token)

    def attributes(self) -> dict[str, Attribute]:
        """``{name=value, ...}``, or nothing."""
        done: dict[str, Attribute] = {}
        if self.take("{"):
            while not self.take("}"):
                key = self.next()
                self.expect("=")
                done[key] = self.attribute()
                self.take(",")
        return done

    def type(self) -> TensorType:
        dtype = DType(self.next())
        self.expect("[")
        shape = []
        while not self.take("]"):
            shape.append(self.integer())
            self.take(",")
        return TensorType(tuple(shape), dtype)

    def origin(self) -> Origin:
        if not self.take("@"):
            return Origin()
        file = self.string()
        self.expect(":")
        return Origin(file, self.integer(), self.string(), self.integer(), self.integer(), self.next())


def parse_graph(text: str) -> Graph:
    """The graph that ``print_graph`` printed."""
    scanner = Scanner(text)
    graphs: dict[str, Graph] = {}
    while scanner.peek():
        try:
            graph = _parse_one(scanner)
        except (IndexError, ValueError, TypeError) as error:
            _, token, position = scanner.tokens[min(scanner.at, len(scanner.tokens)) - 1]
            raise InvalidOperand(
                f"The text is not a graph: line {text.count(chr(10), 0, position) + 1}, at {token!r}, cannot be read",
                remedy="Compare it with what `abele opt MODEL` prints.",
            ) from error
        graphs[graph.name] = graph
    if not graphs:
        raise InvalidOperand("The text holds no graph")
    main, *functions = graphs.values()
    return main.replace(functions={f.name: f for f in functions})


def _parse_one(s: Scanner) -> Graph:
    s.expect("graph")
    name = s.next()
    values: dict[str, Value] = {}

    def define() -> Value:
        label = s.next()
        s.expect(":")
        values[label] = Value(s.type())
        return values[label]

    def use() -> Value:
        label = s.next()
        if label not in values:
            raise InvalidOperand(f"{label} is read before it is defined in graph {name!r}")
        return values[label]

    def port() -> Port:
        if s.peek() in (",", ")", "}", ""):
            return Port()
        return Port(s.next(), s.string())

    inputs, input_ports = [], []
    s.expect("(")
    while not s.take(")"):
        inputs.append(define())
        input_ports.append(port())
        s.take(",")
    s.expect("{")
    operations = []
    while not s.take("return"):
        results = []
        while s.tokens[s.at + 1][1] == ":":
            results.append(define())
            s.take(",")
        if results:
            s.expect("=")
        op_name, operands = s.next(), []
        s.expect("(")
        while not s.take(")"):
            operands.append(use())
            s.take(",")
        operations.append(Operation(op_name, tuple(operands), tuple(results), s.attributes(), s.origin()))
    outputs, output_ports = [], []
    while not s.take("}"):
        outputs.append(use())
        output_ports.append(port())
        s.take(",")
    return Graph(name, tuple(inputs), tuple(operations), tuple(outputs), tuple(input_ports), tuple(output_ports), {})

"""The text form of a schedule: prints, and parses back to equal records that print the same.

    schedule mlp {
      system "bow-2000" tiles 8 ipus 1 replicas 1
      inputs data x, state fc.weight
      outputs anchor y
      grid g0 tiles 8 first 0 (m=4:2, n=6:3:2)
      layout l0 g0 [4,3] (0, all)
      plan p0 {
        tmp0 f32[2,4,6]
        matmul_block g0 {width=4} reads (in0 l0, in1 l1 resident) writes (out0 l2)
        home l2
      }
      tensor x: f32[4,3] argument l0 ipu 0
      tensor w: f32[3,6] state l1 ipu 0 source "fc.weight"
      main main(x, w) returns (y) {
        y: f32[4,6] = matmul(x, w) {transpose_a=false} p0 @ "net.py":12 "fc" 0 0 forward
        z: f32[4,6] = repeat body(y, w) {count=4, stages=1}
      }
      function body(a, v) returns (b) {
        ...
      }
    }

Grids, layouts and plans that many steps share stand once, before the tensors, numbered in order of first use.
An axis is ``name=size:parts:grain`` (grain 1 is left out). A layout names its grid, the view of the tensor, and a
span for each dimension: ``all``, an axis number, or ``axis(stride,offset,extent,divide)``. An operand shows its
type only where it is a view of the tensor. Names that are not plain words stand in quotes.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

from abele.errors import InvalidOperand
from abele.ir.graph import Port
from abele.ir.text import Scanner, print_attribute, print_origin
from abele.ir.types import TensorType
from abele.schedule.layout import Axis, Grid, Layout, Span
from abele.schedule.records import (
    Access,
    Call,
    ComputeSet,
    Function,
    Node,
    Plan,
    Repeat,
    Schedule,
    Step,
    Tensor,
    Use,
)


def print_schedule(schedule: Schedule) -> str:
    """The whole schedule as text; one with a ``load`` program is followed by that, in the same form."""
    text = _Printer(schedule).text()
    return text if schedule.load is None else f"{text}\n{print_schedule(schedule.load)}"


def parse_schedule(text: str) -> Schedule:
    """The schedule that ``print_schedule`` printed; raises ``InvalidOperand`` where the text is not understood."""
    parser = _Parser(Scanner(text))
    try:
        return parser.whole()
    except (ValueError, IndexError) as error:
        scanner = parser.s
        position = scanner.tokens[min(scanner.at, len(scanner.tokens)) - 1][2] if scanner.tokens else 0
        line = text.count("\n", 0, position) + 1
        near = text[position : position + 30]
        raise InvalidOperand(f"Line {line} of the schedule is not understood near {near!r}: {error}") from error


def _name(text: str) -> str:
    plain = re.fullmatch(r"%?[A-Za-z_][\w.$]*", text) and text not in ("inf", "nan")
    return text if plain else json.dumps(text)


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(map(_name, names))


def _shape(shape: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, shape))}]"


class _Printer:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.numbers: dict[str, dict[str, str]] = {"g": {}, "l": {}, "p": {}}
        self.seen: dict[int, str] = {}
        self.shared: list[str] = []

    def text(self) -> str:
        s = self.schedule
        tensors = [self._tensor(t) for t in s.tensors.values()]
        functions = [line for f in s.all_functions() for line in self._function(f)]
        apart = f" io_tiles {s.io_tiles}" if s.io_tiles else ""
        lines = [
            f"schedule {_name(s.name)} {{",
            f"  system {json.dumps(s.system)} tiles {s.tiles} ipus {s.ipus} replicas {s.replicas}{apart}",
            *(self._ports("inputs", s.input_ports)),
            *(self._ports("outputs", s.output_ports)),
            *(f"  {line}" for line in [*self.shared, *tensors, *functions]),
            "}",
        ]
        return "\n".join(lines) + "\n"

    @staticmethod
    def _ports(word: str, ports: tuple[Port, ...]) -> list[str]:
        return [f"  {word} {', '.join(f'{p.kind} {_name(p.name)}' for p in ports)}"] if ports else []

    def _number(self, kind: str, record: object, body: str, head: str, more: list[str] | None = None) -> str:
        """The number of a shared entry, which is written out when it is new. Entries are equal when their text is."""
        known = self.numbers[kind]
        key = "\n".join([body, *(more or [])])
        if key not in known:
            known[key] = f"{kind}{len(known)}"
            self.shared.append(f"{head} {known[key]} {body}")
            self.shared.extend(more or [])
        self.seen[id(record)] = known[key]
        return known[key]

    def _grid(self, grid: Grid) -> str:
        def axis(a: Axis) -> str:
            grain = f":{a.grain}" if a.grain != 1 else ""
            return f"{_name(a.name)}={a.size}:{a.parts}{grain}"

        if id(grid) in self.seen:
            return self.seen[id(grid)]
        body = f"tiles {grid.tiles} first {grid.first} ({', '.join(map(axis, grid.axes))})"
        return self._number("g", grid, body, "grid")

    def _layout(self, layout: Layout) -> str:
        def span(s: Span) -> str:
            if s.axis is None:
                return "all" if s == Span() else f"all({s.stride},{s.offset},{s.extent},{s.divide})"
            plain = s == Span(s.axis)
            return f"{s.axis}" if plain else f"{s.axis}({s.stride},{s.offset},{s.extent},{s.divide})"

        if id(layout) in self.seen:
            return self.seen[id(layout)]
        body = f"{self._grid(layout.grid)} {_shape(layout.shape)} ({', '.join(map(span, layout.spans))})"
        return self._number("l", layout, body, "layout")

    def _plan(self, plan: Plan) -> str:
        if id(plan) in self.seen:
            return self.seen[id(plan)]
        lines = [f"  tmp{i} {t}" for i, t in enumerate(plan.temporaries)]
        for cs in plan.sets:
            attributes = f" {_attributes(cs.attributes)}" if cs.attributes else ""
            reads, writes = (", ".join(map(self._access, accesses)) for accesses in (cs.reads, cs.writes))
            grid = self._grid(cs.grid)
            lines.append(f"  {_name(cs.vertex)} {grid}{attributes} reads ({reads}) writes ({writes})")
        lines += [f"  home {self._layout(home)}" for home in plan.homes]
        return self._number("p", plan, "{", "plan", [*lines, "}"])

    def _access(self, access: Access) -> str:
        resident = " resident" if access.resident else ""
        over = f" over {_name(access.over)}" if access.over else ""
        return f"{_name(access.name)} {self._layout(access.layout)}{resident}{over}"

    def _tensor(self, t: Tensor) -> str:
        source = f" source {json.dumps(t.source)}" if t.source else ""
        return f"tensor {_name(t.name)}: {t.type} {t.kind} {self._layout(t.home)} ipu {t.ipu}{source}"

    def _function(self, f: Function) -> list[str]:
        word = "main" if f is self.schedule.main else "function"
        head = f"{word} {_name(f.name)}({_names(f.parameters)}) returns ({_names(f.results)}) {{"
        return [head, *(f"  {self._node(node)}" for node in f.nodes), "}"]

    def _node(self, node: Node) -> str:
        origin = print_origin(node.origin)
        if isinstance(node, Step):
            results = ", ".join(f"{_name(u.tensor)}: {u.type}" for u in node.results)
            equals = f"{results} = " if results else ""
            attributes = f" {_attributes(node.attributes)}" if node.attributes else ""
            operands = ", ".join(map(self._use, node.operands))
            beside = " beside" if node.beside else ""
            return f"{equals}{_name(node.operation)}({operands}){attributes} {self._plan(node.plan)}{beside}{origin}"
        results = ", ".join(f"{_name(n)}: {self.schedule.tensors[n].type}" for n in node.results)
        equals = f"{results} = " if results else ""
        inside = f"{_name(node.function)}({_names(node.operands)})"
        if isinstance(node, Call):
            return f"{equals}call {inside}{origin}"
        kind = {"pipeline": node.pipeline} if node.stages > 1 else {}
        attributes = {"count": node.count, "stages": node.stages, **kind}
        return f"{equals}repeat {inside} {_attributes(attributes)}{origin}"

    def _use(self, use: Use) -> str:
        own = self.schedule.tensors[use.tensor].type
        return _name(use.tensor) if use.type == own else f"{_name(use.tensor)}: {use.type}"


def _attributes(attributes) -> str:
    return f"{{{', '.join(f'{k}={print_attribute(v)}' for k, v in attributes.items())}}}"


class _Parser:
    def __init__(self, scanner: Scanner) -> None:
        self.s = scanner
        self.grids: dict[str, Grid] = {}
        self.layouts: dict[str, Layout] = {}
        self.plans: dict[str, Plan] = {}
        self.tensors: dict[str, Tensor] = {}

    def whole(self) -> Schedule:
        """The schedule, with the ``load`` program that may follow it."""
        main = self.schedule()
        if self.s.peek() == "schedule":
            main = replace(main, load=_Parser(self.s).whole())
        if self.s.peek():
            raise InvalidOperand(f"The text goes on after the schedule, with {self.s.peek()!r}")
        return main

    def schedule(self) -> Schedule:
        s = self.s
        s.expect("schedule")
        name = self._name()
        s.expect("{")
        s.expect("system")
        system = s.string()
        tiles, ipus, replicas = (self._labelled(word) for word in ("tiles", "ipus", "replicas"))
        io_tiles = self._labelled("io_tiles") if s.peek() == "io_tiles" else 0
        inputs, outputs = self._ports("inputs"), self._ports("outputs")
        entries = {"grid": self._grid, "layout": self._layout, "plan": self._plan, "tensor": self._tensor}
        while s.peek() in entries:
            entries[s.next()]()
        s.expect("main")
        main = self._function()
        functions: dict[str, Function] = {}
        while s.take("function"):
            function = self._function()
            functions[function.name] = function
        s.expect("}")
        ports = tuple(inputs), tuple(outputs)
        return Schedule(name, system, tiles, ipus, replicas, self.tensors, main, functions, *ports, io_tiles=io_tiles)

    def _name(self) -> str:
        if self.s.at >= len(self.s.tokens):
            raise InvalidOperand("The text of the schedule ends in the middle")
        kind, token, _ = self.s.tokens[self.s.at]
        self.s.at += 1
        return json.loads(token) if kind == "string" else token

    def _labelled(self, word: str) -> int:
        self.s.expect(word)
        return self.s.integer()

    def _list(self, item) -> tuple:
        """``(item, item ...)``."""
        self.s.expect("(")
        found = []
        while not self.s.take(")"):
            found.append(item())
            if self.s.peek() != ")":
                self.s.expect(",")
        return tuple(found)

    def _find(self, known: dict, what: str):
        label = self.s.next()
        if label not in known:
            raise InvalidOperand(f"The text names the {what} {label!r}, which it does not define before")
        return known[label]

    def _ports(self, word: str) -> list[Port]:
        found = []
        if self.s.take(word):
            found.append(Port(self.s.next(), self._name()))
            while self.s.take(","):
                found.append(Port(self.s.next(), self._name()))
        return found

    def _shape(self) -> tuple[int, ...]:
        shape = self.s.attribute()
        if not isinstance(shape, tuple):
            raise InvalidOperand(f"Expected a shape, not {shape!r}")
        return shape  # type: ignore[return-value]

    def _grid(self) -> None:
        def axis() -> Axis:
            name = self._name()
            self.s.expect("=")
            size = self.s.integer()
            self.s.expect(":")
            parts = self.s.integer()
            return Axis(name, size, parts, self.s.integer() if self.s.take(":") else 1)

        label = self.s.next()
        tiles, first = self._labelled("tiles"), self._labelled("first")
        self.grids[label] = Grid(self._list(axis), tiles, first)

    def _layout(self) -> None:
        def span() -> Span:
            word = self.s.next()
            axis = None if word == "all" else int(word)
            numbers = self._list(self.s.integer) if self.s.peek() == "(" else ()
            return Span(axis, *numbers)

        label = self.s.next()
        self.layouts[label] = Layout(self._find(self.grids, "grid"), self._shape(), self._list(span))

    def _access(self) -> Access:
        name, layout, resident = self._name(), self._find(self.layouts, "layout"), self.s.take("resident")
        return Access(name, layout, resident, self._name() if self.s.take("over") else "")

    def _plan(self) -> None:
        s = self.s
        label, temporaries, sets, homes = s.next(), [], [], []
        s.expect("{")
        while s.peek() == f"tmp{len(temporaries)}":
            s.next()
            temporaries.append(s.type())
        while s.peek() not in ("home", "}"):
            vertex, grid, attributes = self._name(), self._find(self.grids, "grid"), s.attributes()
            s.expect("reads")
            reads = self._list(self._access)
            s.expect("writes")
            sets.append(ComputeSet(vertex, grid, reads, self._list(self._access), attributes))
        while s.take("home"):
            homes.append(self._find(self.layouts, "layout"))
        s.expect("}")
        self.plans[label] = Plan(tuple(sets), tuple(temporaries), tuple(homes))

    def _tensor(self) -> None:
        name = self._name()
        self.s.expect(":")
        type_, kind, home = self.s.type(), self.s.next(), self._find(self.layouts, "layout")
        ipu = self._labelled("ipu")
        source = self.s.string() if self.s.take("source") else ""
        self.tensors[name] = Tensor(name, type_, kind, home, ipu, source)

    def _function(self) -> Function:
        name, parameters = self._name(), self._list(self._name)
        self.s.expect("returns")
        results = self._list(self._name)
        self.s.expect("{")
        nodes = []
        while not self.s.take("}"):
            nodes.append(self._node())
        return Function(name, parameters, results, tuple(nodes))

    def _use(self) -> Use:
        name = self._name()
        if self.s.take(":"):
            return Use(name, self.s.type())
        return Use(name, self._own(name))

    def _own(self, name: str) -> TensorType:
        if name not in self.tensors:
            raise InvalidOperand(f"The text uses the tensor {name!r}, which it does not define")
        return self.tensors[name].type

    def _node(self) -> Node:
        s = self.s
        results: list[Use] = []
        word = self._name()
        while s.take(":"):
            results.append(Use(word, s.type()))
            s.expect("," if s.peek() == "," else "=")
            word = self._name()
        if word in ("call", "repeat") and s.peek() != "(":
            return self._control(word, results)
        operands, attributes = self._list(self._use), s.attributes()
        plan, beside = self._find(self.plans, "plan"), s.take("beside")
        return Step(word, operands, tuple(results), attributes, plan, s.origin(), beside)

    def _control(self, word: str, results: list[Use]) -> Node:
        for use in results:
            if self._own(use.tensor) != use.type:
                raise InvalidOperand(f"The {word} makes {use.tensor!r} as {use.type}, it is {self._own(use.tensor)}")
        names = tuple(use.tensor for use in results)
        function, operands = self._name(), self._list(self._name)
        if word == "call":
            return Call(function, operands, names, self.s.origin())
        attributes = self.s.attributes()
        count, stages = attributes.get("count"), attributes.get("stages")
        if not isinstance(count, int) or not isinstance(stages, int):
            raise InvalidOperand(f"The repeat of {function!r} lacks its count or stages")
        pipeline = str(attributes.get("pipeline", "grouped"))
        return Repeat(function, count, operands, names, stages, self.s.origin(), pipeline)

"""Named rules that every graph obeys. Passes run them before and after; a broken rule is a fault of Abele."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from abele.errors import AbeleError, Bug
from abele.ir.graph import INPUT_KINDS, OUTPUT_KINDS, Graph, Operation, Value
from abele.ir.operation import OPERATIONS, complete_attributes, infer_types

Rule = Callable[[Graph, Graph], Iterator[str]]
RULES: dict[str, Rule] = {}

OperationRule = Callable[[Operation], Iterator[str]]
OPERATION_RULES: dict[str, OperationRule] = {}


def rule(name: str) -> Callable[[Rule], Rule]:
    """Register a rule: a generator of complaints about ``graph``, one of the graphs of the program ``top``."""

    def add(function: Rule) -> Rule:
        RULES[name] = function
        return function

    return add


def operation_rule(name: str) -> Callable[[OperationRule], OperationRule]:
    """Register a rule about one operation by itself, wherever it stands: a generator of complaints."""

    def add(function: OperationRule) -> OperationRule:
        OPERATION_RULES[name] = function
        return function

    return add


def check(graph: Graph, obeying: set[Operation] | None = None) -> Graph:
    """Run every rule over the graph and its functions; raises ``Bug`` with all complaints, else returns it.

    Args:
        obeying: operations that are known to be registered and typed, which they are for good; those that are found so
            here are added.
    """
    known = set[Operation]() if obeying is None else obeying
    found = []
    for g in graph.all_graphs():
        complaints = [f"{name} (graph {g.name}): {c}" for name, function in RULES.items() for c in function(g, graph)]
        new = [op for op in g.operations if op not in known]
        for name, each in OPERATION_RULES.items():
            complaints += [f"{name} (graph {g.name}): {c}" for op in new for c in each(op)]
        if complaints:
            found += complaints
        else:
            known.update(new)
    if found:
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise Bug("The graph breaks a rule: " + "; ".join(found[:5]) + more)
    return graph


@rule("defined-once")
def defined_once(graph: Graph, top: Graph) -> Iterator[str]:
    """Every value is made once, by an input or by one operation."""
    seen: set[Value] = set(graph.inputs)
    if len(seen) != len(graph.inputs):
        yield "an input stands twice"
    for index, op in enumerate(graph.operations):
        for value in op.results:
            if value in seen:
                yield f"a result of {op.name} (operation {index}) is made twice"
            seen.add(value)


@rule("defined-before-use")
def defined_before_use(graph: Graph, top: Graph) -> Iterator[str]:
    """Nothing is read before it is made."""
    seen = set(graph.inputs)
    for index, op in enumerate(graph.operations):
        for position, value in enumerate(op.operands):
            if value not in seen:
                yield f"operand {position} of {op.name} (operation {index}, {op.origin.where}) is not made yet"
        seen.update(op.results)
    for position, value in enumerate(graph.outputs):
        if value not in seen:
            yield f"output {position} is never made"


@operation_rule("registered")
def registered(op: Operation) -> Iterator[str]:
    """An operation is in the registry, with exactly its declared attributes."""
    if op.name in CONTROL or _obeys(op):
        return
    if op.name not in OPERATIONS:
        yield f"{op.name} is not registered"
        return
    try:
        complete = complete_attributes(op.name, op.attributes)
    except AbeleError as error:
        yield str(error)
        return
    if list(complete) != list(op.attributes):
        yield f"{op.name} has attributes {list(op.attributes)}, not {list(complete)}"


@operation_rule("typed")
def typed(op: Operation) -> Iterator[str]:
    """The results of an operation have the types that its type rule gives."""
    if op.name in CONTROL or op.name not in OPERATIONS or _obeys(op):
        return
    try:
        types = infer_types(op.name, [v.type for v in op.operands], op.attributes)
    except AbeleError as error:
        yield f"{op.name}: {error}"
        return
    if types != tuple(v.type for v in op.results):
        have = ", ".join(str(v.type) for v in op.results)
        yield f"{op.name} makes ({have}), its rule says ({', '.join(map(str, types))})"


_OBEYED: dict[tuple, object] = {}
"""Operations that were found to be registered and typed, as their entry in the registry: the same ones come again
after every pass and in every graph of a search."""


def _obeys(op: Operation) -> bool:
    """Whether an operation of the registry has its declared attributes and the types of its rule."""
    entry = OPERATIONS.get(op.name)
    types = tuple(v.type for v in op.operands), tuple(v.type for v in op.results)
    key = (op.name, *types, tuple(op.attributes.items()))
    if entry is None:
        return False
    if _OBEYED.get(key) is not entry:
        try:
            complete = complete_attributes(op.name, op.attributes)
            if list(complete) != list(op.attributes) or infer_types(op.name, types[0], op.attributes) != types[1]:
                return False
        except AbeleError:
            return False
        if len(_OBEYED) > 65536:
            _OBEYED.clear()
        _OBEYED[key] = entry
    return True


CONTROL = ("call", "repeat")


@rule("calls")
def calls(graph: Graph, top: Graph) -> Iterator[str]:
    """A call names a function of the program and fits its inputs and outputs; a repeat carries like types."""
    for op in graph.operations:
        if op.name not in CONTROL:
            continue
        name = op.attributes.get("function")
        callee = top.functions.get(str(name))
        if callee is None:
            yield f"{op.name} of {name!r}, which is not a function"
            continue
        if [v.type for v in op.operands] != [v.type for v in callee.inputs]:
            yield f"{op.name} of {name}: operands do not fit its inputs"
        if [v.type for v in op.results] != [v.type for v in callee.outputs]:
            yield f"{op.name} of {name}: results do not fit its outputs"
        if op.name == "repeat" and [v.type for v in op.results] != [v.type for v in op.operands[: len(op.results)]]:
            yield f"repeat of {name}: what it carries changes its type"


@rule("ports")
def ports(graph: Graph, top: Graph) -> Iterator[str]:
    """Ports have known kinds, run parallel to the values, and a state output has a state input of its type."""
    if len(graph.inputs) != len(graph.input_ports) or len(graph.outputs) != len(graph.output_ports):
        yield "ports and values differ in number"
        return
    yield from (f"input kind {p.kind!r}" for p in graph.input_ports if p.kind not in INPUT_KINDS)
    yield from (f"output kind {p.kind!r}" for p in graph.output_ports if p.kind not in OUTPUT_KINDS)
    states = graph.inputs_of("state")
    for name, value in graph.outputs_of("state").items():
        if name not in states:
            yield f"state output {name!r} has no state input"
        elif states[name].type != value.type:
            yield f"state {name!r} goes in as {states[name].type} and comes out as {value.type}"

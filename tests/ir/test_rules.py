"""Each named rule catches what it is there for."""

from dataclasses import replace

import pytest

import abele.ops  # noqa: F401
from abele.errors import Bug
from abele.ir import Builder, Graph, Operation, Port, Value, check, f16, f32, parse_graph, print_graph
from abele.ir.rules import OPERATION_RULES, RULES


def small() -> Graph:
    b = Builder("main")
    x = b.input(f32(2, 3), "data", "x")
    return b.finish([b.relu(b.tanh(x))], [Port("anchor", "y")])


def broken(rule: str, graph: Graph) -> None:
    with pytest.raises(Bug, match=rule):
        check(graph)


def test_a_good_graph_passes():
    graph = small()
    assert check(graph) is graph


def test_value_made_twice():
    graph = small()
    first = graph.operations[0]
    again = replace(graph.operations[1], results=first.results)
    broken("made twice", graph.replace(operations=(first, again), outputs=first.results))


def test_read_before_it_is_made():
    graph = small()
    broken("defined-before-use", graph.replace(operations=graph.operations[::-1]))
    broken("output 0 is never made", graph.replace(outputs=(Value(f32(2, 3)),)))


def test_unknown_operation_and_attributes():
    graph = small()
    x = graph.inputs[0]
    broken("not registered", graph.replace(operations=(Operation("frob", (x,), (Value(f32()),)), *graph.operations)))
    extra = Operation("relu", (x,), (Value(x.type),), {"slope": 1})
    broken("registered", graph.replace(operations=(extra, *graph.operations)))


def test_wrong_result_type():
    graph = small()
    wrong = Operation("relu", graph.inputs, (Value(f16(2, 3)),))
    broken("typed", graph.replace(operations=(wrong, *graph.operations)))


def test_calls():
    body = Builder("body")
    x = body.input(f32(2, 3))
    function = body.finish([body.relu(x)])
    b = Builder("main", {"body": function})
    y = b.input(f32(2, 3))
    graph = b.finish(b.call("body", [y]))
    check(graph)
    broken("not a function", graph.replace(functions={}))
    other = Operation("call", (Value(f32(4)),), graph.operations[0].results, {"function": "body"})
    broken("calls", graph.replace(inputs=other.operands, operations=(other,), input_ports=(Port(),)))


def test_repeat_carries_like_types():
    body = Builder("body")
    x = body.input(f32(2, 3))
    function = body.finish([body.cast(x, dtype="f16")])
    b = Builder("main", {"body": function})
    y = b.input(f32(2, 3))
    broken("changes its type", b.finish(b.repeat("body", 2, [y])))


def test_ports():
    graph = small()
    broken("input kind", graph.replace(input_ports=(Port("inlet", "x"),)))
    broken("has no state input", graph.replace(output_ports=(Port("state", "w"),)))
    broken("differ in number", graph.replace(output_ports=(Port(), Port())))


def test_every_rule_has_a_test_of_its_own():
    text = "single-assignment defined-before-use registered typed calls ports"
    assert len(RULES) + len(OPERATION_RULES) == len(text.split()), f"rules: {list(RULES)}"


def test_functions_are_checked_too():
    body = Builder("body")
    x = body.input(f32(2))
    function = body.finish([body.relu(x)])
    wrong = function.replace(operations=(Operation("relu", (x,), (Value(f32(3)),)),))
    b = Builder("main", {"body": wrong})
    broken("graph body", b.finish([b.relu(b.input(f32(2)))]))
    assert print_graph(parse_graph(print_graph(small())))

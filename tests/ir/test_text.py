"""The text form prints, parses back, and says where it is wrong."""

import math
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import abele.ops  # noqa: F401
from abele.errors import InvalidOperand
from abele.ir import Builder, Origin, Port, check, evaluate, f32, i32, parse_graph, print_graph
from abele.ir.text import Scanner, print_attribute

attributes = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False)
    | st.text(string.printable, max_size=12),
    lambda inner: st.lists(inner, max_size=4).map(tuple),
    max_leaves=8,
)


@given(attributes)
def test_attributes_round_trip(value):
    back = Scanner(print_attribute(value)).attribute()
    assert back == value and repr(back) == repr(value)


def test_nan_round_trips():
    back = Scanner(print_attribute(math.nan)).attribute()
    assert isinstance(back, float) and math.isnan(back)


def program():
    """A loop of a function, a stream port of each kind, origins and awkward names."""
    body = Builder("body")
    x, w = body.input(f32(2, 3)), body.input(f32(3))
    function = body.finish([body.tanh(body.mul(x, w))])
    b = Builder("main", {"body": function})
    data = b.input(f32(2, 3), "data", 'the "x"\n')
    weight = b.input(f32(3), "state", "fc.weight")
    rate = b.input(f32(), "hyper", "lr")
    with b.at(Origin("net v2.py", 12, "encoder.layer.0", 1, 2, "backward")):
        (turned,) = b.repeat("body", 3, [data, weight])
        (once,) = b.call("body", [turned, weight])
    new = b.sub(weight, b.mul(rate, b.reduce_sum(once, axes=(0,))))
    values, indices = b.top_k(once, k=2, axis=1, largest=True)
    padded = b.pad(values, low=(0, 1), high=(0, 0), value=-math.inf)
    return b.finish([padded, indices, new], [Port("anchor", "y"), Port("anchor", "at"), Port("state", "fc.weight")])


def test_a_program_round_trips():
    graph = check(program())
    text = print_graph(graph)
    back = check(parse_graph(text))
    assert print_graph(back) == text
    assert str(back) == text
    assert [op.origin for op in back.operations] == [op.origin for op in graph.operations]
    assert [op.attributes for op in back.operations] == [dict(op.attributes) for op in graph.operations]
    assert back.functions.keys() == graph.functions.keys()


def test_the_parsed_graph_means_the_same():
    import numpy as np

    graph = program()
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs]
    for a, b in zip(evaluate(graph, inputs), evaluate(parse_graph(print_graph(graph)), inputs), strict=True):
        np.testing.assert_array_equal(a, b)


@settings(max_examples=30)
@given(st.lists(st.sampled_from(["relu", "neg", "tanh", "abs"]), max_size=6), st.booleans())
def test_chains_round_trip(names, twice):
    b = Builder("chain")
    value = b.input(f32(2, 2), "data", "x")
    for name in names:
        value = b.emit(name, [value])[0]
    graph = b.finish([value, value] if twice else [value])
    assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no graph"),
        ("graph main(%0: f32[2]) {\n  return %1\n}", "%1 is read before it is defined"),
        ("graph main(%0 f32[2]) {\n  return %0\n}", "Expected ':'"),
        ("graph main(%0: f32[2]) {\n  § return %0\n}", "Line 2"),
    ],
)
def test_a_mistake_is_named(text, message):
    with pytest.raises(InvalidOperand, match=message):
        parse_graph(text)


def test_print_is_deterministic():
    assert print_graph(program()) == print_graph(program())
    assert "i32" in print_graph(program()) and str(i32(2, 2)) in print_graph(program())

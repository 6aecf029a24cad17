"""Builders infer types, keep origins, and name the user's line in what they refuse."""

import numpy as np
import pytest

import abele.ops  # noqa: F401
from abele.errors import InvalidOperand, Unsupported
from abele.ir import Builder, Composite, Host, Origin, evaluate, expansion, f16, f32, flops, lookup


def test_methods_are_operations():
    b = Builder("main")
    x = b.input(f32(2, 3))
    assert b.add(x, b.constant(1.0, x.dtype)).type == f32(2, 3)
    values, indices = b.top_k(x, k=2, axis=1)
    assert (values.type, str(indices.type)) == (f32(2, 2), "i32[2,2]")
    assert [op.name for op in b.operations] == ["fill", "add", "top_k"]


def test_defaults_are_filled_in_declared_order():
    b = Builder("main")
    b.reduce_sum(b.input(f32(2, 3)), axes=[1])
    assert dict(b.operations[0].attributes) == {"axes": (1,), "keep": False}
    with pytest.raises(InvalidOperand, match="needs the attribute 'axes'"):
        b.reduce_sum(b.input(f32(2)))
    with pytest.raises(InvalidOperand, match=r"no attribute 'axis'.*Did you mean 'axes'"):
        b.reduce_sum(b.input(f32(2)), axis=0)


def test_unknown_operation_suggests():
    with pytest.raises(Unsupported, match="Did you mean"):
        Builder("main").rellu()


def test_origin_is_kept_and_named():
    b = Builder("main")
    x, y = b.input(f32(2, 3)), b.input(f32(4))
    with b.at(Origin("net.py", 7, "fc")):
        assert b.emit("relu", [x]) and b.operations[-1].origin.line == 7
        with pytest.raises(InvalidOperand, match=r"Operand 1 of add.*net\.py:7 in fc"):
            b.add(x, y)
    b.relu(x)
    assert b.operations[-1].origin == Origin()


def test_inline_copies():
    inner = Builder("inner")
    x = inner.input(f32(2))
    graph = inner.finish([inner.exp(x), x])
    b = Builder("main")
    a = b.input(f32(2))
    with b.at(Origin("net.py", 3)):
        first, second = b.inline(graph, [b.neg(a)])
    assert first.type == f32(2) and second is b.operations[0].result
    assert b.operations[-1].origin.line == 3


def test_expansions_are_shared_and_composites_count_flops():
    types, attributes = [f32(3, 5)], {"approximate": "none"}
    assert isinstance(lookup("gelu"), Composite)
    assert expansion("gelu", types, attributes) is expansion("gelu", types, attributes)
    b = Builder("main")
    b.gelu(b.input(f16(3, 5)))
    assert flops(b.operations[0]) > 15


def test_host_streams_and_loops():
    body = Builder("body")
    total = body.input(f32(2))
    loaded = body.host_load(stream="x", shape=(2,), dtype="f32")
    more = body.add(total, loaded)
    body.emit("host_store", [more], {"stream": "y"})
    b = Builder("main", {"body": body.finish([more])})
    start = b.input(f32(2))
    graph = b.finish(b.repeat("body", 3, [start]))
    host = Host({"x": [np.full(2, n, np.float32) for n in (1, 2, 3)]})
    (done,) = evaluate(graph, [np.zeros(2, np.float32)], host)
    np.testing.assert_array_equal(done, [6, 6])
    assert [a[0] for a in host.outputs["y"]] == [1, 3, 6]

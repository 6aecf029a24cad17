"""Elementwise, reductions and shapes over many drawn shapes: references, gradients' shapes, plans, and errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from abele.errors import InvalidOperand
from abele.ir import (
    Arg,
    Builder,
    DType,
    Sample,
    TensorType,
    boolean,
    evaluate,
    evaluate_operation,
    f16,
    f32,
    i32,
    infer_types,
)
from abele.ops.elementwise.expression import operand_dtype
from abele.ops.elementwise.functions import FUNCTIONS
from abele.ops.hosts.expressions import node
from abele.ops.plans.layouts import even, flat
from abele.schedule.geometry import kept
from tests.ops.harness import Case, assert_close, cotangents, gradients, machine, plan_and_run, to_torch, twin_gradients

sizes = st.integers(0, 6)
shapes = st.lists(sizes, min_size=0, max_size=4).map(tuple)
MANY = settings(max_examples=40, deadline=None)


@st.composite
def broadcasts(draw):
    """Two shapes that broadcast."""
    full = draw(shapes)
    pair = []
    for _ in range(2):
        kept = tuple(draw(st.sampled_from([n, 1])) for n in full)
        pair.append(kept[draw(st.integers(0, len(full))) :])
    return pair


def case(name: str, operands, attributes=None) -> Case:
    return Case(name, 0, Sample(tuple(a if isinstance(a, Arg) else Arg(a) for a in operands), attributes or {}))


def check_all(c: Case, gradient: bool = True) -> None:
    """Reference and gradient against torch, and plans on a few tiles from several homes."""
    from tests.ops.harness import twin_results

    values = c.values()
    (actual,) = evaluate_operation(c.name, values, c.attributes, c.results)
    (expected,) = twin_results(c, [to_torch(v) for v in values])
    assert_close(actual, expected.numpy(), c.results[0], c.id)
    if gradient:
        weights = cotangents(c)
        sizes = twin_gradients(c, [np.abs(v) for v in values], [w if w is None else np.abs(w) for w in weights])
        found = zip(gradients(c, values, weights), twin_gradients(c, values, weights), sizes, strict=True)
        for i, (a, e, size) in enumerate(found):
            assert_close(a, e, c.operands[i], f"gradient {i}", summed=np.abs(size))
    for tiles, home in ((3, flat), (7, even)):
        chip = machine(tiles)
        plan_and_run(c, chip, [home(t, chip) for t in c.operands], first=1)


@MANY
@given(broadcasts(), st.sampled_from(["add", "mul", "sub", "max"]))
def test_broadcasts(pair, name):
    check_all(case(name, [f32(*s) for s in pair]))


@MANY
@given(broadcasts())
def test_half_broadcasts(pair):
    c = case("mul", [f16(*s) for s in pair])
    values, weights = c.values(), cotangents(c)
    for i, (a, e) in enumerate(zip(gradients(c, values, weights), twin_gradients(c, values, weights), strict=True)):
        assert_close(a, e, c.operands[i], f"gradient {i}")


@MANY
@given(shapes, st.data())
def test_reductions(shape, data):
    axes = tuple(d for d in range(len(shape)) if data.draw(st.booleans()))
    name = data.draw(st.sampled_from(["reduce_sum", "reduce_max", "reduce_prod"]))
    empty = any(shape[d] == 0 for d in axes)
    check_all(case(name, [f32(*shape)], {"axes": axes, "keep": data.draw(st.booleans())}), not empty)


@MANY
@given(shapes, st.data())
def test_slices(shape, data):
    cuts = []
    for n in shape:
        start = data.draw(st.integers(0, n))
        cuts.append((start, data.draw(st.integers(start, n)), data.draw(st.integers(1, 3))))
    starts, stops, steps = zip(*cuts, strict=True) if cuts else ((), (), ())
    check_all(case("slice", [f32(*shape)], {"starts": starts, "stops": stops, "steps": steps}))


@MANY
@given(shapes, st.data())
def test_pads_and_transposes(shape, data):
    low, high = (tuple(data.draw(st.integers(0, 3)) for _ in shape) for _ in range(2))
    check_all(case("pad", [f32(*shape)], {"low": low, "high": high, "value": 1.5}))
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    check_all(case("transpose", [f32(*shape)], {"permutation": order}))


@MANY
@given(st.lists(sizes, min_size=1, max_size=3), st.lists(sizes, min_size=1, max_size=4), st.data())
def test_concats(shape, lengths, data):
    axis = data.draw(st.integers(0, len(shape) - 1))
    operands = [f32(*shape[:axis], n, *shape[axis + 1 :]) for n in lengths]
    check_all(case("concat", operands, {"axis": axis}))


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_reductions_in_stages(axes):
    """More partials than one tile should take: three stages."""
    c = case("reduce_sum", [f32(700, 9)], {"axes": axes, "keep": False})
    plan = plan_and_run(c, machine(200), [flat(c.operands[0], machine(200))])
    assert plan.homes[0].is_partition
    c = case("arg_max", [Arg(f32(1, 6000), "distinct")], {"axis": 1, "keep": False})
    assert len(plan_and_run(c, machine(200)).sets) == 3


def test_a_chain_stays_where_it_is():
    """Elementwise work follows the home of its largest operand and reads it without exchange."""
    chip = machine(16)
    home = even(f32(32, 64), chip, 3)
    plan = plan_and_run(case("add", [f32(32, 64), f32(64)]), chip, [home, flat(f32(64), chip)])
    first, second = plan.sets[0].reads
    assert first.resident and not second.resident
    assert plan.homes[0] == home
    again = plan_and_run(case("mul", [f32(32, 64), f32(32, 64)]), chip, [plan.homes[0], home])
    assert all(access.resident for access in again.sets[0].reads)


def test_integers_divided_by_zero_are_zero():
    a, b = np.array([7, -7], np.int32), np.array([0, 0], np.int32)
    for name in ("floor_div", "rem", "fmod"):
        np.testing.assert_array_equal(evaluate_operation(name, [a, b], {}, [i32(2)])[0], [0, 0])


def test_casts_saturate():
    x = np.array([1e12, -1e12, np.nan, 2.7, -2.7, np.inf], np.float32)
    (done,) = evaluate_operation("cast", [x], {"dtype": "i8"}, [TensorType((6,), DType.I8)])
    np.testing.assert_array_equal(done, [127, -128, 0, 2, -2, 127])


def test_maximum_keeps_nan():
    a, b = np.array([np.nan, 1], np.float32), np.array([0, np.nan], np.float32)
    assert np.isnan(evaluate_operation("max", [a, b], {}, [f32(2)])[0]).all()
    x = np.array([1, np.nan, 3], np.float32)
    assert np.isnan(evaluate_operation("reduce_max", [x], {"axes": (0,), "keep": False}, [f32()])[0])


def test_a_product_with_zeros_has_a_gradient():
    x = torch.tensor([[0.0, 2.0, 3.0], [0.0, 0.0, 3.0]], dtype=torch.float64, requires_grad=True)
    x.prod(1).sum().backward()
    c = case("reduce_prod", [f32(2, 3)], {"axes": (1,), "keep": False})
    (found,) = gradients(c, [x.detach().numpy().astype(np.float32)], [np.ones(2, np.float32)])
    np.testing.assert_array_equal(found, x.grad.numpy())


@pytest.mark.parametrize("name", ["softplus", "silu", "gelu", "log_sigmoid", "mish", "norm", "logsumexp"])
def test_extreme_values_have_finite_gradients(name):
    reduction = {"norm": {"axes": (1,)}, "logsumexp": {"axes": (1,)}}.get(name, {})
    c = case(name, [f32(3, 2)], reduction)
    x = np.array([[80.0, -80.0], [0.0, 0.0], [1e4, -1e4]], np.float32)
    weights = [np.ones(c.results[0].shape, np.float32)]
    (found,) = gradients(c, [x], weights)
    (expected,) = twin_gradients(c, [x], weights)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_has_an_emitter(name):
    kind = {"bool": "bool", "bits": "i32", "integer": "i32"}.get(FUNCTIONS[name].kinds, "f32")
    dtype = "bool" if FUNCTIONS[name].truth else kind
    operands = range(FUNCTIONS[name].arity)
    assert node(name, dtype, operands, [kind for _ in operands], ()), "no emitter in codegen/expression.py"


@pytest.mark.parametrize(
    ("name", "operands", "attributes", "message"),
    [
        ("add", [f32(2), f32(3)], {}, r"Operand 1 of add, f32\[3\], does not broadcast"),
        ("add", [f32(2), f16(2)], {}, "put a cast"),
        ("add", [f32(2)], {}, "takes 2 operands, not 1"),
        ("exp", [i32(2)], {}, "must be f32 or f16"),
        ("select", [f32(2), f32(2), f32(2)], {}, "condition"),
        ("cast", [f32(2)], {"dtype": "f64"}, "Known: "),
        ("reduce_sum", [f32(2, 3)], {"axes": (1, 0), "keep": False}, "sorted"),
        ("reduce_sum", [f32(2, 3)], {"axes": (2,), "keep": False}, "dimensions 0 to 1"),
        ("reduce_any", [f32(2)], {"axes": (0,), "keep": False}, "must be bool"),
        ("arg_max", [f32(0)], {"axis": 0, "keep": False}, "empty"),
        ("reshape", [f32(2, 3)], {"shape": (7,)}, "6 elements, not 7"),
        ("transpose", [f32(2, 3)], {"permutation": (0, 0)}, "permutation"),
        ("expand", [f32(2)], {"shape": (3,)}, "sizes other than 1"),
        ("slice", [f32(4)], {"starts": (3,), "stops": (9,), "steps": (1,)}, "3:9"),
        ("pad", [f32(4)], {"low": (-1,), "high": (0,), "value": 0.0}, "below 0"),
        ("concat", [f32(2, 3), f32(2, 4)], {"axis": 0}, "Operand 1 of concat"),
        ("dynamic_slice", [f32(4), f32(1)], {"sizes": (2,)}, r"i32\[1\]"),
        ("map", [f32(2)], {"body": (("exp", "f16", (-1,), ()),)}, "said to be f16"),
        ("map", [f32(2)], {"body": (("exp", "f32", (-2,), ()),)}, "neither an earlier node"),
        ("map", [f32(2)], {"body": (("matmul", "f32", (-1, -1), (False, False, "f32")),)}, "not an elementwise"),
        ("fill", [], {"value": 0, "dtype": "f32", "shape": (-1,)}, "list of sizes"),
        ("all_reduce", [f32(2)], {"reduction": "max"}, "'sum' or 'mean'"),
    ],
)
def test_refusals_name_the_operand_and_the_rule(name, operands, attributes, message):
    with pytest.raises(InvalidOperand, match=message):
        infer_types(name, operands, attributes)


def test_map_means_the_chain():
    b = Builder("chain")
    x, w, keep = b.input(f16(3, 5)), b.input(f16(5)), b.input(boolean(3, 1))
    y = b.select(keep, b.tanh(b.mul(x, w)), x)
    graph = b.finish([y])
    body = (
        ("mul", "f16", (-1, -2), ()),
        ("tanh", "f16", (0,), ()),
        ("select", "f16", (-3, 1, -1), ()),
    )
    assert [operand_dtype(body, i) for i in (0, 1)] == [DType.F16, DType.F16]
    m = Builder("map")
    mapped = m.finish([m.map(*[m.input(v.type) for v in graph.inputs], body=body)])
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(v.shape).astype(v.dtype.numpy) for v in graph.inputs]
    for a, e in zip(evaluate(mapped, values), evaluate(graph, values), strict=True):
        np.testing.assert_array_equal(a, e)
    assert math.prod(mapped.outputs[0].shape) == 15


@pytest.mark.parametrize(
    ("name", "shapes", "attributes"),
    [
        ("slice", [(64, 96)], {"starts": (1, 0), "stops": (64, 95), "steps": (1, 1)}),
        ("pad", [(64, 96)], {"low": (1, 1), "high": (1, 1), "value": 0.0}),
        ("concat", [(63, 96), (1, 96)], {"axis": 0}),
    ],
)
def test_what_grows_or_shrinks_a_little_stays_where_it_lies(name, shapes, attributes):
    """Only what passes a boundary of the blocks is exchanged."""
    chip, types = machine(16), [f32(*s) for s in shapes]
    c = case(name, types, attributes)
    homes = [even(t, chip) for t in types]
    plan = plan_and_run(c, chip, homes)
    read = plan.sets[0].reads[0]
    assert [a.parts for a in plan.homes[0].grid.axes] == [a.parts for a in homes[0].grid.axes]
    missing = read.layout.elements() - kept(read.layout, homes[:1])
    assert missing.sum() < types[0].size // 8

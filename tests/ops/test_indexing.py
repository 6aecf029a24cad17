"""Indexing beyond the shared samples: errors, duplicates of every kind, padding, zeros in a product, long tables."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from abele.errors import InvalidOperand
from abele.ir import Arg, Sample, evaluate_operation, f16, f32, i32, infer_types
from abele.ir.operation import complete_attributes
from abele.ops.plans.planning import make_plan
from tests.ops.harness import Case, ask, assert_close, cotangents, gradients, machine, plan_and_run, twin_gradients


@given(st.data())
@settings(max_examples=40)
def test_gather_and_scatter_add_are_each_others_transpose(data):
    """⟨gather(x), u⟩ = ⟨x, scatter_add(0, u)⟩, on any shape, axis and indices; plans agree on a few tiles."""
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    count = data.draw(st.integers(0, 9))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    x, indices = rng.standard_normal(shape).astype(np.float32), rng.integers(0, shape[axis], count).astype(np.int32)
    types = (f32(*shape), i32(count))
    (result,) = infer_types("gather", types, {"axis": axis})
    updates = rng.standard_normal(result.shape).astype(np.float32)
    (y,) = evaluate_operation("gather", [x, indices], {"axis": axis}, [result])
    zeros = np.zeros(shape, np.float32)
    (back,) = evaluate_operation("scatter_add", [zeros, indices, updates], {"axis": axis}, [types[0]])
    assert np.sum(y.astype(np.float64) * updates) == pytest.approx(np.sum(x.astype(np.float64) * back), abs=1e-4)
    tiles = data.draw(st.integers(1, 16))
    args = (Arg(types[0]), Arg(types[1], "integers", 0, shape[axis]))
    plan_and_run(Case("gather", 0, Sample(args, {"axis": axis})), machine(tiles))
    plan_and_run(Case("scatter_add", 0, Sample((*args, Arg(result)), {"axis": axis})), machine(tiles))


@given(st.data())
@settings(max_examples=30)
def test_plans_by_element_on_any_shape(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    inside = tuple(data.draw(st.integers(1, 6 if i == axis else n)) for i, n in enumerate(shape))
    make = data.draw(st.sampled_from([f32, f16]))
    reduction = data.draw(st.sampled_from(["none", "add", "max"]))
    indices = Arg(i32(*inside), "integers", 0, shape[axis])
    chip = machine(data.draw(st.integers(1, 16)))
    plan_and_run(Case("gather_elements", 0, Sample((Arg(make(*shape)), indices), {"axis": axis})), chip)
    args = (Arg(make(*shape)), indices, Arg(make(*inside)))
    plan_and_run(Case("scatter_elements", 0, Sample(args, {"axis": axis, "reduction": reduction})), chip)
    plan_and_run(Case("sort", 0, Sample((Arg(make(*shape)),), {"axis": axis})), chip)


def test_a_long_table_is_split_by_rows_and_stays_where_it_lies():
    case = Case("gather", 1, Sample((Arg(f32(3000, 4)), Arg(i32(6), "integers", 0, 3000)), {"axis": 0}))
    plan = plan_and_run(case, machine(16))
    assert [s.vertex for s in plan.sets] == ["GatherRows", "GatherSum"]
    table = plan.sets[0].reads[0]
    assert table.resident and table.layout.is_partition
    assert table.layout.elements().max() <= -(-3000 * 4 // 16) + 4


def test_a_short_table_is_sent_to_every_tile():
    case = Case("gather", 1, Sample((Arg(f32(3, 4)), Arg(i32(64), "integers", 0, 3)), {"axis": 0}))
    plan = plan_and_run(case, machine(16))
    assert [s.vertex for s in plan.sets] == ["Gather"] and plan.sets[0].grid.blocks == 16


def test_a_plan_of_a_real_embedding_is_made_at_once_on_a_whole_chip():
    case = Case("gather", 0, Sample((Arg(f16(30522, 768)), Arg(i32(8, 128), "integers", 0, 9)), {"axis": 0}))
    plan = make_plan(ask(case, machine(1472)))
    assert plan.sets[0].grid.blocks > 1000
    per_tile = plan.sets[0].reads[0].layout.elements().max() * 2
    assert per_tile < 64 * 1024


def test_embedding_gives_no_gradient_to_the_padding():
    args = (Arg(f32(5, 3)), Arg(i32(40), "integers", 0, 5))
    case = Case("embedding", 0, Sample(args, {"padding_index": 2}))
    values, weights = case.values(), cotangents(case)
    (found,) = gradients(case, values, weights)
    (expected,) = twin_gradients(case, values, weights)
    assert not found[2].any() and expected[0].any()
    assert_close(found, expected, f32(5, 3), "gradient")


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_gradient_of_a_product_with_zeros(zeros):
    """One zero among the updates of an element has a gradient, two have none: nothing is divided by zero."""
    attributes = complete_attributes("scatter_elements", {"axis": 0, "reduction": "mul"})
    types = (f32(3), i32(4), f32(4))
    case = Case("scatter_elements", 0, Sample(tuple(map(Arg, types)), attributes))
    base, indices = np.array([2.0, 3.0, 4.0], np.float32), np.array([0, 1, 1, 1], np.int32)
    updates = np.array([5.0, 7.0, 11.0, 13.0], np.float32)
    updates[1 : 1 + zeros] = 0
    values, weights = [base, indices, updates], [np.array([1.0, 2.0, 3.0], np.float32)]
    dbase, dupdates = gradients(case, values, weights)
    np.testing.assert_allclose(dbase, [5.0, 2.0 * np.prod(updates[1:]), 3.0], rtol=1e-6)
    others = [np.prod(np.delete(updates[1:], i)) * 3.0 * 2.0 for i in range(3)]
    np.testing.assert_allclose(dupdates, [2.0, *others], rtol=1e-6)


def test_the_last_of_several_updates_stays():
    result = evaluate_operation(
        "scatter_elements",
        [np.zeros(3, np.float32), np.array([1, 1, 0, 1], np.int32), np.array([1, 2, 3, 4], np.float32)],
        {"axis": 0, "reduction": "none"},
        [f32(3)],
    )
    assert result[0].tolist() == [3.0, 4.0, 0.0]


def test_half_sums_are_rounded_once():
    """2048 + 1 + 1 is 2050 in one rounding; half by half it would stay 2048."""
    base, updates = np.array([2048.0], np.float16), np.ones(2, np.float16)
    (result,) = evaluate_operation("scatter_add", [base, np.zeros(2, np.int32), updates], {"axis": 0}, [f16(1)])
    assert result.tolist() == [2050.0]


def test_nan_counts_as_the_largest():
    x = np.array([1.0, np.nan, 3.0, -np.inf], np.float32)
    for descending in (False, True):
        types = infer_types("sort", [f32(4)], {"axis": 0, "descending": descending})
        values, indices = evaluate_operation("sort", [x], {"axis": 0, "descending": descending}, types)
        expected = torch.sort(torch.from_numpy(x), descending=descending)
        np.testing.assert_array_equal(values, expected.values)
        np.testing.assert_array_equal(indices, expected.indices)


@pytest.mark.parametrize(
    ("name", "types", "attributes", "words"),
    [
        ("gather", (f32(3, 4), f32(2)), {"axis": 0}, "indices"),
        ("gather", (f32(3, 4), i32(2)), {"axis": 2}, "axis"),
        ("scatter_add", (f32(3, 4), i32(2), f32(3, 4)), {"axis": 0}, "updates"),
        ("gather_elements", (f32(3, 4), i32(4, 4)), {"axis": 1}, "no longer"),
        ("scatter_elements", (f32(3), i32(2), f32(2)), {"axis": 0, "reduction": "mean"}, "none, add"),
        ("top_k", (f32(3),), {"axis": 0, "k": 4}, "k=4"),
        ("embedding", (f32(3), i32(2)), {}, "two dimensions"),
    ],
)
def test_what_does_not_fit_is_refused(name, types, attributes, words):
    with pytest.raises(InvalidOperand, match=words):
        infer_types(name, types, complete_attributes(name, attributes))


def test_an_index_out_of_range_is_an_error():
    for name, operands in (("gather", 2), ("gather_elements", 2), ("scatter_add", 3)):
        types = infer_types(name, [f32(3), i32(1), f32(1)][:operands], {"axis": 0})
        for index in (3, -1):
            values = [np.zeros(3, np.float32), np.array([index], np.int32), np.zeros(1, np.float32)][:operands]
            with pytest.raises(IndexError):
                evaluate_operation(name, values, {"axis": 0}, types)

"""Matrix products: planner choices on a whole chip, and turns when memory is short."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abele.errors import InvalidOperand
from abele.ir import Arg, Sample, infer_types
from abele.ir.types import f16, f32
from abele.machine.presets import gc200
from abele.ops.plans.layouts import even, flat
from abele.ops.plans.planning import PlanOptions, Question, make_plan
from abele.ops.plans.search import Dimension, part_counts, search
from abele.schedule.geometry import kept, shared_out
from abele.schedule.records import Plan, Use
from abele.schedule.rules import check_plan
from tests.ops.harness import Case, ask, evaluate_operation, machine, plan_and_run, run_plan

PLAIN = {"transpose_a": False, "transpose_b": False, "partials": "f32"}


def question(a, b, chip=gc200, homes=(None, None), proportion=0.6, **attributes) -> Question:
    full = PLAIN | attributes
    results = infer_types("matmul", (a, b), full)
    return Question("matmul", tuple(full.items()), (a, b), results, homes, chip, 0, PlanOptions(proportion))


def parts(plan: Plan, index: int = 0) -> dict[str, int]:
    return {axis.name: axis.parts for axis in plan.sets[index].grid.axes}


def received(plan: Plan, asked: Question) -> int:
    """Bytes that the fullest tile receives before the products."""
    return sum(
        int(read.layout.elements().max()) * asked.operands[int(read.name[2:])].dtype.bytes
        for read in plan.sets[0].reads
        if not read.resident
    )


def test_large_product_fills_the_chip():
    plan = make_plan(question(f16(1024, 1024), f16(1024, 1024), partials="f16"))
    assert plan.sets[0].grid.blocks > 0.9 * gc200.tiles


def test_sum_is_split_when_rows_and_columns_are_few():
    plan = make_plan(question(f16(16, 8192), f16(8192, 16)))
    assert parts(plan)["k"] > 16
    assert [s.vertex for s in plan.sets] == [
        "MatmulAmp",
        "ReducePartials",
        "ReducePartials",
    ]  # many partials: in stages
    assert plan.temporaries[0].shape[0] == parts(plan)["k"]


def test_undecided_weights_of_a_thin_product_stay_where_they_are():
    asked = question(f16(4, 1024), f16(4096, 1024), homes=(flat(f16(4, 1024), gc200), None), transpose_b=True)
    plan = make_plan(asked)
    assert plan.sets[0].reads[1].resident
    assert not plan.sets[0].reads[0].resident


def test_weights_that_lie_as_an_equal_product_reads_them_are_not_moved():
    first = question(f16(4, 1024), f16(1024, 4096), homes=(flat(f16(4, 1024), gc200), None))
    home = make_plan(first).sets[0].reads[1].layout
    again = make_plan(question(f16(4, 1024), f16(1024, 4096), homes=(flat(f16(4, 1024), gc200), home)))
    assert again.sets[0].reads[1].resident


def test_weights_that_blocks_share_are_found_where_they_lie():
    """Each block of the same product once more has its share of the weights, and receives what the others hold."""
    types, attributes = (f16(1024, 1024), f16(4096, 1024)), {"transpose_b": True, "partials": "f16"}
    x = flat(types[0], gc200)
    first = make_plan(question(*types, homes=(x, None), **attributes)).sets[0]
    home = shared_out(first.reads[1].layout)
    assert home is not None and not first.reads[1].resident
    again = make_plan(question(*types, homes=(x, home), **attributes)).sets[0]
    assert again.grid == first.grid
    read = again.reads[1].layout
    rows = read.grid.axes[read.grid.axis("m")].parts
    assert rows > 1 and kept(read, [home]).sum() == read.elements().sum() // rows


def test_a_tile_that_sums_has_made_one_of_the_partials():
    plan = make_plan(question(f16(1024, 1024), f16(1024, 4096), partials="f16"))
    product, summed = plan.sets
    read, depth = summed.reads[0].layout, parts(plan)["k"]
    assert 1 < depth < 16
    assert (kept(read, [product.writes[0].layout]) * depth == read.elements()).all()


@pytest.mark.parametrize("proportion", [0.6, 0.1])
def test_temporaries_keep_within_the_proportion(proportion):
    asked = question(f16(2048, 2048), f16(2048, 1024), proportion=proportion)
    plan = make_plan(asked)
    assert received(plan, asked) <= proportion * gc200.tile_memory


def test_what_cannot_fit_is_planned_all_the_same():
    chip = gc200.derive("tiny", tiles=4, tile_memory=4096)
    asked = question(f32(64, 257), f32(257, 61), chip=chip)
    plan = make_plan(asked)
    assert plan.sets


def test_turns_give_the_same_numbers():
    """Memory so short that columns (or rows) are done one part after another."""
    rng = np.random.default_rng(0)
    chip = gc200.derive("short", tiles=8, tile_memory=16384)
    for a, b, attributes in (
        (f32(96, 128), f32(128, 64), {}),
        (f32(128, 96), f32(128, 64), {"transpose_a": True}),
        (f32(96, 128), f32(64, 128), {"transpose_b": True}),
        (f32(1, 512), f32(512, 61), {}),
        (f32(512, 61), f32(61, 2), {}),
    ):
        asked = question(a, b, chip=chip, homes=(flat(a, chip), flat(b, chip)), proportion=0.25, **attributes)
        plan = make_plan(asked)
        uses = [Use("x", t) for t in (*asked.operands, *asked.results)]
        assert not list(check_plan(plan, uses[:2], uses[2:], asked.homes, chip.tiles))
        values = [rng.standard_normal(t.shape).astype(np.float32) for t in (a, b)]
        (actual,) = run_plan(asked, plan, values)
        (expected,) = evaluate_operation("matmul", values, PLAIN | attributes, asked.results)
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
    asked = question(f32(96, 128), f32(128, 64), chip=chip, proportion=0.25)
    assert sum(s.vertex.startswith("Matmul") for s in make_plan(asked).sets) > 1


@pytest.mark.parametrize(("tiles", "k", "stages"), [(8, 512, 1), (64, 4096, 2), (256, 1 << 19, 3)])
def test_partials_are_summed_in_stages(tiles, k, stages):
    """16 partials or more are summed in two stages, 125 or more in three, to the same numbers."""
    rng = np.random.default_rng(0)
    chip = machine(tiles)
    a, b = f32(1, k), f32(k, 3)
    asked = question(a, b, chip=chip, homes=(flat(a, chip), flat(b, chip)))
    plan = make_plan(asked)
    assert [s.vertex for s in plan.sets][1:] == ["ReducePartials"] * stages
    uses = [Use("x", t) for t in (*asked.operands, *asked.results)]
    assert not list(check_plan(plan, uses[:2], uses[2:], asked.homes, chip.tiles))
    values = [rng.standard_normal(t.shape).astype(np.float32) for t in (a, b)]
    (actual,) = run_plan(asked, plan, values)
    wanted = values[0].astype(np.float64) @ values[1]
    np.testing.assert_allclose(actual, wanted, rtol=1e-3, atol=1e-4 * np.sqrt(k))


def test_operands_are_transposed_once():
    """A weight gradient sums over what lies outside in both: each is transposed where it lies, not by every reader."""
    rng = np.random.default_rng(0)
    for chip, a, b in (
        (gc200, f16(512, 1024), f16(512, 4096)),
        (machine(64), f16(256, 256), f16(256, 512)),
        (machine(64), f16(3, 256, 256), f16(3, 256, 256)),
    ):
        asked = question(a, b, chip=chip, homes=(even(a, chip), flat(b, chip)), transpose_a=True)
        plan = make_plan(asked)
        before = [s.reads[0].name for s in plan.sets if s.vertex == "MatmulArrange"]
        product = plan.sets[len(before)]
        assert before and (chip is not gc200 or before == ["in0", "in1"])
        assert product.attributes["turned"] == ("in0" not in before, "in1" not in before)
        assert not {read.name for read in product.reads} & set(before)
        uses = [Use("x", t) for t in (*asked.operands, *asked.results)]
        assert not list(check_plan(plan, uses[:2], uses[2:], asked.homes, chip.tiles))
        if chip is gc200:
            continue
        values = [(rng.integers(-4, 5, t.shape) / 4).astype(np.float16) for t in (a, b)]
        (actual,) = run_plan(asked, plan, values)
        (expected,) = evaluate_operation("matmul", values, PLAIN | {"transpose_a": True}, asked.results)
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("shapes", [((96, 128), (128, 64)), ((1, 1024), (1024, 64))])
def test_turns_with_a_map_behind(shapes):
    """The map finds what the sums of all turns have left on its tile."""
    chip = gc200.derive("short", tiles=8, tile_memory=16384)
    types = (*(f32(*shape) for shape in shapes), f32(64))
    attributes = {
        "root": "matmul",
        "root_attributes": tuple(PLAIN.items()),
        "root_operands": 2,
        "body": (("add", "f32", (-1, -2), ()), ("relu", "f32", (0,), ())),
    }
    case = Case("fused", 0, Sample(tuple(Arg(t) for t in types), attributes))
    question = replace(ask(case, chip, [flat(t, chip) for t in types]), options=PlanOptions(0.25))
    plan = make_plan(question)
    products = [s for s in plan.sets if s.vertex.startswith("Matmul")]
    assert len(products) > 1
    assert any(s.vertex == "ReducePartials" for s in plan.sets)
    uses = [Use(t, type_) for t, type_ in zip("abcy", (*types, *case.results), strict=True)]
    assert not list(check_plan(plan, uses[:3], uses[3:], question.homes, chip.tiles))
    values = case.values()
    (actual,) = run_plan(question, plan, values)
    (expected,) = evaluate_operation("fused", values, case.attributes, case.results)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@settings(max_examples=25)
@given(st.data())
def test_any_shape_plans_to_the_right_numbers(data):
    size = st.integers(0, 40)
    m, n, k = data.draw(size), data.draw(size), data.draw(size)
    batch = data.draw(st.sampled_from([((), ()), ((3,), (3,)), ((2, 1), (1, 3)), ((3,), ()), ((), (2,)), ((0,), (0,))]))
    ta, tb = data.draw(st.booleans()), data.draw(st.booleans())
    make = data.draw(st.sampled_from([f16, f32]))
    a = make(*batch[0], *((k, m) if ta else (m, k)))
    b = make(*batch[1], *((n, k) if tb else (k, n)))
    case = Case("matmul", 0, Sample((Arg(a), Arg(b)), PLAIN | {"transpose_a": ta, "transpose_b": tb}))
    chip = machine(data.draw(st.sampled_from([1, 5, 16])))
    homes = [data.draw(st.sampled_from([None, flat(t, chip)])) for t in (a, b)]
    plan = plan_and_run(case, chip, homes)
    uses = [Use("x", t) for t in (*case.operands, *case.results)]
    assert not list(check_plan(plan, uses[:2], uses[2:], ask(case, chip, homes).homes, chip.tiles))


def test_planning_is_a_function_of_the_question():
    asked = question(f16(128, 768), f16(768, 3072))
    assert make_plan(asked) == make_plan(asked)


@given(st.integers(1, 5000), st.integers(1, 1472))
@settings(max_examples=50)
def test_part_counts_reach_every_length_with_the_fewest_parts(units, limit):
    counts = part_counts(units, limit)
    best: dict[int, int] = {}
    for count in range(1, min(units, limit) + 1):
        best.setdefault(-(-units // count), count)
    assert counts.tolist() == sorted(best.values())


def test_search_finds_the_best_split_of_a_small_space():
    """Against every split, for an objective with a minimum inside."""
    dimensions = [Dimension("x", 37), Dimension("y", 48, 4), Dimension("z", 5)]

    def cost(parts):
        lengths = [d.length(parts[d.name]) for d in dimensions]
        return math.prod(lengths) + 3 * lengths[0] * parts["z"] + lengths[1], np.zeros_like(lengths[0])

    found, score = search(dimensions, 24, cost)
    every = [
        (float(cost({"x": np.array([x]), "y": np.array([y]), "z": np.array([z])})[0][0]) + 1e-6 * x * y * z)
        for x in range(1, 25)
        for y in range(1, 13)
        for z in range(1, 6)
        if x * y * z <= 24
    ]
    assert score == pytest.approx(min(every))
    assert math.prod(found.values()) <= 24


@pytest.mark.parametrize(
    ("a", "b", "attributes", "names"),
    [
        (f32(2, 3), f32(4, 5), {}, "matmul of f32"),
        (f32(3), f32(3, 4), {}, "Operand 0 of matmul"),
        (f32(2, 3), f16(3, 4), {}, "Operands 0 and 1"),
        (f32(2, 2, 3), f32(3, 3, 4), {}, "Batch dimensions"),
        (f32(2, 3), f32(3, 4), {"partials": "f64"}, "'f64'"),
    ],
)
def test_type_rule_names_what_is_wrong(a, b, attributes, names):
    with pytest.raises(InvalidOperand, match=names):
        infer_types("matmul", (a, b), PLAIN | attributes)


@pytest.mark.parametrize(
    ("make", "shapes"),
    [(f16, ((24, 32), (32, 16))), (f32, ((24, 32), (32, 16))), (f32, ((4, 2048), (2048, 32)))],
    ids=["half", "float", "summed"],
)
def test_a_map_joins_the_last_vertices_of_a_product(make, shapes):
    """Bias and ReLU are done by the vertices that make the product, or sum its parts, in their compute set."""
    chip = machine(16)
    types = (*(make(*shape) for shape in shapes), make(shapes[1][1]))
    dtype = str(types[0].dtype)
    attributes = {
        "root": "matmul",
        "root_attributes": tuple(PLAIN.items()),
        "root_operands": 2,
        "body": (("add", dtype, (-1, -2), ()), ("relu", dtype, (0,), ())),
    }
    plan = plan_and_run(Case("fused", 0, Sample(tuple(Arg(t) for t in types), attributes)), chip)
    alone = plan_and_run(Case("matmul", 0, Sample(tuple(Arg(t) for t in types[:2]), PLAIN)), chip)
    assert len(plan.sets) == len(alone.sets)
    assert plan.sets[-1].vertex == alone.sets[-1].vertex + "ThenMapNonlinearity"

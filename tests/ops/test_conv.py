"""Convolutions: any window over any split gives the right numbers, and the planner's choices on a whole chip."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from abele.errors import InvalidOperand, InvalidOption
from abele.ir import Arg, Sample, evaluate_operation, infer_types
from abele.ir.types import f16, f32
from abele.machine.presets import gc200, mk1
from abele.ops.conv.maps import Map
from abele.ops.conv.memory import temporary_bytes
from abele.ops.conv.op import output_sizes
from abele.ops.plans.layouts import even, flat
from abele.ops.plans.planning import SHORT, PlanOptions, Question, make_plan
from abele.schedule.records import Use
from abele.schedule.rules import check_plan
from tests.ops.harness import (
    Case,
    assert_close,
    cotangents,
    differentiable,
    gradients,
    machine,
    plan_and_run,
    to_torch,
    twin_gradients,
    twin_results,
)

NAMES = ("conv", "conv_input_grad", "conv_weight_grad")


@st.composite
def convolutions(draw):
    """Attributes and the types of input, weights and output of a convolution that the type rule takes."""
    spatial = draw(st.integers(1, 3))
    most = {1: 12, 2: 8, 3: 5}[spatial]
    each = lambda low, high: draw(st.tuples(*[st.integers(low, high)] * spatial))  # noqa: E731
    kernel, strides, dilation, sizes = each(1, 3), each(1, 3), each(1, 2), each(1, most)
    padding = tuple(draw(st.tuples(st.integers(0, 2), st.integers(0, 2))) for _ in range(spatial))
    outs = output_sizes(sizes, kernel, strides, padding, dilation)
    assume(min(outs) >= 1)
    groups = draw(st.sampled_from([1, 1, 2, 4]))
    ins, channels = groups * draw(st.sampled_from([1, 2, 17])), groups * draw(st.sampled_from([1, 3, 18]))
    n = draw(st.integers(0, 3))
    make = draw(st.sampled_from([f16, f32]))
    attributes = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
    return attributes, make(n, ins, *sizes), make(channels, ins // groups, *kernel), make(n, channels, *outs)


def case_of(name, attributes, x, w, y) -> Case:
    operands = {"conv": (x, w), "conv_input_grad": (y, w), "conv_weight_grad": (y, x)}[name]
    shape = {"conv": {}, "conv_input_grad": {"input_shape": x.shape}, "conv_weight_grad": {"weight_shape": w.shape}}
    return Case(name, 0, Sample(tuple(map(Arg, operands)), attributes | shape[name] | {"partials": "f32"}))


@settings(max_examples=40)
@given(st.data())
def test_plans_of_any_convolution_give_the_reference(data):
    case = case_of(data.draw(st.sampled_from(NAMES)), *data.draw(convolutions()))
    chip = machine(data.draw(st.sampled_from([1, 4, 16])))
    homes = [data.draw(st.sampled_from([None, flat(t, chip), even(t, chip)])) for t in case.operands]
    vendor = PlanOptions(planner="poplibs", short=data.draw(st.sampled_from(SHORT)), memory_proportion=0.001)
    options = data.draw(st.sampled_from([PlanOptions(), vendor]))
    plan = plan_and_run(case, chip, homes, options=options)
    uses = [Use("x", t) for t in (*case.operands, *case.results)]
    assert not list(check_plan(plan, uses[:2], uses[2:], homes, chip.tiles))


@settings(max_examples=40)
@given(st.data())
def test_any_convolution_agrees_with_torch(data):
    case = case_of(data.draw(st.sampled_from(NAMES)), *data.draw(convolutions()))
    values = case.values()
    (actual,) = evaluate_operation(case.name, values, case.attributes, case.results)
    if not actual.size or not all(v.size for v in values):
        assert not actual.any()
        return
    (expected,) = twin_results(case, [to_torch(v) for v in values])
    assert_close(actual, expected.detach().numpy(), case.results[0], case.name)
    weights = cotangents(case)
    found, wanted = gradients(case, values, weights), twin_gradients(case, values, weights)
    for i, a, e in zip(differentiable(case), found, wanted, strict=True):
        assert_close(a, e, case.operands[i], f"gradient of operand {i} of {case.name}")


def plan_of(name, attributes, x, w, homes=None, chip=gc200, partials="f16"):
    y = infer_types("conv", (x, w), attributes | {"partials": partials})[0]
    case = case_of(name, attributes, x, w, y)
    placed = tuple(flat(t, chip) for t in case.operands) if homes is None else homes
    full = {**case.attributes, "partials": partials}
    return make_plan(Question(name, tuple(full.items()), case.operands, case.results, placed, chip))


def window(kernel: int, stride: int = 1, groups: int = 1) -> dict:
    low = kernel // 2
    return {"strides": (stride,) * 2, "padding": ((low, low),) * 2, "dilation": (1, 1), "groups": groups}


@pytest.mark.parametrize("name", NAMES)
def test_large_convolution_uses_most_tiles(name):
    plan = plan_of(name, window(3), f16(16, 64, 56, 56), f16(64, 64, 3, 3))
    assert plan.sets[0].grid.blocks > 0.8 * gc200.tiles
    assert "Amp" in plan.sets[0].vertex


@pytest.mark.parametrize("name", ["conv", "conv_weight_grad"])
@pytest.mark.parametrize(("strides", "sizes"), [((2, 2), (8, 6)), ((3, 1), (6, 5)), ((4,), (12,))])
def test_skipped_positions_of_a_strided_kernel_of_one_are_not_read(name, strides, sizes):
    each = math.prod(size // stride for size, stride in zip(sizes, strides, strict=True))
    x, w = f16(2, 18, *sizes), f16(20, 18, *(1 for _ in sizes))
    y = f16(2, 20, *(size // stride for size, stride in zip(sizes, strides, strict=True)))
    some = tuple(1 for _ in sizes)
    given = {"strides": strides, "padding": tuple((0, 0) for _ in sizes), "dilation": some, "groups": 1}
    case = case_of(name, given, x, w, y)
    chip = machine(4)
    homes = [flat(t, chip) for t in case.operands]
    plan = plan_and_run(case, chip, homes)
    uses = [Use("x", t) for t in (*case.operands, *case.results)]
    assert not list(check_plan(plan, uses[:2], uses[2:], homes, chip.tiles))
    read = plan.sets[0].reads[("conv", "", "conv_weight_grad").index(name) // 2].layout
    assert int(read.elements().max()) <= 2 * 18 * each


def test_input_channels_are_split_when_the_field_is_small():
    plan = plan_of("conv", window(3), f16(1, 512, 7, 7), f16(512, 512, 3, 3))
    assert plan.sets[0].grid.axes[plan.sets[0].grid.axis("c")].parts > 1
    assert plan.sets[1].vertex == "ReducePartials"


def test_undecided_weights_of_a_small_field_lie_where_they_are_used():
    x, w = f16(1, 512, 7, 7), f16(512, 512, 3, 3)
    plan = plan_of("conv", window(3), x, w, homes=(flat(x, gc200), None))
    assert plan.sets[0].reads[1].resident


def test_weight_gradient_splits_batch_and_field():
    plan = plan_of("conv_weight_grad", window(3), f16(16, 16, 56, 56), f16(16, 16, 3, 3))
    grid = plan.sets[0].grid
    assert math.prod(a.parts for a in grid.axes if a.name in ("n", "f0", "f1")) > 64


def test_depthwise_convolution_leaves_the_matrix_unit_alone():
    plan = plan_of("conv", window(3, groups=144), f16(4, 144, 64, 64), f16(144, 1, 3, 3))
    assert plan.sets[0].vertex in ("ConvSlic", "ConvVmac")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kernel", [1, 3])
def test_channels_are_done_in_turns_when_memory_is_short(name, kernel):
    """The same numbers, in parts of the result's channels one after another; some with partials in every part."""
    chip = gc200.derive("short", tiles=8, tile_memory=1536)
    turns = []
    for channels, size in ((8, 5), (64, 5), (64, 1)):
        pad = ((kernel // 2,) * 2,) * 2
        given = {"strides": (1, 1), "padding": pad, "dilation": (1, 1), "groups": 1}
        x, w, y = f32(2, 32, size, size), f32(channels, 32, kernel, kernel), f32(2, channels, size, size)
        case = case_of(name, given, x, w, y)
        homes = [flat(t, chip) for t in case.operands]
        plan = plan_and_run(case, chip, homes)
        uses = [Use("x", t) for t in (*case.operands, *case.results)]
        assert not list(check_plan(plan, uses[:2], uses[2:], homes, chip.tiles))
        turns.append(sum(s.vertex.startswith("Conv") for s in plan.sets))
    assert max(turns) > 1


# the vendor's estimate of temporary memory


def image_question(make, height, width, proportion=0.6, short="double", chip=mk1) -> Question:
    x, w = make(1, 4, height, width), make(4, 4, 3, 3)
    given = tuple({**window(3), "partials": "f32"}.items())
    homes, options = (flat(x, chip), flat(w, chip)), PlanOptions(proportion, "poplibs", short=short)
    return Question("conv", given, (x, w), (x,), homes, chip, 0, options)


def test_temporary_memory_by_hand():
    """A tile with 10 rows of 20 positions of a half image, 4 channels in and out, sums in float."""
    question = image_question(f16, 300, 400)
    it = Map.of(question)
    parts = {name: np.array([1]) for name in "ngoc"} | {"f0": np.array([30]), "f1": np.array([20])}
    lengths = {d.name: d.length(parts[d.name]) for d in it.dimensions}

    def found(method: str) -> float:
        return float(temporary_bytes(mk1, it, method, parts, lengths, ((1, 1), (1, 1)))[0])

    window_bytes, sums = 12 * 22 * 4 * 2, 10 * 20 * 4 * 4
    # one kernel column of zeros makes blocks of four, and the padding is written out; the sums lie twice
    zeros = (12 * 23 - 10 * 20) * 4 * 2
    assert found("slic") == window_bytes + 3 * 4 * 16 * 2 + zeros + 2 * sums + 200
    # one channel of sums at a time: regrouped afterwards
    assert found("hmac") == max(window_bytes + 9 * 16 * 2 + sums, 2 * 10 * 20 * 4 * 2)
    # outputs filled up to the 8 rows of the matrix unit; a fourth row of the kernel
    assert found("amp") == window_bytes + 4 * 3 * 4 * 8 * 2 + (11 - 10) * 20 * 4 * 2 + 2 * sums


@pytest.mark.parametrize(
    ("make", "height", "width", "tiles", "most"),
    [
        (f16, 1026, 770, 1216, 0.1),
        (f32, 1026, 770, 1216, 0.1),
        (f16, 1124, 2202, 2432, 0.1),
        (f32, 1124, 2202, 2432, 0.2),
        (f16, 1124, 2202, 1216, 0.3),
    ],
)
def test_the_matrix_unit_is_left_where_the_vendors_planner_left_it(make, height, width, tiles, most):
    """Published times of these convolutions jump by a factor of 9 to 36 between this proportion and the next.

    thorbenlouw/lbm-graphcore, experiments/effect-of-mem-on-convolution: with a tenth more of the memory the fast plan
    fitted. Up to SDK 1.2 the planner then took the plan of the least memory: dot products.
    """
    chip = mk1.derive("mk1s", tiles=tiles)
    short, enough = (
        make_plan(image_question(make, height, width, proportion, "least", chip)).sets[0].vertex
        for proportion in (most, most + 0.1)
    )
    doubled = make_plan(image_question(make, height, width, most, chip=chip)).sets[0].vertex
    assert short == "ConvHmac"
    assert enough in ("ConvSlic", "ConvAmp")
    assert doubled in ("ConvHmac", enough)


def test_short_of_memory_doubles_it_or_takes_the_least():
    """Nothing fits 0.2 of this tile's memory, and dot products of all outputs at once fit 0.4."""
    plan = {
        (proportion, short): make_plan(image_question(f32, 1124, 2202, proportion, short))
        for proportion in (0.2, 0.4)
        for short in SHORT
    }
    assert plan[0.4, "least"] == plan[0.4, "double"] == plan[0.2, "double"]
    assert {s.vertex for s in plan[0.2, "least"].sets} == {"ConvHmac"}
    assert len(plan[0.2, "least"].sets) > len(plan[0.2, "double"].sets)
    with pytest.raises(InvalidOption, match="leat"):
        PlanOptions(short="leat")


def test_halo_is_read_and_no_more():
    """Rows in 4 parts: a window of 3 reads one row beyond its own on each side."""
    chip = machine(4)
    x, w = f32(1, 1, 64, 4), f32(1, 1, 3, 1)
    attributes = {"strides": (1, 1), "padding": ((1, 1), (0, 0)), "dilation": (1, 1), "groups": 1}
    plan = plan_of("conv", attributes, x, w, chip=chip, partials="f32")
    (read, _), grid = plan.sets[0].reads, plan.sets[0].grid
    assert grid.axes[grid.axis("f0")].parts == 4
    assert read.layout.elements().tolist() == [17 * 4, 18 * 4, 18 * 4, 17 * 4]


@pytest.mark.parametrize(
    ("x", "w", "change", "names"),
    [
        (f32(1, 3, 8, 8), f32(4, 2, 3, 3), {}, "3 input channels"),
        (f32(1, 4, 8, 8), f32(3, 2, 3, 3), {"groups": 2}, "groups"),
        (f32(1, 2, 2, 2), f32(4, 2, 5, 5), {}, "larger than the padded input"),
        (f32(1, 2, 8, 8), f32(4, 2, 3), {}, "Operand 1"),
        (f32(1, 2, 8, 8), f32(4, 2, 3, 3), {"strides": (1,)}, "strides"),
        (f32(1, 2, 8, 8), f32(4, 2, 3, 3), {"padding": ((-1, 0), (0, 0))}, "padding"),
    ],
)
def test_type_rule_names_what_is_wrong(x, w, change, names):
    attributes = window(1) | {"partials": "f32"} | change
    with pytest.raises(InvalidOperand, match=names):
        infer_types("conv", (x, w), attributes)

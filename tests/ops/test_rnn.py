"""LSTM and GRU beyond the shared samples: against torch's modules, over steps in half, and how their plans behave."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from abele.compile.choose import Chooser
from abele.errors import InvalidOperand
from abele.ir import Arg, DType, Sample, evaluate_operation, f32, infer_types
from abele.machine.presets import gc200
from abele.ops.plans.planning import PLANNERS, PlanOptions, make_plan
from abele.ops.rnn import split
from abele.ops.rnn.op import BACKWARD, FORWARD, _shapes
from tests.ops.harness import Case, ask, assert_close, machine, plan_and_run


def case_of(cell: str, grad: bool, dtype: DType, t: int, b: int, i: int, h: int) -> Case:
    types = _shapes(cell, dtype, t, b, i, h)
    names = (BACKWARD if grad else FORWARD)[cell]
    args = (Arg(types[n], "uniform", 0.1, 0.9) if n == "reserve" else Arg(types[n]) for n in names)
    return Case(f"{cell}_grad" if grad else cell, 0, Sample(tuple(args), {}))


@given(
    cell=st.sampled_from(["lstm", "gru"]),
    grad=st.booleans(),
    dtype=st.sampled_from([DType.F32, DType.F16]),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(1, 5)),
    tiles=st.integers(1, 16),
)
@settings(max_examples=25)
def test_plans_on_any_sizes(cell, grad, dtype, sizes, tiles):
    plan_and_run(case_of(cell, grad, dtype, *sizes), machine(tiles))


@pytest.mark.parametrize("sizes", [(3, 1, 4, 24), (2, 3, 5, 13)])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_steps_with_split_sums(cell, grad, sizes, monkeypatch):
    """As they are where a compute set costs nothing: made in parts by many tiles, and added up where the cells are."""
    monkeypatch.setattr(split, "set_cycles", lambda chip: -(10**6))
    case = case_of(cell, grad, DType.F16, *sizes)
    plan = plan_and_run(case, machine(16))
    name = "RnnPartialGrad" if grad else "RnnPartial"
    assert sum(s.vertex == name for s in plan.sets) == sizes[0]
    vendor = make_plan(replace(ask(case, machine(16)), options=PlanOptions(planner="poplibs")))
    assert not any(s.vertex == name for s in vendor.sets)


def test_one_row_of_a_large_layer_is_quicker_with_split_sums():
    """512 hidden units, one sample: a step leaves the tiles idle, and one tile sums alone, where sums are not split."""
    chip = gc200
    for grad in (False, True):
        question = ask(case_of("lstm", grad, DType.F16, 32, 1, 512, 512), chip)
        chooser = Chooser(chip)
        best, vendor = (chooser.price(replace(question, options=PlanOptions(planner=p))) for p in PLANNERS)
        assert best < 0.8 * vendor


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_layer_is_torchs_module(cell):
    """The gate order is that of ``torch.nn``: its parameters go in as they are (LSTM's two biases are summed)."""
    torch.manual_seed(0)
    module = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[cell](5, 7)
    w_ih, w_hh, b_ih, b_hh = (p.detach().numpy() for p in module.parameters())
    x, h0, c0 = torch.randn(4, 3, 5), torch.randn(3, 7), torch.randn(3, 7)
    if cell == "lstm":
        operands = [x.numpy(), h0.numpy(), c0.numpy(), w_ih, w_hh, b_ih + b_hh]
        y, (h, c) = module(x, (h0[None], c0[None]))
        expected = [y, h[0], c[0]]
    else:
        operands = [x.numpy(), h0.numpy(), w_ih, w_hh, b_ih, b_hh]
        y, h = module(x, h0[None])
        expected = [y, h[0]]
    types = infer_types(cell, [f32(*a.shape) for a in operands], {})
    for a, e, t in zip(evaluate_operation(cell, operands, {}, types), expected, types, strict=False):
        assert_close(a, e.detach().numpy().astype(np.float64), t, cell)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_half_feeds_back_what_it_stores(cell):
    """Five steps at once and five single steps, each fed the stored output of the one before, are the same."""
    case = case_of(cell, False, DType.F16, 5, 3, 4, 6)
    values = case.values()
    whole = evaluate_operation(cell, values, {}, case.results)
    x, h, *rest = values
    one = case_of(cell, False, DType.F16, 1, 3, 4, 6)
    for t in range(2):
        part = evaluate_operation(cell, [x[t : t + 1], h, *rest], {}, one.results)
        np.testing.assert_array_equal(part[0][0], whole[0][t])
        h = part[1]
        if cell == "lstm":
            break  # the cell is carried in float, which the stored cell is not


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_recurrent_weights_are_laid_out_once(cell):
    """Every step reads the weights where they lie; only the spreading set receives them."""
    case = case_of(cell, False, DType.F16, 6, 4, 8, 32)
    chip = machine(16)
    from abele.ops.plans.layouts import flat

    plan = make_plan(ask(case, chip, [flat(t, chip) for t in case.operands]))
    steps = [s for s in plan.sets if s.vertex == "RnnStep"]
    assert len(steps) == 6
    assert all(s.reads[1].resident for s in steps)
    assert sum(s.vertex == "RnnSpread" for s in plan.sets) == 1


def test_a_big_layer_fits_a_whole_chip():
    """512 hidden units, batch 16: no tile holds more than a small part of the four megabytes of weights."""
    question = ask(case_of("lstm", False, DType.F16, 20, 16, 512, 512), machine(1472))
    for planner, vertex, reads in (("poplibs", "RnnStep", 1), ("best", "RnnPartial", 0)):
        plan = make_plan(replace(question, options=PlanOptions(planner=planner)))
        step = next(s for s in plan.sets if s.vertex == vertex)
        assert step.grid.blocks > 100
        assert step.reads[reads].layout.elements().max() * 2 < 300_000


@pytest.mark.parametrize(
    ("index", "shape", "words"),
    [(0, (0, 3, 4), "no time steps"), (1, (3,), "h0"), (3, (23, 4), "w_ih"), (5, (23,), r"\(b\)")],
)
def test_what_does_not_fit_is_refused(index, shape, words):
    types = list(case_of("lstm", False, DType.F32, 2, 3, 4, 6).operands)
    types[index] = f32(*shape)
    with pytest.raises(InvalidOperand, match=words):
        infer_types("lstm", types, {})

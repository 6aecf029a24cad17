"""Attention beyond the shared samples: plans on any shapes and machines, the gradient's form, errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from abele.compile import CompileOptions, compile_graph
from abele.engine.engine import Engine
from abele.engine.reference import run_reference
from abele.errors import InvalidOperand
from abele.ir import Arg, Builder, DType, Host, Port, Sample, f16, f32, infer_types
from abele.ir.operation import lookup
from abele.machine import one_ipu
from abele.ops.plans.planning import PlanOptions, make_plan
from tests.ops.harness import Case, ask, machine, plan_and_run


@given(st.data())
@settings(max_examples=30)
def test_plans_on_any_shape(data):
    draw = data.draw
    lead = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    rows, keys, width, values = (draw(st.integers(1, 6)) for _ in range(4))
    make = draw(st.sampled_from([f32, f16]))
    causal = draw(st.booleans())
    types = [make(*lead, rows, width), make(*lead, keys, width), make(*lead, keys, values)]
    if draw(st.booleans()):
        full = (*lead, rows, keys)
        short = full[draw(st.integers(0, len(full) - 1)) :]
        types.append(make(*(n if draw(st.booleans()) else 1 for n in short)))
    sample = Sample(tuple(map(Arg, types)), {"scale": width**-0.5, "causal": causal})
    plan_and_run(Case("attention", 0, sample), machine(draw(st.integers(1, 16))))


def test_keys_follow_their_head():
    """With one head a tile, nothing but its own keys and values is read."""
    types = (f16(2, 8, 4, 16), f16(2, 8, 64, 16), f16(2, 8, 64, 16))
    plan = plan_and_run(Case("attention", 0, Sample(tuple(map(Arg, types)), {"scale": 0.25})), machine(16))
    (done,) = plan.sets
    assert done.grid.blocks == 16
    assert done.reads[1].layout.elements().tolist() == [64 * 16] * 16


def test_bert_fits_a_chip():
    types = (f16(1, 12, 128, 64),) * 3
    case = Case("attention", 0, Sample(tuple(map(Arg, types)), {"scale": 0.125}))
    first = make_plan(ask(case, machine(1472))).sets[0]
    assert first.grid.blocks > 700


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", [None, f32(1, 300), f32(3, 300), f16(2, 1, 300)])
def test_keys_are_split_where_rows_are_few(mask, causal):
    """Three rows against 300 keys on 16 tiles: pieces are joined; causal rows do not see most pieces at all."""
    make = f16 if mask is not None and str(mask.dtype) == "f16" else f32
    types = [make(2, 3, 8), make(2, 300, 8), make(2, 300, 5)] + ([] if mask is None else [mask])
    case = Case("attention", 0, Sample(tuple(map(Arg, types)), {"scale": 0.3, "causal": causal}))
    plan = plan_and_run(case, machine(16))
    assert [s.vertex for s in plan.sets] == ["AttentionPart", "AttentionJoin"]


def test_the_gradient_keeps_no_scores():
    """The gradient is one operation on the operands: nothing of size L × S stands between forward and backward."""
    b = Builder("main")
    q, k, v = (b.input(f32(2, 9, 4)) for _ in range(3))
    b.attention(q, k, v, scale=0.5)
    (op,) = b.operations
    dy = b.input(f32(2, 9, 4))
    gradient = lookup("attention").gradient
    assert len(gradient(b, op, [dy])) == 3
    (made,) = b.operations[1:]
    assert made.name == "attention_grad" and made.operands == (dy, q, k, v)
    assert gradient(b, op, [None]) == [None] * 3


def test_causal_rows_do_not_see_later_keys():
    case = Case("attention", 0, Sample((Arg(f32(5, 4)),) * 3, {"scale": 0.5, "causal": True}))
    from abele.ir import evaluate_operation

    q, k, v = case.values()
    before = evaluate_operation("attention", [q, k, v], case.attributes, case.results)[0]
    v[3:] += 1
    after = evaluate_operation("attention", [q, k, v], case.attributes, case.results)[0]
    np.testing.assert_array_equal(before[:3], after[:3])
    assert (before[3:] != after[3:]).all()


@pytest.mark.parametrize(
    ("types", "words"),
    [
        ((f32(2, 3, 4), f32(2, 3, 5), f32(2, 3, 4)), "k must be"),
        ((f32(2, 3, 4), f32(2, 3, 4), f32(2, 5, 4)), "v must be"),
        ((f32(2, 3, 4), f32(1, 3, 4), f32(1, 3, 4)), "k must be"),
        ((f32(2, 3, 4), f32(2, 3, 4), f32(2, 3, 4), f32(2, 4)), "mask"),
        ((f32(2, 3, 4), f32(2, 3, 4)), "not 2"),
        ((f32(4), f32(4), f32(4)), "q must be"),
    ],
)
def test_what_does_not_fit_is_refused(types, words):
    with pytest.raises(InvalidOperand, match=words):
        infer_types("attention", types, {"scale": 1.0, "causal": False})


@pytest.mark.parametrize("planner", ["best", "poplibs"])
@pytest.mark.parametrize("keys", [7, 300])
def test_queries_that_see_no_key_get_zeros(planner, keys):
    """By every provider of kernels and tile by tile, whether keys are split over tiles or not; in training too."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, n, 8)).astype(np.float32) for n in (3, keys, keys))
    mask = np.where(rng.random((3, keys)) < 0.5, np.float32(0), -np.float32(np.inf))
    mask[1] = -np.inf
    b = Builder("main")
    inputs = [b.input(f32(*x.shape), "data", name) for x, name in zip((q, k, v, mask), "qkvm", strict=True)]
    y = b.attention(*inputs, scale=0.3)
    gradients = b.emit("attention_grad", [b.constant(1.0, DType.F32, y.shape), *inputs], {"scale": 0.3})
    made = [y, *gradients]
    graph = b.finish(made, [Port("anchor", str(i)) for i in range(4)])
    given = [torch.from_numpy(x).requires_grad_() for x in (q, k, v)]
    expected = torch.nn.functional.scaled_dot_product_attention(*given, torch.from_numpy(mask), scale=0.3)
    assert (expected[:, 1] == 0).all()
    expected.sum().backward()
    wanted = [expected.detach(), *(x.grad for x in given)]
    options = CompileOptions(system=one_ipu(machine(16)), plan=PlanOptions(planner=planner))
    schedule = compile_graph(graph, options).schedule
    host = Host({name: [x] for name, x in zip("qkvm", (q, k, v, mask), strict=True)})
    run_reference(schedule, [[]], [host])
    results = {"tiles": [host.outputs[str(i)][0] for i in range(4)]}
    for providers in (("numpy",), ("llvm", "numpy"), None):
        engine = Engine(schedule, threads=1, providers=providers)
        found = engine.run({name: x[None, None] for name, x in zip("qkvm", (q, k, v, mask), strict=True)})
        results[str(providers)] = [found[str(i)][0, 0] for i in range(4)]
    for who, found in results.items():
        for have, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5, err_msg=who)

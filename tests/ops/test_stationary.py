"""Products whose sums stay where they are made: right numbers, the bytes that are charged, and what it is for."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abele.charge.columns import Columns
from abele.charge.plans import PlanCharger
from abele.charge.total import Charged
from abele.compile import lower
from abele.compile.choose import Chooser
from abele.engine.reference import run_reference
from abele.ir import Builder, Port, evaluate, infer_types
from abele.ir.types import DType, TensorType, f16
from abele.machine import gc200, one_ipu
from abele.ops.matmul import plan as planning
from abele.ops.matmul.choose import Product
from abele.ops.matmul.stationary import Stationary
from abele.ops.plans.planning import PlanOptions, Question, choices_of, make_plan
from abele.schedule import Plan, Use, check, parse_schedule, print_schedule
from abele.schedule.rules import check_plan

LIMITS = {("f16", "f16"): 4e-3, ("f16", "f32"): 1e-3, ("f32", "f32"): 1e-5}


def divisors(n: int, most: int) -> list[int]:
    return [d for d in range(1, most + 1) if n % d == 0]


@st.composite
def splits(draw):
    """A product and one of its splits."""
    dtype, partials = draw(st.sampled_from(sorted(LIMITS)))
    m, k, n = (draw(st.sampled_from([24, 32, 48, 60, 64])) for _ in range(3))
    batch = draw(st.sampled_from([(), ((3, True, True),), ((2, False, True),)]))
    turned = draw(st.tuples(st.booleans(), st.booleans()))
    product = Product(batch, m, n, k, turned, DType(dtype), DType(partials))
    swapped = draw(st.booleans())
    x = n if swapped else m
    turns = draw(st.sampled_from(divisors(k, 6)))
    ks = draw(st.sampled_from(divisors(x, min(4, -(-k // turns // 4)))))
    rounds = draw(st.integers(1, 3)) if ks > 1 else 1
    xs, ys = draw(st.integers(1, min(4, x // ks))), draw(st.integers(1, 3))
    parts = tuple(draw(st.integers(1, size)) for size, _, _ in batch)
    return Stationary(product, swapped, parts, ks, xs, ys, turns, rounds, 0.0, units=8, group=4)


@settings(max_examples=30)
@given(split=splits(), more=st.integers(0, 3), kinds=st.sampled_from([("hyper", "hyper"), ("data", "hyper")]))
def test_numbers_and_bytes(split: Stationary, more: int, kinds: tuple[str, str]) -> None:
    """Any split, on the reference executor: the product, and the bytes that are charged."""
    product, turned = split.product, split.product.transposed
    tiles = split.k * split.x * split.y * math.prod(split.batch) + more
    system = one_ipu(gc200.derive(f"for {split}", tiles=tiles))
    shapes = []
    for i, outer in enumerate((product.m, product.n)):
        inner = (outer, product.k) if turned[i] == bool(i) else (product.k, outer)
        shapes.append((*(size for size, *inside in product.batch if inside[i]), *inner))
    b = Builder("main")
    operands = [b.input(TensorType(shape, product.dtype), kinds[i], f"x{i}") for i, shape in enumerate(shapes)]
    y = b.matmul(*operands, transpose_a=turned[0], transpose_b=turned[1], partials=str(product.partials))
    graph = b.finish([y], [Port("anchor", "y")])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(planning, "stationary", lambda question, product: split)
        patched.setattr(Chooser, "best", lambda self, question: self.plan(replace(question, choice=1)))
        schedule = check(lower(graph, system))
    assert parse_schedule(print_schedule(schedule)) == schedule
    (step,) = (step for _, step in schedule.steps() if step.operation == "matmul")
    assert sum(s.vertex == "MatmulTurn" for s in step.plan.sets) == split.turns
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(shape).astype(product.dtype.numpy) for shape in shapes]
    run = run_reference(schedule, [inputs])
    (want,) = (np.asarray(a, np.float64) for a in evaluate(graph, inputs))
    error = np.abs(run.outputs[0][0] - want).max() / np.abs(want).max()
    assert error < LIMITS[str(product.dtype), str(product.partials)]
    charger = PlanCharger(schedule, system, Columns())
    for count in run.counts:
        for have, counted in zip(charger.plan(count.step).sets, count.sets, strict=True):
            np.testing.assert_array_equal(have.moved.received.dense(), counted.received)
            assert have.moved.sent >= counted.sent.max()


def square(size: int, planner: str = "best") -> Question:
    """A half product of which both operands lie nowhere yet."""
    attributes = {"transpose_a": False, "transpose_b": False, "partials": "f16"}
    types = (f16(size, size),) * 2
    results = infer_types("matmul", types, attributes)
    options = PlanOptions(planner=planner)
    return Question("matmul", tuple(attributes.items()), types, results, (None, None), gc200, options=options)


@pytest.mark.parametrize(("size", "least"), [(4096, 0.72), (7168, 0.8), (8192, 0.8)])
def test_share_of_the_peak(size: int, least: float) -> None:
    """See docs/products.md: nothing beyond 77 % can be had for 4096."""
    question, chooser = square(size), Chooser(gc200)
    plan = chooser.best(question)
    chosen = min(chooser.price(replace(question, choice=i)) for i in range(choices_of(question)))
    assert plan == make_plan(replace(question, choice=1))
    assert size**3 / (gc200.tiles * gc200.macs_per_cycle("f16", "f16")) / chosen >= least


def test_fits_with_what_the_tiles_hold() -> None:
    b = Builder("main")
    x, w = (b.input(f16(8192, 8192), "state", name) for name in "xw")
    y = b.matmul(x, w, transpose_a=False, transpose_b=False, partials="f16")
    system = one_ipu(gc200)
    schedule = lower(b.finish([y], [Port("state", "x")]), system)
    (step,) = (step for _, step in schedule.steps())
    assert step.plan.sets[0].vertex == "MatmulTurn"
    memory = Charged(schedule, system).memory
    assert memory.fits and memory.max > 0.9 * memory.limit


def test_the_library_has_no_such_plan_and_small_products_none() -> None:
    assert choices_of(square(8192, "poplibs")) == 1
    assert make_plan(replace(square(1024), choice=1)) is make_plan(square(1024))


def small_plan() -> tuple[Question, Plan]:
    """Two turns and two rounds on eight tiles."""
    attributes = {"transpose_a": False, "transpose_b": False, "partials": "f16"}
    types = (f16(32, 32), f16(32, 16))
    results = infer_types("matmul", types, attributes)
    asked = Question("matmul", tuple(attributes.items()), types, results, (None, None), gc200.derive("8", tiles=8))
    product = Product((), 32, 16, 32, (False, False), DType.F16, DType.F16)
    split = Stationary(product, False, (), 2, 2, 2, 2, 2, 0.0, units=8, group=4)
    return asked, planning.plan_stationary(asked, split)


def complaints(plan: Plan, asked: Question) -> str:
    operands, results = ([Use(f"t{i}", t) for i, t in enumerate(ts)] for ts in (asked.operands, asked.results))
    return " ".join(check_plan(plan, operands, results, plan.operands, asked.chip.tiles))


def changed(plan: Plan, index: int, **what) -> Plan:
    sets = list(plan.sets)
    sets[index] = replace(sets[index], **what)
    return replace(plan, sets=tuple(sets))


def test_rules_about_what_is_written_over() -> None:
    asked, plan = small_plan()
    assert [s.vertex for s in plan.sets] == ["MatmulTurn"] * 2 + ["ReducePartials"] * 2 + ["MatmulPlace"]
    assert not complaints(plan, asked)
    second, last = plan.sets[1], plan.sets[-1]
    assert "which it does not read" in complaints(changed(plan, 1, reads=second.reads[:2]), asked)
    elsewhere = (*second.reads[:2], replace(second.reads[2], resident=False))
    assert "does not read there what it writes" in complaints(changed(plan, 1, reads=elsewhere), asked)
    assert "not written exactly once" in complaints(
        changed(plan, 1, writes=(replace(second.writes[0], over=""),)), asked
    )
    early = replace(plan, sets=(plan.sets[0], plan.sets[2], plan.sets[1], *plan.sets[3:]))
    assert "which a later set writes anew" in complaints(early, asked)
    twice = replace(plan, sets=(*plan.sets, replace(last, writes=())))
    assert "of which a later set reads the same" in complaints(twice, asked)

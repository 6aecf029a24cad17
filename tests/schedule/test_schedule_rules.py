"""Every rule of the schedule: sound schedules pass, and each kind of fault is found by name."""

import dataclasses

import numpy as np
import pytest
from handmade import dense, loop, plain
from hypothesis import given, settings
from hypothesis import strategies as st

import abele.ops  # noqa: F401  (fills the registry)
from abele.errors import Bug
from abele.ir.graph import Origin, Port
from abele.ir.types import f32
from abele.schedule import Access, Axis, ComputeSet, Grid, Layout, Plan, Repeat, Span, Use, check, check_plan
from abele.schedule.geometry import bounds, common_dimensions, lies_in, volume, window
from abele.schedule.rules import RULES


@settings(max_examples=40)
@given(*(st.integers(1, 9) for _ in range(3)), st.tuples(*(st.integers(1, 2) for _ in range(3))))
def test_sound_products(m, k, n, parts):
    parts = tuple(min(p, size) for p, size in zip(parts, (m, k, n), strict=True))
    check(dense(m, k, n, parts))


def test_sound_loop():
    check(loop())


def replace_step(schedule, index, **changes):
    nodes = list(schedule.main.nodes)
    nodes[index] = dataclasses.replace(nodes[index], **changes)
    return dataclasses.replace(schedule, main=dataclasses.replace(schedule.main, nodes=tuple(nodes)))


def replace_tensor(schedule, tensor, /, **changes):
    changed = dataclasses.replace(schedule.tensors[tensor], **changes)
    return dataclasses.replace(schedule, tensors=schedule.tensors | {tensor: changed})


def replace_set(schedule, step, index, **changes):
    plan = schedule.main.nodes[step].plan
    sets = list(plan.sets)
    sets[index] = dataclasses.replace(sets[index], **changes)
    return replace_step(schedule, step, plan=dataclasses.replace(plan, sets=tuple(sets)))


def other_tiles(layout, first):
    return dataclasses.replace(layout, grid=dataclasses.replace(layout.grid, first=first))


def faults():
    s = dense()
    x, w = s.tensors["x"], s.tensors["w"]
    product, bias = s.main.nodes[0], s.main.nodes[1]
    multiply, total = product.plan.sets
    yield "named-once", replace_tensor(s, "x", name="other")
    yield "named-once", replace_step(s, 1, results=product.results)
    yield "named-once", dataclasses.replace(loop(), functions={"bodied": loop().functions["body"]})
    yield "known-names", replace_step(s, 1, operands=(Use("nobody", f32(4, 5)), bias.operands[1]))
    yield "known-names", replace_tensor(s, "x", kind="stuff")
    yield "calls", replace_step(loop(), 0, function="nothing")
    yield "calls", replace_tensor(loop(), "acc", type=f32(3, 5))
    yield "calls", replace_tensor(loop(), "t", type=f32(3, 5))
    yield "calls", replace_step(loop(), 0, count=-1)
    again = loop().functions["smooth"]
    again = dataclasses.replace(again, nodes=(*again.nodes, Repeat("smooth", 1, (), ())))
    yield "calls", dataclasses.replace(loop(), functions=loop().functions | {"smooth": again})
    yield (
        "defined-before-use",
        dataclasses.replace(s, main=dataclasses.replace(s.main, nodes=s.main.nodes[1:] + s.main.nodes[:1])),
    )
    yield "defined-before-use", dataclasses.replace(s, main=dataclasses.replace(s.main, nodes=s.main.nodes[:2]))
    groups = {"reduction": "sum", "group": 2, "stride": 1}
    reduce = replace_step(s, 1, operation="all_reduce", operands=bias.operands[:1], attributes=groups, plan=Plan(()))
    yield "collectives", dataclasses.replace(reduce, replicas=3)
    yield "beside", replace_step(s, 0, beside=True)
    yield "beside", replace_step(s, 1, beside=True)
    yield "beside", replace_step(replace_step(s, 1, beside=True), 1, plan=Plan(()))
    yield "beside", replace_step(s, 2, beside=True, origin=Origin(stage=1))
    yield "ports", dataclasses.replace(s, input_ports=())
    yield "ports", dataclasses.replace(s, output_ports=(Port("state", "y"),))
    yield "ports", dataclasses.replace(s, output_ports=(Port("thing", "y"),))
    yield "views", replace_step(s, 0, operands=(Use("x", f32(4, 6)), product.operands[1]))
    yield "homes", replace_tensor(s, "w", ipu=1)
    yield "homes", replace_tensor(s, "xw", home=other_tiles(s.tensors["xw"].home, 5))
    yield "homes", replace_tensor(s, "w", home=dataclasses.replace(w.home, shape=(31,)))
    yield "homes", replace_tensor(s, "x", home=plain(x.home.grid, (24,), None))
    yield "homes", dataclasses.replace(replace_step(s, 1, origin=Origin(ipu=1)), ipus=2)
    yield "homes", replace_step(s, 1, plan=dataclasses.replace(bias.plan, homes=()))
    # plans: grids, names, views
    yield "homes", dataclasses.replace(s, tiles=9)
    yield "plans", replace_set(s, 0, 0, grid=total.grid)
    yield "plans", replace_set(s, 0, 0, reads=(Access("in7", multiply.reads[0].layout),))
    yield "plans", replace_set(s, 0, 1, writes=(*total.writes, Access("in0", total.writes[0].layout)))
    # plans: written exactly once
    yield "plans", replace_set(s, 0, 0, writes=())
    yield "plans", replace_set(s, 0, 1, writes=(*total.writes, *total.writes))
    part = dataclasses.replace(multiply.writes[0].layout, spans=(Span(1), Span(0), Span(2, 1, 2, 1)))
    yield "plans", replace_set(s, 0, 0, writes=(Access("tmp0", part),))
    halo = dataclasses.replace(total.writes[0].layout, spans=(Span(0, 1, 0, 2), Span(1)))
    yield "plans", replace_set(s, 0, 1, writes=(Access("out0", halo),))
    shared = dataclasses.replace(total.writes[0].layout, spans=(Span(None), Span(1)))
    yield "plans", replace_set(s, 0, 1, writes=(Access("out0", shared),))
    # plans: left where the home is
    moved = dataclasses.replace(total, grid=dataclasses.replace(total.grid, first=5))
    moved = dataclasses.replace(
        moved,
        reads=(Access("tmp0", other_tiles(total.reads[0].layout, 5)),),
        writes=(Access("out0", other_tiles(total.writes[0].layout, 5)),),
    )
    yield "plans", replace_step(s, 0, plan=dataclasses.replace(product.plan, sets=(multiply, moved)))
    # plans: read after written, resident where it is
    yield "plans", replace_step(s, 0, plan=dataclasses.replace(product.plan, sets=(total, multiply)))
    yield "plans", replace_set(s, 0, 1, reads=(*total.reads, Access("out0", total.writes[0].layout)))
    yield "plans", replace_set(s, 0, 0, reads=tuple(dataclasses.replace(r, resident=True) for r in multiply.reads))
    yield "plans", replace_set(s, 0, 1, reads=(dataclasses.replace(total.reads[0], resident=True),))
    # plans: a write is never resident
    yield "plans", replace_set(s, 0, 1, writes=(dataclasses.replace(total.writes[0], resident=True),))


@pytest.mark.parametrize(("rule", "schedule"), list(faults()))
def test_faults(rule, schedule):
    with pytest.raises(Bug) as raised:
        check(schedule)
    assert f"{rule}:" in str(raised.value)


def test_every_rule_has_a_fault():
    assert {rule for rule, _ in faults()} == set(RULES)


def test_windows_of_one_result_in_several_sets():
    """A concatenation done as two copies is sound; leaving a gap, or reading the second half early, is not."""
    use = [Use("a", f32(6)), Use("b", f32(4))]

    def copy(name, size, offset, reads=()):
        grid = Grid((Axis("n", size, 2),), 4, 0 if offset == 0 else 2)
        out = Layout(grid, (10,), (Span(0, 1, offset, 1),))
        return ComputeSet("copy", grid, (Access(name, plain(grid, (size,), 0)), *reads), (Access("out0", out),))

    first, second = copy("in0", 6, 0), copy("in1", 4, 6)
    early = Access("out0", Layout(first.grid, (10,), (Span(0, 1, 6, 1),)))
    homes = [None, None]

    def complaints(*sets):
        return list(check_plan(Plan(sets), use, [Use("c", f32(10))], homes, 4))

    assert complaints(first, second) == []
    assert complaints(first) != []
    assert complaints(first, dataclasses.replace(copy("in1", 4, 5))) != []
    assert complaints(dataclasses.replace(first, reads=(*first.reads, early)), second) != []


@settings(max_examples=60)
@given(
    size=st.integers(1, 20),
    parts=st.integers(1, 4),
    stride=st.integers(1, 3),
    offset=st.integers(-3, 3),
    extent=st.integers(1, 4),
    divide=st.integers(1, 3),
)
def test_window_holds_all_regions(size, parts, stride, offset, extent, divide):
    axis = Axis("n", max(size, parts), parts)
    layout = Layout(Grid((axis,), 4), (size,), (Span(0, stride, offset, extent, divide),))
    ((start, stop),) = bounds(layout)
    filled = stop > start
    (have,) = window(layout)
    if filled.any():
        assert have[0] <= start[filled].min()
        assert have[1] >= stop[filled].max()
        if layout.spans[0].exact:
            assert have == (start[filled].min(), stop[filled].max())
    # an empty end block may stretch the window, never shrink it
    assert volume(window(layout)) >= (stop - start).max()


def test_lies_in():
    grid = Grid((Axis("n", 12, 4),), 6)
    home = plain(grid, (12,), 0)
    inner = Layout(Grid((Axis("m", 8, 4),), 6), (12,), (Span(0),))
    assert lies_in(home, home)
    assert not lies_in(inner, home)
    assert not lies_in(other_tiles(home, 1), home)
    first = Layout(Grid((Axis("m", 3, 1),), 6), (12,), (Span(0),))
    assert lies_in(first, home)
    rows, turned = Layout(grid, (12, 5), (Span(0), Span())), Layout(grid, (5, 12), (Span(), Span(0)))
    flat = Layout(grid, (60,), (Span(0, 5, 0, 5),))
    assert lies_in(rows, flat) and lies_in(flat, rows)
    assert not lies_in(turned, flat) and not lies_in(flat, turned)


def test_common_dimensions():
    assert common_dimensions((4, 6, 5), (24, 5)) == [(range(2), range(1)), (range(2, 3), range(1, 2))]
    assert common_dimensions((), (1, 1)) == [(range(0), range(1)), (range(0), range(1, 2))]
    assert common_dimensions((2, 1, 3), (2, 3)) == [
        (range(1), range(1)),
        (range(1, 3), range(1, 2)),
    ]


layouts = st.builds(
    lambda shape, parts, axes, first: (shape, parts, axes, first),
    st.sampled_from([(12,), (3, 4), (2, 6), (2, 2, 3), (12, 1), (1, 12), (6, 2)]),
    st.tuples(st.integers(1, 3), st.integers(1, 2)),
    st.permutations([0, 1, None, None]),
    st.integers(0, 1),
)


@settings(max_examples=300)
@given(layouts, layouts)
def test_lies_in_is_never_wrong(a, b):
    """Where the closed form says that a region lies on its tile, it does; in one view it says so whenever it does."""

    def make(shape, parts, axes, first):
        axes = axes[: len(shape)]
        sizes = {axis: size for axis, size in zip(axes, shape, strict=True) if axis is not None}
        grid = Grid(
            tuple(Axis(f"a{i}", sizes.get(i, 1), min(p, sizes.get(i, 1))) for i, p in enumerate(parts)), 8, first
        )
        return Layout(grid, shape, tuple(Span(axis) for axis in axes))

    part, whole = make(*a), make(*b)
    numbers = np.arange(12)

    def held(layout):
        on = {}
        for block in range(layout.grid.blocks):
            on[layout.grid.tile(block)] = set(numbers.reshape(layout.shape)[layout.region(block)].ravel().tolist())
        return on

    have = held(whole)
    truth = all(elements <= have.get(tile, set()) for tile, elements in held(part).items())
    said = lies_in(part, whole)
    assert truth or not said
    if part.shape == whole.shape or part == whole:
        assert said == truth

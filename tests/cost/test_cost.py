"""Cost against numbers worked by hand and against the counts of the reference executor."""

import dataclasses
import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abele.charge.columns import Columns, most_held, most_sent, region_sizes, shared_by_pairs
from abele.charge.cycles import Charger
from abele.charge.records import PARTS
from abele.cost import cost, explain
from abele.engine.reference import run_reference
from abele.errors import InvalidOption
from abele.ir.graph import Origin
from abele.ir.interpret import Host
from abele.ir.types import DType
from abele.machine import bow, find_system, one_ipu
from abele.schedule import Axis, Grid, Layout, Plan, Span, Step, check, parse_schedule, print_schedule, spread
from abele.schedule.liveness import liveness

sys.path.append(str(Path(__file__).parents[1] / "schedule"))
from handmade import dense, loop, plain


def small(tiles, **changes):
    """A Bow of a few tiles, one IPU of it."""
    return one_ipu(bow.derive("small", tiles=tiles, **changes))


def charged(schedule, system):
    live = liveness(schedule)
    charger = Charger(schedule, system, live, Columns())
    charger.function(schedule.main)
    return charger


def draw(shape, seed, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


sizes = st.integers(1, 9)
splits = st.tuples(*(st.integers(1, 2) for _ in range(3)))


@settings(max_examples=40)
@given(m=sizes, k=sizes, n=sizes, parts=splits, tiles=st.integers(8, 16), dtype=st.sampled_from([DType.F16, DType.F32]))
def test_bytes_moved_are_bytes_charged(m, k, n, parts, tiles, dtype):
    parts = tuple(min(p, size) for p, size in zip(parts, (m, k, n), strict=True))
    schedule = check(dense(m, k, n, parts, tiles, dtype))
    run = run_reference(schedule, [[draw((m, k), 0), draw((k, n), 1), draw(n, 2)]])
    compare(run, charged(schedule, small(tiles)))


@settings(max_examples=30)
@given(
    size=st.integers(4, 30),
    parts=st.integers(1, 4),
    tiles=st.integers(4, 9),
    replicas=st.integers(1, 2),
)
def test_bytes_of_halos_and_loops(size, parts, tiles, replicas):
    schedule = check(loop(size, parts, tiles, 2, replicas))
    assert parse_schedule(print_schedule(schedule)) == schedule
    hosts = [Host({"data": [draw(size, i), draw(size, 9 + i)]}) for i in range(replicas)]
    run = run_reference(schedule, [[draw(size, 5)]] * replicas, hosts)
    system = dataclasses.replace(small(tiles), ipus=replicas)
    compare(run, charged(schedule, system))


@settings(max_examples=60)
@given(
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    parts=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    reach=st.tuples(*(st.integers(0, 3) for _ in range(4))),
    shift=st.integers(-2, 2),
    first=st.integers(0, 2),
)
def test_what_a_halo_takes_is_counted_element_by_element(sizes, parts, reach, shift, first):
    """Received and sent of a read with a halo, against the elements of every block; another grid sends at most all."""
    parts = tuple(min(p, n) for p, n in zip(parts, sizes, strict=True))
    axes = tuple(Axis(f"d{i}", n, p) for i, (n, p) in enumerate(zip(sizes, parts, strict=True)))
    grid = Grid(axes, 16)
    home = plain(Grid(axes, 16, first), sizes, 0, 1)
    low, high = reach[:2], reach[2:]
    spans = tuple(Span(i, 1, shift - a, a + b + 1) for i, (a, b) in enumerate(zip(low, high, strict=True)))
    read = Layout(grid, sizes, spans)
    owner = np.zeros(sizes, np.int64)
    for block in range(grid.blocks):
        owner[home.region(block)] = home.grid.tile(block)
    received, sent = np.zeros(16, np.int64), np.zeros(sizes, bool)
    for block in range(grid.blocks):
        away = owner[read.region(block)] != grid.tile(block)
        received[grid.tile(block)] = away.sum()
        sent[read.region(block)] |= away
    np.testing.assert_array_equal(Columns().missing(read, [home]).dense(), received)
    most = np.bincount(owner[sent], minlength=1).max()
    assert most_sent(home, read) >= most
    if first == 0 and shift == 0:
        assert most_sent(home, read) == most


def compare(run, charger):
    for count in run.counts:
        plan = charger.plan(count.step)
        assert len(plan.sets) == len(count.sets)
        for have, want in zip(plan.sets, count.sets, strict=True):
            assert have.vertices == want.vertices
            np.testing.assert_array_equal(have.moved.received.dense(), want.received)
            assert have.moved.sent >= want.sent.max()


def test_operand_of_another_ipu_goes_over_the_links():
    schedule = dense(tiles=8)
    near = charged(schedule, small(8)).plan(schedule.main.nodes[1])
    xw = dataclasses.replace(schedule.tensors["xw"], ipu=1)
    nodes = list(schedule.main.nodes)
    nodes[0] = dataclasses.replace(nodes[0], origin=Origin(ipu=1))
    schedule = dataclasses.replace(
        schedule,
        ipus=2,
        tensors=schedule.tensors | {"xw": xw},
        main=dataclasses.replace(schedule.main, nodes=tuple(nodes)),
    )
    system = find_system("bow-2000").derive("two", chip=bow.derive("small", tiles=8)).with_ipus(2)
    charger = charged(check(schedule), system)
    run = run_reference(schedule, [[draw((4, 6), 0), draw((6, 5), 1), draw(5, 2)]])
    compare(run, charger)
    add = charger.plan(schedule.main.nodes[1])
    assert add.linked == 4 * 5 * 2
    assert near.linked == 0
    assert add.cycles.links > 0 == near.cycles.links
    assert add.cycles.sync == near.cycles.sync - system.chip.sync_cycles + system.global_sync_cycles


def test_cycles_by_hand():
    """The bias step: every tile of the 2 x 2 grid receives its 3 or 2 half columns, 6 bytes at most."""
    chip = bow.derive("small", tiles=8)
    add = charged(dense(tiles=8), one_ipu(chip)).plan(dense(tiles=8).main.nodes[1])
    (only,) = charged(s := dense(tiles=8), one_ipu(chip)).plan(s.main.nodes[1]).sets
    assert add.vertices == 4
    assert only.moved.received.max == 6
    moving = 3 * chip.exchange_receive_instructions  # a message for each element, longer than the two words take
    assert only.moved.exchange == chip.exchange_start_cycles + moving
    assert only.sync == chip.sync_cycles + chip.compute_set_cycles
    assert only.compute == 10 + 2 * 3 + 3 + 2 * 3  # the test's own vertex: elements read and written


def test_parts_add_up_and_loops_multiply():
    one, many = (cost(loop(count=c, tiles=8), small(8)) for c in (1, 5))
    for part in set(PARTS) - {"overhead"}:
        assert getattr(many.cycles, part) == pytest.approx(5 * getattr(one.cycles, part))
    way_back = small(8).chip.cycles(small(8).host_return_seconds)  # once in a device iteration
    assert many.cycles.overhead == one.cycles.overhead == pytest.approx(way_back) != 0
    for profile in (one, many):
        rows = sum((s.cycles.total * s.times for s in profile.steps), 0.0)
        assert rows == pytest.approx(profile.cycles.total)
        for groups in (profile.by_operation(), profile.by_line(), profile.by_module()):
            assert sum(g.cycles.total for g in groups) == pytest.approx(rows)
        line = profile.timeline
        ends = line.start + line.sync + line.exchange + line.compute + line.host
        assert ends[-1] == pytest.approx(profile.cycles.total)
        assert (np.diff(line.start) >= 0).all()


def pipelined(stages, count, backward):
    schedule = loop(count=count, tiles=8, stages=stages)
    if not backward:
        body = schedule.functions["body"]
        nodes = (*body.nodes[:2], dataclasses.replace(body.nodes[2], origin=Origin()), body.nodes[3])
        functions = schedule.functions | {"body": dataclasses.replace(body, nodes=nodes)}
        schedule = dataclasses.replace(schedule, functions=functions)
    return schedule


@pytest.mark.parametrize(("backward", "ramp"), [(False, 3), (True, 6)])
def test_pipeline(backward, ramp):
    """4 stages, of which the first has all the work: it alone takes a slot, the slots in which others run a sync."""
    system = small(8)
    profile = cost(pipelined(4, 10, backward), system)
    (fold,) = profile.timeline.folds
    assert fold.ramp == ramp
    assert fold.length == pytest.approx(10 * fold.slot + profile.cycles.bubble)
    assert 0 < profile.cycles.bubble < ramp * fold.slot


def test_replicas_pay_an_all_reduce():
    system = find_system("bow-pod16").derive("pod", chip=bow.derive("small", tiles=8))
    alone, four = (cost(loop(tiles=8, replicas=r), system) for r in (1, 4))
    assert alone.cycles.links == 0 < four.cycles.links
    assert four.memory.max == alone.memory.max


def test_memory_by_hand():
    """Tile 1 of the loop at the stencil: state 3 floats, the new value, the streamed piece, and the halo."""
    profile = cost(loop(size=12, parts=4, tiles=5), small(5))
    m = profile.memory
    assert m.categories["state"] == 12
    assert m.categories["exchange buffers"] == 12  # of 3 floats and one more on either side, 2 lie there already
    assert m.categories["values"] in (12 + 8, 12 + 12)
    assert sum(m.categories.values()) == m.max == m.totals[m.fullest_ipu, m.fullest_tile]
    assert m.curve_max.max() == m.max
    assert profile.steps[profile.timeline.row[m.peak_step]].name == "hand_stencil"
    assert [t.source for t in m.by_tensor if t.kind == "state"] == ["sum"]
    assert sum(t.bytes for t in m.by_tensor) == m.categories["state"] + m.categories["values"]


@settings(max_examples=25)
@given(m=sizes, k=sizes, n=sizes, parts=splits, tiles=st.integers(8, 12))
def test_memory_adds_up(m, k, n, parts, tiles):
    parts = tuple(min(p, size) for p, size in zip(parts, (m, k, n), strict=True))
    schedule = dense(m, k, n, parts, tiles)
    memory = cost(schedule, small(tiles)).memory
    assert sum(memory.categories.values()) == memory.max
    weights = schedule.tensors["w"].type.bytes + schedule.tensors["bias"].type.bytes
    assert memory.always["state"].sum() == weights
    assert memory.curve_max.max() == memory.max
    assert (memory.totals >= np.sum(list(memory.always.values()), axis=0)).all()


def test_what_does_not_fit_is_explained():
    schedule, system = dense(tiles=8), small(8, tile_memory=1200)
    profile = cost(schedule, system)
    said = explain(profile)
    assert not said.fits and not profile.memory.fits
    assert said.gap == said.demand - 1200 > 0
    assert said.step == "hand_matmul" and "net.py:7" in said.where
    assert "fc.weight" in said.text and "more than it has" in said.text
    assert explain(cost(schedule, small(8))).gap == 0
    json.dumps(said.to_json())


def test_json():
    text = json.dumps(cost(loop(tiles=8), small(8), samples=6).to_json())
    found = json.loads(text)
    assert {"cycles", "seconds", "throughput", "tile_memory", "cycles_by", "flops", "peak_fraction"} <= set(found)
    assert {"limit", "max", "mean", "fits", "fullest_tile"} <= set(found["tile_memory"])
    assert {"compute", "exchange", "sync", "host"} <= set(found["cycles_by"])
    assert found["throughput"] == pytest.approx(6 / found["seconds"])
    assert sum(found["energy"]["parts"].values()) == pytest.approx(found["energy_joules"])


def test_refuses_what_the_system_lacks():
    with pytest.raises(InvalidOption, match="tiles"):
        cost(dense(tiles=8), find_system("bow-2000"))
    with pytest.raises(InvalidOption, match="IPUs"):
        cost(loop(tiles=8, replicas=2), small(8))


def test_streams_in_a_row_share_one_latency():
    schedule, system = loop(tiles=8, count=1), small(8)
    load = schedule.functions["body"].nodes[0]
    x2 = dataclasses.replace(schedule.tensors["x"], name="x2")
    second = Step("host_load", (), (dataclasses.replace(load.results[0], tensor="x2"),), load.attributes, load.plan)
    body = schedule.functions["body"]
    body = dataclasses.replace(body, nodes=(load, second, *body.nodes[1:]))
    twice = dataclasses.replace(
        schedule, tensors=schedule.tensors | {"x2": x2}, functions=schedule.functions | {"body": body}
    )
    more = cost(check(twice), system).cycles.host - cost(schedule, system).cycles.host
    assert more == pytest.approx(system.chip.cycles(48 / system.host_bytes_per_second))


def test_a_slower_vertex_or_exchange_costs_more():
    schedule = dense(tiles=8)
    fast, slow = cost(schedule, small(8)), cost(schedule, small(8, exchange_bytes_per_cycle=1.0))
    assert slow.cycles.exchange > fast.cycles.exchange
    assert slow.cycles.compute == fast.cycles.compute


@settings(max_examples=60)
@given(
    size=st.integers(1, 20),
    parts=st.integers(1, 4),
    span=st.builds(Span, st.just(0), st.integers(1, 3), st.integers(-3, 3), st.integers(1, 4), st.integers(1, 3)),
)
def test_class_sizes_bound_every_block(size, parts, span):
    layout = Layout(Grid((Axis("n", max(size, parts), parts),), 4), (size,), (span,))
    _, lengths = layout.grid.classes()
    assert region_sizes(layout, lengths).max() >= layout.elements().max()


def test_most_sent_counts_only_what_is_read():
    home = spread(16, 4)
    assert most_sent(home, home) == 0 < most_held(home, home) == 4
    part = Layout(Grid((Axis("n", 2, 2),), 4), (16,), (Span(0, 1, 5, 1),))
    assert most_sent(home, part) == 1  # element 5; element 6 lies where it is read
    assert most_sent(home, plain(Grid((), 4), (4, 4), None, None)) == 4


def test_pairs_share_a_bus():
    axes = (Axis("m", 4, 2), Axis("n", 4, 2))
    grid = Grid(axes, 4)
    assert shared_by_pairs(plain(grid, (4,), 0), 2)
    assert not shared_by_pairs(plain(grid, (4,), 1), 2)
    assert shared_by_pairs(plain(grid, (4,), None), 2)
    assert not shared_by_pairs(plain(Grid(axes, 6, 1), (4,), 0), 2)


def test_work_of_equal_plans_is_shared():
    """A thousand layers on one plan are charged as one distinct plan."""
    schedule = dense(tiles=8)
    scale, y = schedule.main.nodes[2], schedule.tensors["y"]
    names = ["z", *(f"y{i}" for i in range(1000))]
    nodes = [
        dataclasses.replace(
            scale,
            operands=(dataclasses.replace(scale.operands[0], tensor=a),),
            results=(dataclasses.replace(scale.results[0], tensor=b),),
        )
        for a, b in itertools.pairwise(names)
    ]
    tensors = schedule.tensors | {n: dataclasses.replace(y, name=n) for n in names[1:]}
    main = dataclasses.replace(schedule.main, nodes=(*schedule.main.nodes[:2], *nodes), results=(names[-1],))
    deep = check(dataclasses.replace(schedule, tensors=tensors, main=main))
    charger = charged(deep, small(8))
    assert len(charger.plans) == 3
    memory = cost(deep, small(8)).memory
    assert memory.max - cost(schedule, small(8)).memory.max < 100 * 1000


def test_steps_without_work_cost_nothing():
    schedule = loop(tiles=8)
    step = Step("print_tensor", (), (), {}, Plan(()))
    main = dataclasses.replace(schedule.main, nodes=(*schedule.main.nodes, step))
    more = cost(dataclasses.replace(schedule, main=main), small(8))
    assert more.cycles == cost(schedule, small(8)).cycles


def test_a_schedule_read_back_costs_the_same():
    """What is cached as text is charged as what was just compiled: equal plans count once, one object or not."""
    from tests.compile.nets import layered, parameters

    from abele.compile import CompileOptions, compile_graph
    from abele.compile.passes.update import Optimiser
    from abele.machine import find_system
    from abele.schedule.text import parse_schedule, print_schedule

    graph, system = layered(3, width=64, batch=16), find_system("m2000")
    sgd = Optimiser("sgd", (parameters(graph),), ((("momentum", 0.9), ("dampening", 0.0), ("weight_decay", 0.0)),))
    made = compile_graph(graph, CompileOptions(system, optimiser=sgd, outline=False)).schedule
    read = parse_schedule(print_schedule(made))
    assert cost(read, system).to_json() == cost(made, system).to_json()

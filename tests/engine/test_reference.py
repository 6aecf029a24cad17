"""The reference executor: numbers against NumPy, counts, and the faults that it must notice."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abele.engine.reference import owners, run_reference
from abele.errors import Bug, InvalidOperand, Unsupported
from abele.ir.interpret import Host
from abele.ir.types import DType
from abele.schedule import Access, Plan, Span, Step, Use, check, spread

sys.path.append(str(Path(__file__).parents[1] / "schedule"))
from handmade import dense, loop


def draw(shape, seed, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


sizes = st.integers(1, 9)
splits = st.tuples(*(st.integers(1, 2) for _ in range(3)))


@settings(max_examples=40)
@given(m=sizes, k=sizes, n=sizes, parts=splits, tiles=st.integers(8, 12), dtype=st.sampled_from([DType.F16, DType.F32]))
def test_dense(m, k, n, parts, tiles, dtype):
    parts = tuple(min(p, size) for p, size in zip(parts, (m, k, n), strict=True))
    schedule = check(dense(m, k, n, parts, tiles, dtype))
    inputs = [draw(shape, i).astype(dtype.numpy) for i, shape in enumerate([(m, k), (k, n), (n,)])]
    run = run_reference(schedule, [inputs])
    x, w, bias = (a.astype(np.float64) for a in inputs)
    tolerance = {DType.F16: 2e-2, DType.F32: 1e-5}[dtype]
    np.testing.assert_allclose(run.outputs[0][0], (x @ w + bias) * 0.5, rtol=tolerance, atol=tolerance)
    assert run.outputs[0][0].dtype == dtype.numpy

    product, add, scale = run.counts
    pm, pk, pn = parts
    assert [c.vertices for c in product.sets] == [pm * pk * pn, pm * pn]
    # every vertex of the first set has its piece of x and of w, every partial sum is read once, but for what lies there
    homes = {name: schedule.tensors[use.tensor].home for name, use in zip(("in0", "in1"), product.step.operands)}
    first, second = product.step.plan.sets
    pieces = {access.name: taken(access.layout, homes[access.name]) for access in first.reads}
    assert (sum(whole for whole, _ in pieces.values())) == m * k * pn + k * n * pm
    assert product.sets[0].received.sum() == sum(away for _, away in pieces.values()) * dtype.bytes
    assert product.sets[0].sent.sum() <= (m * k + k * n) * dtype.bytes
    whole, away = taken(second.reads[0].layout, first.writes[0].layout)
    assert whole == pk * m * n
    assert product.sets[1].received.sum() == away * dtype.bytes
    assert add.sets[0].received.sum() <= pm * n * dtype.bytes
    assert scale.sets[0].received.sum() == 0


def taken(read, home):
    """Elements of all blocks of a read, and those that lie on another tile than the block, looked up one by one."""
    whole, away, owner = 0, 0, owners(home).reshape(read.shape)
    for block in range(read.grid.blocks):
        region = owner[read.region(block)]
        whole, away = whole + region.size, away + int((region != read.grid.tile(block)).sum())
    return whole, away


@settings(max_examples=30)
@given(
    size=st.integers(4, 20),
    parts=st.integers(1, 4),
    tiles=st.integers(4, 6),
    count=st.integers(0, 3),
    replicas=st.integers(1, 3),
)
def test_loop(size, parts, tiles, count, replicas):
    schedule = check(loop(size, parts, tiles, count, replicas))
    streams = [[draw(size, 10 * r + i, np.float32) for i in range(count)] for r in range(replicas)]
    hosts = [Host({"data": stream}) for stream in streams]
    starts = [draw(size, 99 + r, np.float32) for r in range(replicas)]
    run = run_reference(schedule, [[s] for s in starts], hosts)

    def smooth(x):
        return np.convolve(x.astype(np.float64), np.ones(3), "same")

    sums = [s + sum(map(smooth, stream)) for s, stream in zip(starts, streams, strict=True)]
    for replica in range(replicas):
        np.testing.assert_allclose(run.outputs[replica][0], np.mean(sums, axis=0), rtol=1e-4, atol=1e-5)
        assert run.next_state[replica]["sum"] is run.outputs[replica][0]
        seen = hosts[replica].outputs.get("seen", [])
        assert len(seen) == count
        for value, x in zip(seen, streams[replica], strict=True):
            np.testing.assert_allclose(value, smooth(x), rtol=1e-5, atol=1e-5)
    if count:
        (stencil,) = [c for c in run.counts if c.step.operation == "hand_stencil"]
        assert stencil.times == count
        # each vertex reads one element more on either side, but none beyond the ends; some lie there
        home = schedule.tensors[stencil.step.operands[0].tensor].home
        whole, away = taken(stencil.step.plan.sets[0].reads[0].layout, home)
        assert whole == size + 2 * (parts - 1)
        assert stencil.sets[0].received.sum() == 4 * away


def test_a_call_copies_what_lies_elsewhere():
    schedule = loop(count=2)
    host = Host({"data": [draw(12, 0), draw(12, 1)]})
    assert run_reference(schedule, [[draw(12, 2)]], [host]).copied == {}
    moved = dataclasses.replace(schedule.tensors["x"], home=spread(12, 5, first=2))
    nodes = schedule.functions["body"].nodes
    load = dataclasses.replace(nodes[0], plan=Plan((), (), (moved.home,)))
    body = dataclasses.replace(schedule.functions["body"], nodes=(load, *nodes[1:]))
    schedule = dataclasses.replace(
        schedule, tensors=schedule.tensors | {"x": moved}, functions=schedule.functions | {"body": body}
    )
    host = Host({"data": [draw(12, 0), draw(12, 1)]})
    assert run_reference(check(schedule), [[draw(12, 2)]], [host]).copied == {"smooth": 2 * 48}


def broken(step, index, **changes):
    """The dense schedule with one compute set changed."""
    schedule = dense()
    nodes = list(schedule.main.nodes)
    sets = list(nodes[step].plan.sets)
    sets[index] = dataclasses.replace(sets[index], **changes)
    nodes[step] = dataclasses.replace(nodes[step], plan=dataclasses.replace(nodes[step].plan, sets=tuple(sets)))
    return dataclasses.replace(schedule, main=dataclasses.replace(schedule.main, nodes=tuple(nodes)))


def faults():
    swapped = dense()
    nodes = list(swapped.main.nodes)
    multiply, total = nodes[0].plan.sets
    add = nodes[1].plan.sets[0]
    out = total.writes[0].layout
    columns, rows = (dataclasses.replace(out, spans=spans) for spans in ((Span(), Span(1)), (Span(0), Span())))
    yield "twice", broken(1, 0, reads=(Access("in0", columns), add.reads[1]), writes=(Access("out0", columns),))
    yield "makes .* for a region", broken(0, 1, writes=(Access("out0", rows),))
    nodes[0] = dataclasses.replace(nodes[0], plan=dataclasses.replace(nodes[0].plan, sets=(total, multiply)))
    swapped = dataclasses.replace(swapped, main=dataclasses.replace(swapped.main, nodes=tuple(nodes)))
    yield "before all of it is written", swapped
    yield "writes itself", broken(0, 1, reads=(*total.reads, Access("out0", out)))
    yield "resident on tile", broken(0, 1, reads=(dataclasses.replace(total.reads[0], resident=True),))
    moved = dataclasses.replace(out.grid, first=0)
    reads = (Access("tmp0", dataclasses.replace(total.reads[0].layout, grid=moved)),)
    writes = (Access("out0", dataclasses.replace(out, grid=moved)),)
    yield "where its home is", broken(0, 1, grid=moved, reads=reads, writes=writes)
    yield "makes 1 pieces for 2 writes", broken(0, 1, writes=(*total.writes, *total.writes))


@pytest.mark.parametrize(("message", "schedule"), list(faults()))
def test_faults(message, schedule):
    with pytest.raises(Bug, match=message):
        run_reference(schedule, [[draw((4, 6), 0), draw((6, 5), 1), draw(5, 2)]])


def test_read_before_made_and_bad_inputs():
    schedule = dense()
    main = dataclasses.replace(schedule.main, nodes=schedule.main.nodes[1:])
    inputs = [draw((4, 6), 0), draw((6, 5), 1), draw(5, 2)]
    with pytest.raises(Bug, match="not made yet"):
        run_reference(dataclasses.replace(schedule, main=main), [inputs])
    with pytest.raises(InvalidOperand):
        run_reference(schedule, [inputs, inputs])
    with pytest.raises(InvalidOperand):
        run_reference(schedule, [inputs[:2]])
    step = schedule.main.nodes[2]
    nodes = (*schedule.main.nodes[:2], Step("magic", step.operands, step.results, {}, Plan((), (), step.plan.homes)))
    with pytest.raises(Unsupported, match="magic"):
        run_reference(dataclasses.replace(schedule, main=dataclasses.replace(schedule.main, nodes=nodes)), [inputs])


def test_operand_of_another_ipu_is_received_though_resident():
    schedule = dense()
    xw = dataclasses.replace(schedule.tensors["xw"], ipu=1)
    nodes = list(schedule.main.nodes)
    nodes[0] = dataclasses.replace(nodes[0], origin=dataclasses.replace(nodes[0].origin, ipu=1))
    schedule = dataclasses.replace(
        schedule,
        ipus=2,
        tensors=schedule.tensors | {"xw": xw},
        main=dataclasses.replace(schedule.main, nodes=tuple(nodes)),
    )
    run = run_reference(check(schedule), [[draw((4, 6), 0), draw((6, 5), 1), draw(5, 2)]])
    product, add, _ = run.counts
    assert product.sets[0].linked == (4 * 6 * 2 + 6 * 5 * 2) * 2
    assert add.sets[0].linked == 4 * 5 * 2
    assert add.sets[0].received.sum() == (4 * 5 + 2 * 5) * 2


def test_owners():
    layout = spread(7, 4, 2, 3)
    assert owners(layout).tolist() == [3, 3, 0, 0, 1, 1, 2]
    overlapping = dataclasses.replace(layout, spans=(Span(0, 1, 0, 2),))
    with pytest.raises(Bug, match="same element"):
        owners(overlapping)
    gap = dataclasses.replace(layout, spans=(Span(0, 1, 2, 1),))
    with pytest.raises(Bug, match="No tile"):
        owners(gap)


def test_views():
    """A step may see its operand as a row-major view of the tensor."""
    schedule = dense()
    step = schedule.main.nodes[2]
    home = step.plan.homes[0]
    flat = Use("z", step.operands[0].type.with_shape((20,)))
    nodes = (*schedule.main.nodes[:2], dataclasses.replace(step, operands=(flat,)))
    viewed = dataclasses.replace(schedule, main=dataclasses.replace(schedule.main, nodes=nodes))
    inputs = [draw((4, 6), 0), draw((6, 5), 1), draw(5, 2)]
    assert home.shape == (4, 5)
    a, b = (run_reference(check(s), [inputs]).outputs[0][0] for s in (schedule, viewed))
    np.testing.assert_array_equal(a, b)

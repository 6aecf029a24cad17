"""The two modes of the planner: what `best` does beyond the vendor's libraries, `poplibs` leaves alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from abele.charge import Charged
from abele.charge.records import Cycles
from abele.compile.choose import Chooser
from abele.compile.executable import compile_graph, key_of
from abele.compile.pipelines import IO_TILES, CompileOptions, io_tiles_for
from abele.engine.engine import Engine
from abele.errors import InvalidOption
from abele.ir.builder import Builder
from abele.ir.graph import Graph, Port
from abele.ir.types import DType, TensorType
from abele.machine.exchange import host_seconds
from abele.machine.presets import gc200
from abele.machine.system import find_system, one_ipu
from abele.ops.plans.layouts import own, split_dims
from abele.ops.plans.planning import PlanOptions, Question, make_plan
from abele.schedule.records import Schedule

OPTIONS = CompileOptions(one_ipu(gc200.derive("few", tiles=32)))
POPLIBS = replace(OPTIONS, plan=PlanOptions(planner="poplibs"))


def program(dtype: DType = DType.F32) -> Graph:
    """Attention, a product with a bias and a gelu, and a chain of elementwise operations."""
    b = Builder("program")
    q, k, v = (b.input(TensorType((2, 4, 16, 8), dtype), "data", name) for name in "qkv")
    w, bias = b.input(TensorType((8, 8), dtype), "state", "w"), b.input(TensorType((8,), dtype), "state", "b")
    (y,) = b.emit("attention", (q, k, v), {"scale": 8**-0.5, "causal": True})
    y = b.emit("gelu", (b.add(b.matmul(y, w), bias),), {"approximate": "none"})[0]
    y = b.mul(b.exp(b.neg(y)), b.constant(0.5, dtype))
    return b.finish([y], [Port("anchor", "y")])


def names(options: CompileOptions) -> list[str]:
    return [step.operation for _, step in compile_graph(program(), options).schedule.steps()]


def test_best_fuses_and_poplibs_does_not() -> None:
    found = names(OPTIONS)
    assert "attention" in found and "fused" in found and "softmax" not in found
    found = names(POPLIBS)
    assert "attention" not in found and "fused" not in found
    assert found.count("matmul") == 3 and found.count("softmax") == 1
    # the gelu is one vertex of the library; the rest one operation after another, the constant with the product
    assert [n for n in found if not n.startswith("host")][-5:] == ["add", "map", "neg", "exp", "map"]


def test_transfers_go_beside_compute_where_that_gives_more_samples_a_second() -> None:
    """Tiles are set aside where the host takes longer than they would have saved; never where they are few, and not
    where a single sample's time counts or the planner is the vendor's."""
    system = find_system("m2000")

    def compiled(**changes: Any) -> tuple[Schedule, Cycles]:
        options = replace(CompileOptions(system), **changes)
        schedule = compile_graph(program(), options).schedule
        return schedule, Charged(schedule, system).cycles

    (aside, quick), (alone, slow) = compiled(), compiled(beside=False)
    assert aside.io_tiles == IO_TILES[0] and alone.io_tiles == 0
    assert quick.total < slow.total and quick.host < slow.host
    assert all(s.attributes["overlap"] for _, s in aside.steps() if s.operation.startswith("host_"))
    # in and out at once: a run takes as long as the longer of them, or as the tiles do
    moved = {name: 0 for name in ("host_load", "host_store")}
    for _, step in aside.steps():
        if step.operation in moved:
            moved[step.operation] += sum(use.type.bytes for use in (*step.results, *step.operands))
    longest = system.chip.cycles(max(host_seconds(system, size) for size in moved.values()))
    assert quick.total - quick.overhead == pytest.approx(max(longest, quick.total - quick.overhead - quick.host))
    assert quick.host > 0
    assert compiled(plan=POPLIBS.plan)[0].io_tiles == 0
    assert compile_graph(program(), OPTIONS).schedule.io_tiles == 0
    busy = Cycles(compute=1e9, host=slow.host)
    assert io_tiles_for(CompileOptions(system), busy, 1 << 10) == 0
    assert io_tiles_for(CompileOptions(system), slow, 1 << 40) == 0  # what no tiles hold
    large = io_tiles_for(CompileOptions(system), replace(slow, host=1e9), 16 << 20)
    assert large > IO_TILES[0] and large * system.chip.tile_memory >= 2 * (16 << 20)


def test_the_planner_is_part_of_the_key() -> None:
    assert key_of(program(), OPTIONS) != key_of(program(), POPLIBS)


@pytest.mark.parametrize(("dtype", "tolerance"), [(DType.F32, 1e-5), (DType.F16, 5e-3)])
def test_both_give_the_same_numbers(dtype: DType, tolerance: float) -> None:
    rng = np.random.default_rng(1)
    graph = program(dtype)
    values = {p.name: rng.standard_normal(v.shape) for v, p in zip(graph.inputs, graph.input_ports, strict=True)}
    results = []
    for options in (OPTIONS, POPLIBS):
        engine = Engine(compile_graph(graph, options).schedule)
        for name in "wb":
            engine.write(name, values[name].astype(dtype.numpy))
        streams = {name: values[name].astype(dtype.numpy)[None, None] for name in "qkv"}
        results.append(np.asarray(engine.run(streams)["y"], np.float64))
    best, poplibs = results
    assert np.abs(best - poplibs).max() <= tolerance * np.abs(best).max()


def test_an_unknown_planner_is_refused() -> None:
    with pytest.raises(InvalidOption, match="poplib"):
        PlanOptions(planner="poplib")


def test_the_cheaper_plan_is_chosen() -> None:
    """A norm over channels that lie in parts is done where they lie whole, since that takes two sets fewer."""
    chip = find_system("bow-2000").chip
    x, c = TensorType((1, 256, 14, 14), DType.F16), TensorType((256,), DType.F16)
    b = Builder("norm")
    b.emit("batch_norm", (b.input(x, "data", "x"), *(b.input(c, "state", n) for n in "sb")), {"eps": 1e-5})
    (op,) = b.operations
    parts = own(split_dims((256, 196), chip.tiles), (256, 196))
    types = (tuple(v.type for v in values) for values in (op.operands, op.results))
    question = Question(op.name, tuple(op.attributes.items()), *types, (parts, None, None), chip)
    chooser = Chooser(chip)
    assert len(chooser.plan(question).sets) == 3
    assert len(chooser.best(question).sets) == 1
    poplibs = replace(question, options=PlanOptions(planner="poplibs"))
    assert chooser.best(poplibs) == make_plan(question)

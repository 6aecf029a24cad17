"""Collectives over real replicas: by hand, through the engine and the reference executor, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest

from abele.compile.lower import lower
from abele.compile.passes.autodiff import Autodiff
from abele.engine.engine import Engine
from abele.engine.reference import run_reference
from abele.errors import Bug, InvalidOperand
from abele.ir import Builder, Port
from abele.ir.interpret import Host
from abele.ir.types import f32
from abele.machine import one_ipu
from abele.ops.collectives.replicas import groups, over_replicas
from abele.schedule.rules import check
from tests.ops.harness import machine

REPLICAS = 8
GROUPS = [(8, 1), (2, 1), (4, 1), (4, 2), (2, 4)]


def test_groups_by_hand() -> None:
    assert groups(8, {"group": 4}) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert groups(8, {"group": 4, "stride": 2}) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert groups(8, {"group": 2, "stride": 2}) == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert groups(3, {}) == [[0, 1, 2]]
    with pytest.raises(InvalidOperand, match="divide"):
        groups(6, {"group": 4})


def test_meaning_by_hand() -> None:
    a, b = np.arange(5.0), 10 + np.arange(5.0)
    two = {"group": 2, "stride": 1}
    parts = over_replicas("reduce_scatter", [a, b], {"reduction": "sum", **two})
    np.testing.assert_array_equal(parts, [[10, 12, 14], [16, 18, 0]])
    whole = over_replicas("all_gather", parts, {"shape": (5,), **two})
    np.testing.assert_array_equal(whole, [a + b, a + b])
    np.testing.assert_array_equal(over_replicas("replica_shard", [a, a], two), [[0, 1, 2], [3, 4, 0]])
    np.testing.assert_array_equal(over_replicas("all_to_all", [a[:4], b[:4]], two), [[0, 1, 10, 11], [2, 3, 12, 13]])


def program(operation: str, size: int, stride: int, shape=(8, 3)):
    """A program that streams ``x`` in, does one collective and streams the result out."""
    b = Builder("collective")
    attributes = {"group": size, "stride": stride}
    made = b.host_load(stream="x", shape=shape, dtype="f32")
    if operation == "all_gather":
        made = b.emit("reduce_scatter", [made], attributes)[0]
        attributes["shape"] = shape
    made = b.emit(operation, [made], attributes)[0]
    b.emit("host_store", [made], {"stream": "y"})
    return b.finish([])


@pytest.mark.parametrize("operation", ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "replica_shard"])
@pytest.mark.parametrize(("size", "stride"), GROUPS)
def test_engine_and_reference_run_replicas(operation: str, size: int, stride: int) -> None:
    graph = program(operation, size, stride)
    schedule = check(lower(graph, one_ipu(machine(4)).with_ipus(REPLICAS), replicas=REPLICAS))
    x = np.random.default_rng(size).standard_normal((REPLICAS, 8, 3)).astype(np.float32)
    made = Engine(schedule, threads=1, providers=["llvm"]).run({"x": x[None]})["y"][0]
    hosts = [Host({"x": [value]}) for value in x]
    run_reference(schedule, [[]] * REPLICAS, hosts)
    np.testing.assert_allclose(made, [host.outputs["y"][0] for host in hosts], rtol=1e-6, atol=1e-6)
    attributes = {"reduction": "sum", "group": size, "stride": stride, "shape": (8, 3)}
    values = list(x.astype(np.float64))
    if operation == "all_gather":
        values = over_replicas("reduce_scatter", values, attributes)
    np.testing.assert_allclose(made, over_replicas(operation, values, attributes), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("operation", ["all_reduce", "reduce_scatter", "all_gather", "all_to_all"])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize(("size", "stride"), [(4, 1), (2, 2)])
def test_gradients_over_replicas(operation: str, reduction: str, size: int, stride: int) -> None:
    """The loss of all replicas together, by a step along a random direction of all their operands."""
    replicas, parts = 4, 4 // size * 1
    shape = (8, 3) if operation != "all_gather" else (24 // size,)
    attributes = {"group": size, "stride": stride}
    if operation == "all_gather":
        attributes["shape"] = (8, 3)
    elif operation in ("all_reduce", "reduce_scatter"):
        attributes["reduction"] = reduction
    b = Builder("gradient")
    x = b.input(f32(*shape), "state", "x")
    y = b.emit(operation, [x], attributes)[0]
    weights = b.input(y.type, "data", "w")
    loss = b.reduce_sum(b.mul(y, weights), axes=tuple(range(len(y.shape))))
    done = Autodiff(("x",)).run(b.finish([loss], [Port("loss", "loss")]))
    gradient = done.outputs_of("gradient")["x"]
    graph = done.replace(outputs=(gradient,), output_ports=(Port("anchor", "dx"),))
    schedule = check(lower(graph, one_ipu(machine(4)).with_ipus(replicas), replicas=replicas))
    rng = np.random.default_rng(parts)
    x0, w, along = (rng.standard_normal((replicas, *t)) for t in (shape, y.shape, shape))
    inputs = [[x0[r].astype(np.float32), w[r].astype(np.float32)] for r in range(replicas)]
    found = run_reference(schedule, inputs).outputs
    slope = sum(float((found[r][0] * along[r]).sum()) for r in range(replicas))
    made = over_replicas(operation, list(along), {"reduction": "sum", **attributes})  # they are linear
    assert slope == pytest.approx(sum(float((made[r] * w[r]).sum()) for r in range(replicas)), rel=1e-4)


def test_bad_operands() -> None:
    b = Builder("bad")
    x = b.input(f32(6, 3))
    for operation, attributes, words in (
        ("reduce_scatter", {"group": 0}, "at least 1"),
        ("all_to_all", {"group": 4}, "divide the first dimension"),
        ("all_gather", {"group": 2, "shape": (6, 3)}, "parts"),
        ("all_reduce", {"stride": 0}, "stride 0"),
    ):
        with pytest.raises(InvalidOperand, match=words):
            b.emit(operation, [x], attributes)


def test_groups_divide_the_replicas() -> None:
    schedule = lower(program("all_reduce", 4, 1), one_ipu(machine(4)).with_ipus(6), replicas=6)
    with pytest.raises(Bug, match="collectives: all_reduce in main has groups of 4"):
        check(schedule)

"""The engine around the operations: loops, state in place, streams, replicas, packing, threads, layouts, memory."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

from abele.engine.engine import Engine
from abele.engine.memory import ALIGNMENT, Life, plan_arena
from abele.engine.providers import Providers, has_torch
from abele.engine.threads import LIBRARY_WORTH, Pool, library_worth
from abele.errors import InvalidOperand, InvalidOption, Unsupported
from abele.ir import Builder, Port, evaluate
from abele.ir.interpret import Host
from abele.ir.types import DType, TensorType, boolean, f16, f32, i32
from tests.engine.support import feed, load, one_operation, schedule_of, store

LLVM = ["llvm", "numpy"]


def engine(b: Builder, outputs=(), ports=(), *, replicas: int = 1, **options) -> Engine:
    return Engine(schedule_of(b.finish(list(outputs), list(ports)), replicas), **({"threads": 1} | options))


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def turns(*arrays: np.ndarray) -> np.ndarray:
    """One replica's micro-batches as a stream."""
    return np.stack(arrays)[:, None]


# Loops and state


def summing_loop(count: int) -> Builder:
    """``total`` (state) grows by ``scale * x`` for ``count`` micro-batches of x; stores the running total."""
    inner = Builder("body")
    total, scale = inner.input(f32(3)), inner.input(f32())
    x = load(inner, "x", f32(3))
    new = inner.add(total, inner.mul(x, scale))
    store(inner, "running", new)
    body = inner.finish([new])
    b = Builder("main", {"body": body})
    state = b.input(f32(3), "state", "total")
    factor = b.input(f32(), "hyper", "scale")
    (b.total,) = b.repeat("body", count, [state, factor])  # type: ignore[attr-defined]
    return b


@pytest.mark.parametrize("providers", [["numpy"], LLVM])
def test_loop_carries_and_state_stays(providers) -> None:
    b = summing_loop(4)
    e = engine(b, [b.total], [Port("state", "total")], providers=providers)  # type: ignore[attr-defined]
    assert e.inputs["x"] == (f32(3), 4) and e.outputs["running"] == (f32(3), 4)
    e.write("scale", np.float32(2.0))
    xs = draw(4, 3)
    want = np.zeros(3, np.float32)
    for _ in range(3):
        running = e.run({"x": xs[:, None]})["running"]
        for i in range(4):
            want = want + 2 * xs[i]
            np.testing.assert_allclose(running[i, 0], want, rtol=1e-6)
        np.testing.assert_allclose(e.read("total"), want, rtol=1e-6)


def test_nested_loops_agree_with_the_interpreter() -> None:
    leaf = Builder("leaf")
    a, c = leaf.input(f32(2)), leaf.input(f32(2))
    store(leaf, "seen", leaf.add(a, c))
    inner = leaf.finish([leaf.mul(a, c), a])
    middle = Builder("middle", {"leaf": inner})
    p, q = middle.input(f32(2)), middle.input(f32(2))
    r, s = middle.repeat("leaf", 3, [p, q])
    x = load(middle, "x", f32(2))
    mid = middle.finish([middle.add(r, x), s])
    b = Builder("main", {"middle": mid, "leaf": inner})
    u, v = b.input(f32(2), "state", "u"), b.input(f32(2), "state", "v")
    r, s = b.repeat("middle", 2, [u, v])
    graph = b.finish([r, s], [Port("state", "u"), Port("state", "v")])
    e = Engine(schedule_of(graph), threads=1)
    start = [np.array([1.5, -0.5], np.float32), np.array([0.5, 2.0], np.float32)]
    xs = draw(2, 2)
    e.write("u", start[0])
    e.write("v", start[1])
    made = e.run({"x": xs[:, None]})
    host = Host({"x": list(xs)})
    want = evaluate(graph, start, host)
    np.testing.assert_allclose(e.read("u"), want[0], rtol=1e-6)
    np.testing.assert_allclose(e.read("v"), want[1], rtol=1e-6)
    np.testing.assert_allclose(made["seen"][:, 0], np.stack(host.outputs["seen"]), rtol=1e-6)


def test_states_that_change_places() -> None:
    b = Builder("swap")
    u, v = b.input(f32(4), "state", "u"), b.input(f32(4), "state", "v")
    e = engine(b, [v, u], [Port("state", "u"), Port("state", "v")])
    first, second = draw(4), draw(4, seed=1)
    e.write("u", first)
    e.write("v", second)
    e.run()
    np.testing.assert_array_equal(e.read("u"), second)
    np.testing.assert_array_equal(e.read("v"), first)


def test_old_value_is_read_after_the_new_one_is_made() -> None:
    b = Builder("old")
    u = b.input(f32(4), "state", "u")
    new = b.add(u, b.constant(1.0, u.dtype))
    store(b, "difference", b.sub(new, u))
    e = engine(b, [new], [Port("state", "u")])
    for turn in range(3):
        np.testing.assert_array_equal(e.run()["difference"][0, 0], np.ones(4))
        np.testing.assert_array_equal(e.read("u"), np.full(4, turn + 1.0))


def test_update_in_place_needs_no_copy() -> None:
    b = Builder("update")
    w, m = b.input(f32(5), "state", "w"), b.input(f32(5), "state", "m")
    g = load(b, "g", f32(5))
    numbers = [b.constant(x, w.dtype) for x in (0.1, 0.9, 0.0, 0.0)]
    after = b.sgd(w, g, m, *numbers)
    e = engine(b, after, [Port("state", "w"), Port("state", "m")], timed=True)
    start, gradient = draw(5), draw(5, seed=1)
    e.write("w", start)
    for _ in range(2):
        e.run({"g": turns(gradient)})
    np.testing.assert_allclose(e.read("w"), start - 0.1 * gradient - 0.1 * 1.9 * gradient, rtol=1e-5, atol=1e-6)
    assert "copy" not in [t.operation for t in e.timings]


def test_view_of_a_state() -> None:
    b = Builder("view")
    w = b.input(f32(2, 3), "state", "w")
    flat = b.reshape(w, shape=(6,))
    store(b, "double", b.add(flat, flat))
    e = engine(b)
    e.write("w", draw(2, 3))
    np.testing.assert_array_equal(e.run()["double"][0, 0], 2 * draw(2, 3).reshape(6))


# Replicas


def test_replicas_reduce_in_lockstep() -> None:
    b = Builder("mean")
    w = b.input(f32(6), "state", "w")
    x = load(b, "x", f32(6))
    mean = b.emit("all_reduce", [b.mul(x, x)], {"reduction": "mean"})[0]
    store(b, "mean", mean)
    e = engine(b, [b.add(w, mean)], [Port("state", "w")], replicas=3)
    x = draw(1, 3, 6)
    made = e.run({"x": x})["mean"]
    want = (x.astype(np.float64) ** 2).mean(axis=1)[0]
    for replica in range(3):
        np.testing.assert_allclose(made[0, replica], want, rtol=1e-6)
        np.testing.assert_array_equal(e.read("w", replica), made[0, replica])


def test_replicas_draw_different_numbers() -> None:
    b = Builder("random")
    seed = b.input(TensorType((2,), DType.U32), "state", "seed")
    store(b, "r", b.random_uniform(b.random_key(seed, index=0), shape=(64,)))
    e = engine(b, replicas=2, seed=7)
    made = e.run()["r"][0]
    assert not np.array_equal(made[0], made[1])
    np.testing.assert_array_equal(made[0], engine(b, seed=7).run()["r"][0, 0])


# Streams and errors


def test_streams_are_checked() -> None:
    e = Engine(one_operation("add", [f32(2, 3), f32(3)], {}), threads=1, providers=LLVM)
    good = feed([draw(2, 3), draw(3)])
    assert e.run(good)["r0"].shape == (1, 1, 2, 3)
    with pytest.raises(InvalidOperand, match="'a1'"):
        e.run({"a0": good["a0"]})
    with pytest.raises(InvalidOperand, match="'b'"):
        e.run(good | {"b": good["a0"]})
    with pytest.raises(InvalidOperand, match=r"\[1, 1, 3, 2\].*\[1, 1, 2, 3\]"):
        e.run(good | {"a0": draw(1, 1, 3, 2)})
    with pytest.raises(InvalidOperand, match="complex128"):
        e.run(good | {"a1": good["a1"].astype(np.complex128)})
    with pytest.raises(InvalidOperand, match="no state"):
        e.write("w", draw(3))


def test_dtypes_of_streams() -> None:
    e = Engine(one_operation("cast", [f16(5)], {"dtype": "f32"}), threads=1)
    fine = np.array([1.0002, 65519.0, 65520.0, 1e-8, -0.1])
    made = e.run({"a0": fine[None, None]})["r0"][0, 0]
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(made, fine.astype(np.float16).astype(np.float32))
    e = Engine(one_operation("select", [boolean(3), i32(3), i32(3)], {}), threads=1)
    streams = feed([np.array([True, False, True]), np.arange(3), -np.arange(3)])
    np.testing.assert_array_equal(e.run(streams)["r0"][0, 0], [0, -1, 2])
    assert e.run(streams)["r0"].dtype == np.int32


def test_half_state_keeps_to_its_grid() -> None:
    b = Builder("half")
    w = b.input(f16(3), "state", "w")
    e = engine(b, [b.mul(w, b.constant(1.1, w.dtype))], [Port("state", "w")])
    e.write("w", np.array([1.0, 3.0, 0.1]))
    want = np.array([1.0, 3.0, 0.1], np.float16)
    for _ in range(5):
        e.run()
        want = (want.astype(np.float32) * np.float32(np.float16(1.1))).astype(np.float16)
    assert e.read("w").dtype == np.float16
    np.testing.assert_array_equal(e.read("w"), want)


def test_an_interrupted_run_is_let_through_and_can_be_repeated(monkeypatch) -> None:
    e = Engine(one_operation("cumsum", [f32(4)], {"axis": 0}), threads=1, providers=["numpy"])

    def interrupt(*_args) -> None:
        raise KeyboardInterrupt

    streams = feed([draw(4)])
    with monkeypatch.context() as patch:
        patch.setattr("abele.engine.plain.evaluate_operation", interrupt)
        with pytest.raises(KeyboardInterrupt):
            e.run(streams)
    np.testing.assert_allclose(e.run(streams)["r0"], np.cumsum(streams["a0"], -1), rtol=1e-6)


# Threads


@pytest.mark.skipif(not has_torch(), reason="needs torch")
def test_only_large_library_operations_get_threads_and_torch_keeps_its_own(monkeypatch) -> None:
    import torch

    seen: list[tuple[int, int]] = []
    call = torch.ops.mkldnn._convolution_pointwise_.binary

    def spied(y, *rest):
        seen.append((y.shape[1], torch.get_num_threads()))
        return call(y, *rest)

    class Spied:
        binary = staticmethod(spied)

    monkeypatch.setattr("abele.engine.onednn._mkldnn", SimpleNamespace(
        _convolution_pointwise_=Spied, _reorder_convolution_weight=torch.ops.mkldnn._reorder_convolution_weight
    ))  # fmt: skip
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    assert library_worth() == LIBRARY_WORTH["sleep"]
    b = Builder("two")
    x = load(b, "x", f32(1, 64, 56, 56))
    given = {"strides": (1, 1), "padding": ((1, 1),) * 2, "dilation": (1, 1), "groups": 1}
    large = b.conv(x, b.input(f32(64, 64, 3, 3), "state", "w"), **given)  # 231 million operations
    store(b, "y", b.conv(large, b.input(f32(3, 64, 3, 3), "state", "v"), **given))
    graph = b.finish([])
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2):
        e = Engine(schedule_of(graph), threads=threads, providers=["onednn", "llvm"])
        e.write("w", draw(64, 64, 3, 3))
        e.write("v", draw(3, 64, 3, 3, seed=1))
        results.append(e.run({"x": turns(draw(1, 64, 56, 56, seed=2))})["y"])
        assert torch.get_num_threads() == before
    np.testing.assert_allclose(results[1], results[0], rtol=1e-4, atol=1e-2)
    assert seen == [(64, 1), (3, 1), (64, 2), (3, 1)]


def test_a_worker_that_comes_late_is_not_waited_for() -> None:
    pool, gate = Pool(2), threading.Event()
    first = threading.Thread(target=lambda: pool.run(lambda *_: gate.wait(10), 0, 8, 4), daemon=True)
    first.start()  # holds the worker and its own caller in a chunk each
    done: list[tuple[int, int]] = []
    pool.run(lambda _, begin, end: done.append((begin, end)), 0, 6, 1)
    assert sorted(done) == [(i, i + 1) for i in range(6)] and first.is_alive()
    gate.set()
    first.join(10)
    assert not first.is_alive()
    pool.close()


# Providers


def test_providers_are_chosen_by_name(monkeypatch) -> None:
    schedule = one_operation("add", [f32(3), f32(3)], {})
    assert Engine(schedule, threads=1).report() == {"llvm": {"add": 1}}
    assert Engine(schedule, threads=1, providers=["numpy"]).report() == {"numpy": {"add": 1}}
    monkeypatch.setenv("ABELE_PROVIDERS", "numpy")
    assert Engine(schedule, threads=1).report() == {"numpy": {"add": 1}}
    with pytest.raises(InvalidOption, match="nympy"):
        Providers(["nympy"])
    with pytest.raises(Unsupported, match="sort"):
        Engine(one_operation("sort", [f32(4)], {"axis": 0}), providers=["llvm"])


@pytest.mark.parametrize("operation", ["matmul", "batch_norm_inference", "conv"])
def test_constants_are_packed_again_when_written(operation: str) -> None:
    if operation == "matmul":
        types, attributes, constant = [f32(3, 8), f32(8, 5)], {}, (1,)
    elif operation == "conv":
        types, constant = [f32(1, 3, 6, 6), f32(4, 3, 3, 3)], (1,)
        attributes = {"strides": (1, 1), "padding": ((1, 1),) * 2, "dilation": (1, 1), "groups": 1}
    else:
        types, attributes, constant = [f32(2, 3, 4), *[f32(3)] * 4], {"eps": 1e-5}, (1, 2, 3, 4)
    e = Engine(one_operation(operation, types, attributes, constant), threads=1)
    oracle = Engine(one_operation(operation, types, attributes), threads=1, providers=["numpy"])
    for seed in range(3):
        values = [np.abs(draw(*t.shape, seed=10 * seed + i)) for i, t in enumerate(types)]
        for i in constant:
            e.write(f"a{i}", values[i])
        want = oracle.run(feed(values))["r0"]
        for _ in range(2):
            streams = {k: v for k, v in feed(values).items() if int(k[1:]) not in constant}
            np.testing.assert_allclose(e.run(streams)["r0"], want, rtol=2e-5, atol=1e-5)


def test_weights_that_the_program_writes_are_not_packed_for_good() -> None:
    b = Builder("train")
    w = b.input(f32(8, 40), "state", "w")
    x = load(b, "x", f32(64, 8))
    store(b, "y", b.matmul(x, w))
    e = engine(b, [b.mul(w, b.constant(2.0, w.dtype))], [Port("state", "w")])
    e.write("w", draw(8, 40))
    x = draw(64, 8, seed=1)
    for turn in range(3):
        np.testing.assert_allclose(e.run({"x": turns(x)})["y"][0, 0], x @ draw(8, 40) * 2**turn, rtol=1e-5, atol=1e-5)


# Threads and determinism


def big_program() -> Builder:
    b = Builder("big")
    x, w = load(b, "x", f32(300, 700)), b.input(f32(700, 500), "state", "w")
    h = b.gelu(b.matmul(x, w))
    store(b, "sum", b.reduce_sum(h, axes=(0, 1)))
    store(b, "p", b.softmax(h, axis=1))
    store(b, "h", h)
    return b


def test_same_bits_at_any_number_of_threads() -> None:
    x, w = draw(300, 700), draw(700, 500, seed=1)
    results = []
    for threads in (1, 2, 3):
        e = engine(big_program(), threads=threads, providers=LLVM)
        e.write("w", w)
        results += [e.run({"x": turns(x)}) for _ in range(2)]
        e.close()
    for other in results[1:]:
        for name, value in other.items():
            np.testing.assert_array_equal(value, results[0][name], err_msg=name)


def test_pool_covers_every_unit_once_and_passes_errors_on() -> None:
    pool, lock, seen = Pool(3), threading.Lock(), []

    def note(table: int, begin: int, end: int) -> None:
        with lock:
            seen.extend(range(begin, end))

    pool.run(note, 0, 1001, 8)
    assert sorted(seen) == list(range(1001))

    def fail(table: int, begin: int, end: int) -> None:
        raise ValueError(begin)

    with pytest.raises(ValueError):
        pool.run(fail, 0, 100, 1)
    pool.close()


# Layouts


@pytest.mark.skipif(not has_torch(), reason="needs torch")
def test_channels_last_gives_the_same_numbers() -> None:
    b = Builder("net")
    x, w = load(b, "x", f32(2, 3, 9, 8)), b.input(f32(5, 3, 3, 3), "state", "w")
    given = {"strides": (1, 1), "padding": ((1, 1),) * 2, "dilation": (1, 1), "groups": 1}
    y = b.conv(x, w, **given)
    scale, shift = (b.input(f32(5), "state", n) for n in ("scale", "shift"))
    n, mean, var = b.batch_norm(y, scale, shift, eps=1e-5)
    h = b.relu(b.add(n, y))
    p = b.max_pool(h, kernel=(2, 2), strides=(2, 2), padding=((0, 0),) * 2, dilation=(1, 1))
    flat = b.reshape(p, shape=(2, 80))
    d = b.conv_weight_grad(h, x, weight_shape=(5, 3, 3, 3), **given)
    for name, value in (("flat", flat), ("mean", mean), ("var", var), ("h", h), ("d", d)):
        store(b, name, value)
    store(b, "sum", b.reduce_sum(b.concat(h, h, axis=1), axes=(2,)))
    values = {"w": draw(5, 3, 3, 3), "scale": draw(5, seed=1), "shift": draw(5, seed=2)}
    made = []
    for providers in (None, ["numpy"]):
        e = engine(b, providers=providers)
        for name, value in values.items():
            e.write(name, value)
        made.append(e.run({"x": turns(draw(2, 3, 9, 8, seed=3))}))
        if providers is None:
            assert e._bound._orders and e.report()["onednn"] == {"conv": 1, "max_pool": 1, "conv_weight_grad": 1}
    for name, value in made[0].items():
        np.testing.assert_allclose(value, made[1][name], rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.skipif(not has_torch(), reason="needs torch")
@pytest.mark.parametrize(("size", "stride"), [((64, 64), (2, 2)), ((60, 35), (3, 2))])
def test_gradient_of_a_thinning_kernel_of_few_channels(size: tuple[int, int], stride: tuple[int, int]) -> None:
    """oneDNN's own way writes beyond its memory, which ends the process."""
    b = Builder("net")
    x, w = load(b, "x", f32(2, 3, *size)), b.input(f32(8, 3, 1, 1), "state", "w")
    given = {"strides": stride, "padding": ((0, 0),) * 2, "dilation": (1, 1), "groups": 1}
    y = b.relu(b.conv(x, w, **given))
    store(b, "d", b.conv_weight_grad(y, x, weight_shape=(8, 3, 1, 1), **given))
    made = []
    for providers in (None, ["numpy"]):
        e = engine(b, providers=providers)
        e.write("w", draw(8, 3, 1, 1))
        made.append(e.run({"x": turns(draw(2, 3, *size, seed=3))})["d"])
        if providers is None:
            assert e._bound._orders and e.report()["onednn"]["conv_weight_grad"] == 1
    np.testing.assert_allclose(made[0], made[1], rtol=1e-4, atol=1e-4)


# Memory


def test_arena_shares_and_never_overlaps() -> None:
    rng = np.random.default_rng(0)
    lives = {}
    for key in range(200):
        first = int(rng.integers(0, 100))
        lives[key] = Life(int(rng.integers(0, 5000)), first, first + int(rng.integers(0, 20)), key % 17 == 0)
    plan = plan_arena(lives)
    for a, la in lives.items():
        assert plan.offsets[a] % ALIGNMENT == 0 and plan.offsets[a] + la.bytes <= plan.size
        assert (plan.offsets[a] < plan.kept) == la.for_good
        for c, lc in lives.items():
            if a < c and not la.for_good and not lc.for_good and la.first <= lc.last and lc.first <= la.last:
                apart = plan.offsets[a] + la.bytes <= plan.offsets[c] or plan.offsets[c] + lc.bytes <= plan.offsets[a]
                assert apart or not la.bytes or not lc.bytes
    assert plan.size < sum(life.bytes for life in lives.values()) / 2
    assert plan_arena(lives) == plan


def test_a_step_allocates_nothing_that_stays() -> None:
    b = summing_loop(2)
    e = engine(b, [b.total], [Port("state", "total")])  # type: ignore[attr-defined]
    streams = {"x": draw(2, 1, 3)}
    for _ in range(20):
        e.run(streams)
    gc.collect()
    tracemalloc.start()
    e.run(streams)
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(200):
        e.run(streams)
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert after - before < 10_000

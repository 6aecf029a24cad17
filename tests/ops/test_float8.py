"""8-bit floats: their grid, casts and products in reference, engine and plans, the pass, and chips without them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.codegen import Expr, Library, Operand, Output, map_kernel
from abele.compile.executable import compile_graph
from abele.compile.lower import lower
from abele.compile.passes.float8 import Float8
from abele.compile.passes.update import Optimiser
from abele.compile.pipelines import CompileOptions
from abele.cost import cost
from abele.engine.engine import Engine
from abele.engine.reference import run_reference
from abele.errors import InvalidOperand, InvalidOption, Unsupported
from abele.ir import Builder, DType, Port, TensorType, f16, f32
from abele.ir.float8 import GRIDS, to_float8
from abele.ir.interpret import evaluate
from abele.ir.text import parse_graph, print_graph
from abele.ir.types import float8
from abele.machine import bow, c600, one_ipu
from abele.schedule import check

TWINS = {DType.F143: ml_dtypes.float8_e4m3fnuz, DType.F152: ml_dtypes.float8_e5m2fnuz}
FORMATS = pytest.mark.parametrize("dtype", list(GRIDS), ids=str)
SMALL = one_ipu(c600.derive("small-c600", tiles=12))


def every_half() -> np.ndarray:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    return halves[np.isfinite(halves)]


def twin(x: np.ndarray, dtype: DType) -> np.ndarray:
    """What ml_dtypes rounds to; beyond the largest it gives nan, where the machine's largest stands here."""
    most = GRIDS[dtype].most
    return np.clip(x, -most, most).astype(TWINS[dtype]).astype(np.float64)


@FORMATS
def test_every_half_rounds_as_elsewhere(dtype: DType) -> None:
    x = every_half().astype(np.float64)
    assert np.array_equal(to_float8(x, dtype), twin(x, dtype))
    assert np.isnan(to_float8(np.nan, dtype)) and to_float8(-np.inf, dtype) == -GRIDS[dtype].most


@FORMATS
def test_the_grid_is_that_of_the_format(dtype: DType) -> None:
    codes = np.arange(256, dtype=np.uint8).view(TWINS[dtype]).astype(np.float64)
    numbers = codes[np.isfinite(codes)]
    assert numbers.max() == GRIDS[dtype].most and len(np.unique(numbers)) == 255
    assert np.array_equal(to_float8(numbers, dtype), numbers)
    assert np.array_equal(numbers.astype(np.float16), numbers)  # a half holds them all


@FORMATS
@given(x=st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20))
def test_floats_round_once(dtype: DType, x: list[float]) -> None:
    array = np.array(x, np.float32)
    assert np.array_equal(to_float8(array, dtype), twin(array.astype(np.float64), dtype))


@FORMATS
def test_the_host_kernel_rounds_as_the_reference(dtype: DType) -> None:
    x = np.concatenate([every_half().astype(np.float32), np.float32([np.inf, -np.inf, np.nan, 1e30, 1e-30, 239.99])])
    y = np.empty_like(x)
    n = (len(x),)
    kernel = map_kernel(n, [Operand("f32", (1,))], [Expr(str(dtype), (0,), "f16")], [Output(1, "f16", (1,))])
    Library([kernel]).call(kernel, [x, y])
    assert np.array_equal(y, to_float8(x, dtype), equal_nan=True)


def net(dtype: DType = DType.F143):
    """Both products with operands of 8 bits, and a bias and relu behind one of them."""
    b = Builder("net")
    x, w, v = (
        b.input(f16(2, 32, 5, 4), "data", "x"),
        b.input(f16(16, 32, 3, 3), "state", "w"),
        b.input(f16(16, 24), "state", "v"),
    )
    bias = b.input(f16(16, 1, 1), "state", "b")
    small = [b.cast_to(value, dtype) for value in (x, w)]
    plain = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1), "groups": 1}
    y = b.relu(b.add(b.conv(*small, **plain, partials="f16"), bias))
    y = b.reshape(b.transpose(y, permutation=(0, 2, 3, 1)), shape=(40, 16))
    other = DType.F152 if dtype is DType.F143 else DType.F143
    y = b.matmul(b.cast_to(y, dtype), b.cast_to(v, other), partials="f16")
    return b.finish([y], [Port("anchor", "y")])


def values(graph, seed: int = 0) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [
        (draw.standard_normal(v.shape) * scale).astype(np.float16) for v, scale in zip(graph.inputs, (3, 0.2, 1, 1))
    ]


@FORMATS
def test_products_agree_in_graph_engine_and_tiles(dtype: DType) -> None:
    graph = net(dtype)
    assert print_graph(parse_graph(print_graph(graph))) == print_graph(graph)
    inputs = values(graph)
    (want,) = evaluate(graph, inputs)
    schedule = compile_graph(graph, CompileOptions(SMALL)).schedule
    engine = Engine(schedule)
    for name, value in zip(("w", "v", "b"), inputs[1:], strict=True):
        engine.write(name, value)
    found = engine.run({"x": inputs[0][None, None]})["y"][0, 0]
    assert found.dtype == want.dtype == np.float16
    np.testing.assert_allclose(found.astype(float), want.astype(float), rtol=4e-3, atol=0.1)
    assert "numpy" not in engine.report()  # natively, through float


def test_tiles_hold_and_exchange_a_byte_each() -> None:
    b = Builder("one")
    x, w = b.input(float8(24, 64), "data", "x"), b.input(float8(64, 32), "state", "w")
    graph = b.finish([b.matmul(x, w, partials="f16")], [Port("anchor", "y")])
    schedule = check(lower(graph, SMALL))
    draw = np.random.default_rng(1)
    inputs = [to_float8(draw.standard_normal(v.shape), DType.F143).astype(np.float16) for v in graph.inputs]
    run = run_reference(schedule, [inputs])
    np.testing.assert_allclose(
        run.outputs[0][0].astype(float), evaluate(graph, inputs)[0].astype(float), rtol=4e-3, atol=0.1
    )
    profile = cost(schedule, SMALL)
    assert sum(c.received.sum() for counts in run.counts for c in counts.sets) == sum(
        step.received for step in profile.steps if step.name == "matmul"
    )
    assert profile.peak_flops == SMALL.chip.peak_flops("f8") == 2 * SMALL.chip.peak_flops("f16")


def test_what_cannot_be_multiplied_or_added() -> None:
    b = Builder("bad")
    x, y = b.input(float8(4, 4), "data", "x"), b.input(f16(4, 4), "data", "y")
    with pytest.raises(InvalidOperand, match="f143"):
        b.matmul(x, y, partials="f16")
    with pytest.raises(InvalidOperand, match="'f16'"):
        b.matmul(x, x, partials="f32")
    for refused in (
        lambda: b.add(x, x),
        lambda: b.relu(x),
        lambda: b.bit_and(x, x),
        lambda: b.reduce_sum(x, axes=(0,)),
    ):
        with pytest.raises(InvalidOperand):
            refused()


# the pass and the option


def layers(dtype: DType = DType.F16, count: int = 4):
    b = Builder("layers")
    h = b.input(TensorType((8, 32), dtype), "data", "x")
    for i in range(count):
        h = b.relu(b.matmul(h, b.input(TensorType((32, 32), dtype), "state", f"w{i}")))
    return b.finish([h], [Port("anchor", "y")])


def test_the_pass_takes_all_products_but_the_ends() -> None:
    changed = Float8("f143").run(layers())
    kinds = [op.operands[0].dtype for op in changed.operations if op.name == "matmul"]
    assert kinds == [DType.F16, DType.F143, DType.F143, DType.F16]
    assert [op.attributes["partials"] for op in changed.operations if op.name == "matmul"][1] == "f16"
    for untouched in (layers(DType.F32), layers(count=2)):
        assert Float8("f143").run(untouched) is untouched


def test_products_of_two_activations_stay() -> None:
    b = Builder("scores")
    x, w = b.input(f16(8, 8), "data", "x"), b.input(f16(8, 8), "state", "w")
    h = b.matmul(b.matmul(b.matmul(x, w), x), w)
    graph = b.finish([b.matmul(h, w)], [Port("anchor", "y")])
    kinds = [op.operands[0].dtype for op in Float8("f152").run(graph).operations if op.name == "matmul"]
    assert kinds == [DType.F16, DType.F16, DType.F152, DType.F16]


def test_the_option_stores_weights_in_a_byte_and_is_faster() -> None:
    half, eight = (
        compile_graph(layers(), CompileOptions(SMALL, partials="f16", float8=float8)).schedule
        for float8 in ("", "f143")
    )
    weights = {t.source: t.type.dtype for t in eight.tensors.values() if t.source.startswith(("w", "hoisted"))}
    assert sorted(weights.values()) == [DType.F143, DType.F143, DType.F16, DType.F16]
    assert cost(eight, SMALL).cycles.compute < cost(half, SMALL).cycles.compute
    x = np.random.default_rng(0).standard_normal((8, 32))
    answers = []
    for schedule in (half, eight):
        engine = Engine(schedule)
        for i in range(4):
            engine.write(f"w{i}", np.random.default_rng(i).standard_normal((32, 32)) / 5)
        answers.append(engine.run({"x": x[None, None]})["y"][0, 0].astype(float))
    difference = np.linalg.norm(answers[0] - answers[1]) / np.linalg.norm(answers[0])
    assert 0 < difference < 0.1  # 3 bits of mantissa


def test_a_chip_without_them_says_so() -> None:
    with pytest.raises(InvalidOption, match=r"'bow' has no float8 matrix unit.*c600"):
        CompileOptions(one_ipu(bow), float8="f143")
    with pytest.raises(Unsupported, match=r"'bow' has no float8 matrix unit.*c600"):
        compile_graph(net(), CompileOptions(one_ipu(bow)))
    with pytest.raises(InvalidOption, match="'f143'"):
        CompileOptions(SMALL, float8="f134")
    with pytest.raises(InvalidOption, match="inference"):
        CompileOptions(SMALL, float8="f143", optimiser=Optimiser("sgd", (("w",),), ((),), ()))


def test_casts_are_charged_in_vectors() -> None:
    cycles = [
        c600.estimate("Cast", n=6 * 512, source=s, to=t) for s, t in (("f16", "f143"), ("f16", "i8"), ("f32", "f16"))
    ]
    assert cycles[0] < cycles[2] < cycles[1]
    assert f32(2).dtype.bytes == 4 * float8(2).dtype.bytes

"""Maps against NumPy: shapes, strides, broadcasts, dtypes, aliasing, splitting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abele.codegen import Expr, Host, Library, Operand, Output, host, map_kernel
from abele.codegen.space import contiguous

NUMPY = {
    "f32": np.float32, "f16": np.float32, "i32": np.int32, "i64": np.int64, "i8": np.int8, "i16": np.int16,
    "u8": np.uint8, "u32": np.uint32, "bool": np.bool_,
}  # fmt: skip


def element_strides(a: np.ndarray) -> tuple[int, ...]:
    return tuple(s // a.itemsize for s in a.strides)


def run(kernel, arrays, begin=0, end=None):
    Library([kernel]).call(kernel, arrays, begin, end)


@st.composite
def cases(draw):
    """A shape, and two operands of it: permuted, sliced or broadcast."""
    shape = tuple(draw(st.lists(st.sampled_from([0, 1, 2, 3, 5, 16, 17, 33]), min_size=1, max_size=4)))
    operands = []
    for _ in range(2):
        keep = tuple(n if draw(st.booleans()) else 1 for n in shape)
        order = draw(st.permutations(range(len(shape))))
        step = draw(st.sampled_from([1, 1, 2]))
        big = tuple(keep[d] for d in order)
        base = np.zeros((*big[:-1], big[-1] * step), np.float32)
        base[...] = np.random.default_rng(len(operands)).normal(size=base.shape)
        view = base[..., ::step].transpose(np.argsort(order))
        operands.append(np.broadcast_to(view, shape))
    return shape, operands


@given(cases())
@settings(max_examples=40)
def test_any_layout(case) -> None:
    shape, (x, y) = case
    kernel = map_kernel(
        shape,
        [Operand("f32", element_strides(x)), Operand("f32", element_strides(y))],
        [Expr("mul", (0, 1), "f32"), Expr("index", (), "i32"), Expr("cast", (3,), "f32"), Expr("add", (2, 4), "f32")],
        [Output(2, "f32", contiguous(shape)), Output(5, "f32", contiguous(shape))],
    )
    product, shifted = np.full(shape, np.nan, np.float32), np.full(shape, np.nan, np.float32)
    run(kernel, [x, y, product, shifted])
    assert np.array_equal(product, x * y)
    assert np.array_equal(shifted, x * y + np.arange(product.size, dtype=np.float32).reshape(shape))


def test_output_may_be_strided_and_splits_agree() -> None:
    shape = (70, 19)
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    out = np.zeros((19, 70), np.float32)
    strides = element_strides(out.T)
    exprs = [Expr("exp", (0,), "f32")]
    kernel = map_kernel(shape, [Operand("f32", (19, 1))], exprs, [Output(1, "f32", strides)])
    library = Library([kernel])
    library.call(kernel, [x, out])
    again = np.zeros_like(out)
    for begin in range(0, kernel.units, 3):
        library.call(kernel, [x, again], begin, min(begin + 3, kernel.units))
    assert np.array_equal(out, again)
    assert np.allclose(out.T, np.exp(x), rtol=1e-6)


def test_in_place_with_several_outputs_is_an_optimiser_step() -> None:
    n = 1003
    rng = np.random.default_rng(0)
    w, g, m = (rng.normal(size=n).astype(np.float32) for _ in range(3))
    rate = np.array([0.1], np.float32)
    one, scalar = Operand("f32", (1,)), Operand("f32", (0,))
    exprs = [
        Expr("const", (), "f32", value=0.9), Expr("mul", (2, 4), "f32"), Expr("add", (5, 1), "f32"),
        Expr("mul", (3, 6), "f32"), Expr("sub", (0, 7), "f32"),
    ]  # fmt: skip
    outputs = [Output(8, "f32", (1,)), Output(6, "f32", (1,))]
    kernel = map_kernel((n,), [one, one, one, scalar], exprs, outputs)
    momentum = m * np.float32(0.9) + g
    weight = w - np.float32(0.1) * momentum
    run(kernel, [w, g, m, rate, w, m])
    assert np.array_equal(m, momentum) and np.array_equal(w, weight)


@pytest.mark.parametrize("native", [True, False])
def test_half_results_lie_on_the_half_grid(native: bool) -> None:
    here = host()
    target = here if native else Host(here.cpu, here.features, here.lanes, False)
    rng = np.random.default_rng(0)
    bits = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    with np.errstate(over="ignore"):
        near = rng.integers(0, 2**32, 100_000, dtype=np.uint32).view(np.float32)
        scaled = (rng.normal(size=50_000) * np.exp2(rng.uniform(-30, 18, 50_000))).astype(np.float32)
        edge = np.array([65504, 65519.996, 65520, -65520, 2**-24, 2**-25, 2**-25 * 1.5, 0, -0.0], np.float32)
        x = np.concatenate([bits, near, scaled, edge])
        want = x.astype(np.float16).astype(np.float32)
    kernel = map_kernel((1,), [Operand("f32", (1,))], [], [Output(0, "f16", (1,))], target)
    got = np.empty_like(x)
    Library([kernel], target=target).call(kernel, [x, got], 0, x.size)
    assert np.array_equal(got, want, equal_nan=True)
    assert np.array_equal(np.signbit(got), np.signbit(want))


INTEGER = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "floor_div": np.floor_divide, "rem": np.remainder,
    "fmod": np.fmod, "max": np.maximum, "min": np.minimum, "bit_and": np.bitwise_and, "bit_or": np.bitwise_or,
    "bit_xor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift,
}  # fmt: skip
COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
           "ge": np.greater_equal}  # fmt: skip


@pytest.mark.parametrize("dtype", ["i32", "i64", "i8", "u8", "i16", "u32"])
def test_integers_are_numpy_s_and_never_trap(dtype: str) -> None:
    kind = NUMPY[dtype]
    info = np.iinfo(kind)
    special = np.array([info.min, info.max, 0, 1, 2, 3, info.max - 1, 5, 7], np.int64)
    special = np.unique(np.concatenate([special, [-1, -2, -7] if info.min else [info.max - 5]]))
    x, y = (v.ravel().astype(kind) for v in np.meshgrid(special, special))
    names = [*INTEGER, *COMPARE]
    exprs = [Expr(n, (0, 1), "bool" if n in COMPARE else dtype) for n in names]
    outputs = [Output(2 + j, e.dtype, (1,)) for j, e in enumerate(exprs)]
    kernel = map_kernel((1,), [Operand(dtype, (1,))] * 2, exprs, outputs)
    results = [np.empty(x.size, NUMPY[o.dtype]) for o in outputs]
    Library([kernel]).call(kernel, [x, y, *results], 0, x.size)
    for name, got in zip(names, results):
        with np.errstate(all="ignore"):
            want = (INTEGER | COMPARE)[name](x, y)
        if name in ("shl", "shr"):
            inside = (y >= 0) & (y < info.bits)
            assert np.array_equal(got[inside], want[inside]), name
        else:
            assert np.array_equal(got, want), name


def test_casts_and_choices() -> None:
    x = np.array([-2.7, -0.5, 0.0, 0.49, 1.5, 2.5, 100.9, np.nan, 3.0], np.float32)
    exprs = [
        Expr("cast", (0,), "i32"), Expr("cast", (0,), "bool"), Expr("is_nan", (0,), "bool"),
        Expr("const", (), "f32", value=-1), Expr("select", (3, 4, 0), "f32"), Expr("cast", (2,), "f32"),
        Expr("logical_not", (2,), "bool"), Expr("relu", (0,), "f32"), Expr("max", (0, 4), "f32"),
        Expr("cast", (0,), "u8"), Expr("cast", (10,), "f32"),
    ]  # fmt: skip
    dtypes = {1: "i32", 2: "bool", 3: "bool", 5: "f32", 6: "f32", 7: "bool", 8: "f32", 9: "f32", 11: "f32"}
    outputs = [Output(n, d, (1,)) for n, d in dtypes.items()]
    kernel = map_kernel(x.shape, [Operand("f32", (1,))], exprs, outputs)
    got = dict(zip(dtypes, [np.empty(x.size, NUMPY[d]) for d in dtypes.values()]))
    run(kernel, [x, *got.values()])
    numbers = ~np.isnan(x)
    assert np.array_equal(got[1][numbers], x[numbers].astype(np.int32))
    assert np.array_equal(got[2], x != 0) and np.array_equal(got[7], x == 0)
    assert np.array_equal(got[3], np.isnan(x))
    assert np.array_equal(got[5], np.where(np.isnan(x), -1, x).astype(np.float32))
    assert np.array_equal(got[6], (x != 0).astype(np.float32))
    assert np.array_equal(got[8], np.maximum(x, 0), equal_nan=True)
    assert np.array_equal(got[9], np.maximum(x, -1), equal_nan=True)
    assert got[11][6] == 100 and got[11][5] == 2

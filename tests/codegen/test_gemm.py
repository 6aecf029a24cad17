"""Matrix products against NumPy in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abele.codegen import Expr, Library, Operand, Output, gemm_kernel, pack_kernel, packed_floats
from abele.codegen.space import contiguous

SIZES = st.sampled_from([0, 1, 2, 3, 7, 12, 13, 16, 17, 25, 31, 32, 33, 64, 70])


def strides(a: np.ndarray) -> tuple[int, ...]:
    return tuple(s // a.itemsize for s in a.strides)


def close(got: np.ndarray, want: np.ndarray, k: int) -> bool:
    return bool(np.allclose(got, want, rtol=1e-5, atol=3e-7 * max(k, 1)))


@given(SIZES, SIZES, SIZES, st.booleans(), st.booleans(), st.sampled_from([(), (3,), (2, 2)]))
@settings(max_examples=40)
def test_any_shape_and_transposition(m, n, k, a_turned, b_turned, batch) -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(*batch, *((k, m) if a_turned else (m, k)))).astype(np.float32)
    b = rng.normal(size=(*batch, *((n, k) if b_turned else (k, n)))).astype(np.float32)
    a, b = (a.swapaxes(-1, -2) if a_turned else a), (b.swapaxes(-1, -2) if b_turned else b)
    out = Output(0, "f32", (*contiguous((*batch, m, n))[:-1], 1))
    pack = pack_kernel(k, n, strides(b), batch)
    kernels = [pack, gemm_kernel(m, n, k, strides(a), [out], batch=batch)]
    in_place = not b_turned
    if in_place:
        kernels.append(gemm_kernel(m, n, k, strides(a), [out], b=(*strides(b)[:-1], 1), batch=batch))
    library = Library(kernels)
    packed = np.full(math.prod(batch) * packed_floats(k, n), np.nan, np.float32)
    got = np.full((*batch, m, n), np.nan, np.float32)
    library.call(pack, [b, packed])
    library.call(kernels[1], [a, packed, got])
    want = a.astype(np.float64) @ b.astype(np.float64)
    assert close(got, want, k)
    if in_place:
        direct = np.full_like(got, np.nan)
        library.call(kernels[2], [a, b, direct])
        assert np.array_equal(direct, got)


@pytest.mark.parametrize("m, n, k", [(37, 45, 50), (1, 96, 33), (64, 10, 784)])
def test_epilogues(m: int, n: int, k: int) -> None:
    """A short one (bias, relu), and a long one (bias, tanh, scale, residual in place) with two outputs."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(m, k)).astype(np.float32), rng.normal(size=(k, n)).astype(np.float32)
    bias, residual = rng.normal(size=n).astype(np.float32), rng.normal(size=(m, n)).astype(np.float32)
    per_column, whole = Operand("f32", (0, 1)), Operand("f32", (n, 1))
    short = gemm_kernel(
        m, n, k, (k, 1), [Output(3, "f32", (n, 1))], operands=[per_column],
        exprs=[Expr("add", (0, 1), "f32"), Expr("relu", (2,), "f32")],
    )  # fmt: skip
    exprs = [
        Expr("add", (0, 1), "f32"), Expr("tanh", (3,), "f32"), Expr("const", (), "f32", value=0.5),
        Expr("mul", (4, 5), "f32"), Expr("add", (6, 2), "f32"),
    ]  # fmt: skip
    long = gemm_kernel(
        m, n, k, (k, 1), [Output(7, "f32", (n, 1)), Output(3, "f16", (n, 1))],
        operands=[per_column, whole], exprs=exprs,
    )  # fmt: skip
    pack = pack_kernel(k, n, (n, 1))
    library = Library([pack, short, long])
    packed = np.empty(packed_floats(k, n), np.float32)
    library.call(pack, [b, packed])
    z = a.astype(np.float64) @ b + bias
    got = np.empty((m, n), np.float32)
    library.call(short, [a, packed, bias, got])
    assert close(got, np.maximum(z, 0), k)
    total, before = residual.copy(), np.empty((m, n), np.float32)
    library.call(long, [a, packed, bias, total, total, before])
    assert close(total, 0.5 * np.tanh(z) + residual, k)
    assert np.array_equal(before, before.astype(np.float16)) and np.allclose(before, z, rtol=1e-3, atol=1e-3)


def test_any_split_gives_the_same_bits() -> None:
    m, n, k = 131, 77, 300
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(m, k)).astype(np.float32), rng.normal(size=(k, n)).astype(np.float32)
    kernel = gemm_kernel(m, n, k, (k, 1), [Output(0, "f32", (n, 1))], b=(n, 1))
    library = Library([kernel])
    got, again = np.zeros((m, n), np.float32), np.zeros((m, n), np.float32)
    library.call(kernel, [a, b, got])
    for u in reversed(range(kernel.units)):
        library.call(kernel, [a, b, again], u, u + 1)
    assert kernel.units > 2 and np.array_equal(got, again)

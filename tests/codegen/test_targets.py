"""The same kernels on narrower vectors than this computer's, and on processors without newer instructions."""

from __future__ import annotations

import platform

import numpy as np
import pytest

from abele.codegen import (
    Expr,
    Host,
    Library,
    Operand,
    Output,
    copy_kernel,
    gemm_kernel,
    map_kernel,
    pack_kernel,
    packed_floats,
    reduce_kernels,
)

X86 = platform.machine().lower() in ("x86_64", "amd64")
TARGETS = {
    "AVX2": Host("x86-64-v3", "", 8, True),
    "SSE2, no half and no fused multiply": Host("x86-64", "", 4, False),
}


@pytest.mark.skipif(not X86, reason="the targets are x86 processors")
@pytest.mark.parametrize("name", TARGETS)
def test_kernels_run_on_a_narrower_processor(name: str) -> None:
    target = TARGETS[name]
    rng = np.random.default_rng(0)
    m, n, k = 29, 45, 70
    a, b = rng.normal(size=(m, k)).astype(np.float32), rng.normal(size=(k, n)).astype(np.float32)
    names = ["exp", "tanh", "log1p", "sin", "erf", "round"]
    maps = map_kernel(
        (m, k), [Operand("f32", (k, 1)), Operand("f32", (0, 1))],
        [Expr("add", (0, 1), "f32"), *(Expr(f, (2,), "f32") for f in names)],
        [Output(3 + j, "f16" if f == "exp" else "f32", (k, 1)) for j, f in enumerate(names)], target,
    )  # fmt: skip
    turn = copy_kernel((k, m), "f32", (1, k), (m, 1), target)
    sums = reduce_kernels(
        (m, k), (1,), [Operand("f32", (k, 1))],
        [Expr("reduce_sum", (0,), "f32"), Expr("reduce_argmax", (0,), "i32")],
        [Output(1, "f32", (1, 0)), Output(2, "i32", (1, 0))], target=target,
    )  # fmt: skip
    pack = pack_kernel(k, n, (1, k), (), target)
    gemm = gemm_kernel(m, n, k, (k, 1), [Output(0, "f32", (n, 1))], target=target)
    library = Library([maps, turn, sums, pack, gemm], target=target)

    results = {f: np.empty((m, k), np.float32) for f in names}
    library.call(maps, [a, a[3], *results.values()])
    x = (a + a[3]).astype(np.float64)
    assert np.array_equal(results["exp"], results["exp"].astype(np.float16))
    assert np.allclose(results["exp"], np.exp(x), rtol=1e-3)
    for f in ("tanh", "log1p", "sin"):
        with np.errstate(invalid="ignore"):
            assert np.allclose(results[f], getattr(np, f)(x), rtol=1e-6, equal_nan=True), f
    assert np.array_equal(results["round"], np.rint(x))
    turned = np.empty((k, m), np.float32)
    library.call(turn, [a, turned])
    assert np.array_equal(turned, a.T)
    total, place = np.empty(m, np.float32), np.empty(m, np.int32)
    library.call(sums, [a, total, place])
    assert np.allclose(total, a.sum(1, dtype=np.float64), rtol=1e-4, atol=1e-5)
    assert np.array_equal(place, a.argmax(1))
    packed, c = np.empty(packed_floats(k, n, target), np.float32), np.empty((m, n), np.float32)
    library.call(pack, [b.T.copy(), packed])
    library.call(gemm, [a, packed, c])
    assert np.allclose(c, a.astype(np.float64) @ b, rtol=1e-5, atol=2e-5)

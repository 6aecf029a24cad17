"""Reductions and softmax against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abele.codegen import Expr, Library, Operand, Output, reduce_kernels, reduction
from abele.codegen.recipe import along, softmax, softmax_gradient
from abele.codegen.space import contiguous

FLOAT = {
    "sum": np.sum, "mean": np.mean, "prod": np.prod, "max": np.max, "min": np.min,
    "sum_squares": lambda x, axis: np.sum(x * x, axis),
}  # fmt: skip


def spaces(smallest: int = 1):
    sizes = st.sampled_from([s for s in (0, 1, 2, 3, 5, 7, 16, 19, 64, 130) if s >= smallest])
    shapes = st.lists(sizes, min_size=1, max_size=4).filter(lambda s: np.prod(s) < 60_000)
    return shapes.flatmap(
        lambda s: st.tuples(st.just(tuple(s)), st.sets(st.integers(0, len(s) - 1)), st.permutations(range(len(s))))
    )


@given(spaces())
@settings(max_examples=30)
def test_any_axes_and_layout(case) -> None:
    shape, chosen, order = case
    axes, kept = tuple(sorted(chosen)), [d for d in range(len(shape)) if d not in chosen]
    base = np.random.default_rng(0).uniform(0.9, 1.1, [shape[d] for d in order]).astype(np.float32)
    x = base.transpose(np.argsort(order))
    operand = Operand("f32", tuple(s // 4 for s in x.strides))
    results = {}
    kernels = {}
    for fn in FLOAT:
        kernels[fn] = reduction(fn, shape, axes, operand, Output(0, "f32", along(shape, kept)), "f32")
        results[fn] = np.full([shape[d] for d in kept], np.nan, np.float32)
    library = Library(kernels.values())
    for fn, numpy in FLOAT.items():
        library.call(kernels[fn], [x, results[fn]])
        want = numpy(x.astype(np.float64), axis=axes)
        assert np.allclose(results[fn], want, rtol=2e-6 if fn != "prod" else 1e-4), fn


def test_empty_reductions_give_identities() -> None:
    x = np.empty((3, 0), np.float32)
    output = Output(0, "f32", (1, 0))
    for fn, want in {"sum": 0, "prod": 1, "max": -np.inf, "min": np.inf}.items():
        kernels = reduction(fn, (3, 0), (1,), Operand("f32", (1, 1)), output, "f32")
        got = np.full(3, np.nan, np.float32)
        Library(kernels).call(kernels, [x, got])
        assert (got == want).all()


LONG = [
    ((10_000_000,), (0,)),
    ((400_000, 20), (0,)),
    ((8, 64, 3136), (0, 2)),
    ((99_991,), (0,)),
    ((7919, 30), (0,)),
]


@pytest.mark.parametrize("shape, axes", LONG)
def test_long_sums_are_accurate_and_independent_of_the_split(shape, axes) -> None:
    kept = [d for d in range(len(shape)) if d not in axes]
    x = np.random.default_rng(1).random(shape, np.float32)
    kernels = reduction(
        "sum", shape, axes, Operand("f32", contiguous(shape)), Output(0, "f32", along(shape, kept)), "f32"
    )
    library = Library(kernels)
    got = np.zeros([shape[d] for d in kept], np.float32)
    library.call(kernels, [x, got])
    assert np.abs(got / x.sum(axes, dtype=np.float64) - 1).max() < 1e-6
    again, work = np.zeros_like(got), np.empty(kernels[0].workspace, np.uint8)
    pointers = [x, again, work][: kernels[0].pointers]
    for kernel in kernels:
        for u in reversed(range(kernel.units)):
            library.call(kernel, pointers, u, u + 1)
    assert np.array_equal(got, again)


@pytest.mark.parametrize("shape, axis", [((40, 133), 1), ((133, 40), 0), ((3, 50, 7), 1), ((2000,), 0), ((5, 3), 1)])
def test_positions_are_numpy_s(shape, axis) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, shape).astype(np.float32)
    x.ravel()[:: max(1, x.size // 3)] = np.nan if axis == 0 else 3
    output = Output(0, "i32", along(shape, [d for d in range(len(shape)) if d != axis]))
    for fn in ("argmax", "argmin"):
        kernels = reduction(fn, shape, (axis,), Operand("f32", contiguous(shape)), output, "i32")
        want = getattr(np, fn)(x, axis)
        got = np.full(want.shape, -1, np.int32)
        Library(kernels).call(kernels, [x, got])
        assert np.array_equal(got, want)


@pytest.mark.parametrize("dtype", ["i32", "i64", "i8", "u8", "i16", "u32"])
def test_integer_and_truth_reductions(dtype) -> None:
    kind = np.dtype({"i": "int", "u": "uint"}[dtype[0]] + dtype[1:]).type
    info = np.iinfo(kind)
    x = np.random.default_rng(0).integers(max(info.min, -90), min(info.max, 120), (37, 21)).astype(kind)
    x[5] = info.max - x[5]
    exprs = [
        Expr("reduce_max", (0,), dtype), Expr("reduce_min", (0,), dtype), Expr("reduce_sum", (0,), "i64"),
        Expr("cast", (0,), "bool"), Expr("reduce_any", (4,), "bool"), Expr("reduce_all", (4,), "bool"),
    ]  # fmt: skip
    dtypes = {1: dtype, 2: dtype, 3: "i64", 5: "bool", 6: "bool"}
    kinds = {dtype: kind, "i64": np.int64, "bool": np.bool_}
    for axis in (0, 1):
        outputs = [Output(n, d, along((37, 21), [1 - axis])) for n, d in dtypes.items()]
        kernels = reduce_kernels((37, 21), (axis,), [Operand(dtype, (21, 1))], exprs, outputs)
        got = [np.empty(x.shape[1 - axis], kinds[d]) for d in dtypes.values()]
        Library(kernels).call(kernels, [x, *got])
        want = [x.max(axis), x.min(axis), x.sum(axis, dtype=np.int64), x.any(axis), x.all(axis)]
        assert all(np.array_equal(a, b) for a, b in zip(got, want))


def softmax_of(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@given(spaces(), st.data())
@settings(max_examples=15)
def test_softmax_and_its_gradient(case, data) -> None:
    shape = case[0]
    axis = data.draw(st.integers(0, len(shape) - 1))
    rng = np.random.default_rng(0)
    x, dy = (rng.normal(0, 3, shape).astype(np.float32) for _ in range(2))
    kernels = [softmax(shape, axis), softmax(shape, axis, log=True),
               softmax_gradient(shape, axis), softmax_gradient(shape, axis, log=True)]  # fmt: skip
    library = Library(kernels)
    y, log_y, dx, log_dx = (np.full(shape, np.nan, np.float32) for _ in range(4))
    library.call(kernels[0], [x, y])
    library.call(kernels[1], [x, log_y])
    library.call(kernels[2], [y, dy, dx])
    library.call(kernels[3], [log_y, dy, log_dx])
    p, d = softmax_of(x.astype(np.float64), axis), dy.astype(np.float64)
    assert np.allclose(y, p, rtol=3e-6, atol=1e-12)
    assert np.allclose(log_y, np.log(p), rtol=1e-6, atol=2e-6)
    # Both are differences of products: what is lost is relative to the terms, not to what is left of them.
    size = np.abs(d)
    wrong = np.abs(dx - p * (d - (p * d).sum(axis, keepdims=True)))
    assert (wrong <= 1e-5 * p * (size + (p * size).sum(axis, keepdims=True))).all()
    wrong = np.abs(log_dx - (d - p * d.sum(axis, keepdims=True)))
    assert (wrong <= 1e-5 * (size + p * size.sum(axis, keepdims=True))).all()

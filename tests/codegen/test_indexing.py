"""Copies, transposes, gathers and scatters against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abele.codegen import Expr, Library, Operand, Output, map_kernel
from abele.codegen.indexing import copy_kernel, gather_kernel, put_kernel, scatter_kernel, take_kernel


def strides(a: np.ndarray) -> tuple[int, ...]:
    return tuple(s // a.itemsize for s in a.strides)


SHAPES = st.lists(st.sampled_from([0, 1, 3, 16, 17, 40]), min_size=1, max_size=4).map(tuple)
PERMUTED = SHAPES.flatmap(lambda s: st.tuples(st.just(s), st.permutations(range(len(s)))))


@given(PERMUTED, st.sampled_from(["f32", "u8", "i64"]))
@settings(max_examples=30)
def test_copies_permute(case, dtype) -> None:
    shape, order = case
    kind = {"f32": np.float32, "u8": np.uint8, "i64": np.int64}[dtype]
    x = (np.arange(np.prod(shape)) % 251).astype(kind).reshape(shape).transpose(order)
    out = np.zeros(x.shape, kind)
    kernel = copy_kernel(x.shape, dtype, strides(x), strides(out))
    Library([kernel]).call(kernel, [x, out])
    assert np.array_equal(out, x)


def test_a_slice_is_copied_into_a_part() -> None:
    x = np.arange(20 * 50, dtype=np.float32).reshape(20, 50)
    out = np.zeros((50, 100), np.float32)
    part, into = x[3:19:2, 5:45].T, out[7:47, 60:68]
    kernel = copy_kernel(part.shape, "f32", strides(part), strides(into))
    Library([kernel]).call(kernel, [part, into])
    assert np.array_equal(into, part) and out.sum() == part.sum()


@pytest.mark.parametrize("inner", [0, 1, 5, 16, 300])
def test_gather_and_scatter_rows(inner: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 11, inner)).astype(np.float32)
    i = rng.integers(-11, 11, 29).astype(np.int32)
    gather, scatter = gather_kernel(3, 11, inner, 29), scatter_kernel(3, 11, inner, 29)
    assign = scatter_kernel(3, 11, inner, 29, add=False)
    library = Library([gather, scatter, assign])
    y = np.full((3, 29, inner), np.nan, np.float32)
    library.call(gather, [x, i, y])
    assert np.array_equal(y, x[:, i])
    total, want = np.ones_like(x), np.ones_like(x)
    library.call(scatter, [y, i, total])
    for j, row in enumerate(i):
        want[:, row] += y[:, j]
    assert np.array_equal(total, want)
    library.call(assign, [y, i, total])
    for j, row in enumerate(i):
        want[:, row] = y[:, j]
    assert np.array_equal(total, want)


def test_an_index_out_of_range_touches_nothing() -> None:
    x, y = np.ones((1, 4, 3), np.float32), np.full((1, 2, 3), np.nan, np.float32)
    i = np.array([9, -5], np.int32)
    gather, scatter = gather_kernel(1, 4, 3, 2), scatter_kernel(1, 4, 3, 2)
    library = Library([gather, scatter])
    library.call(gather, [x, i, y])
    assert not y.any()
    library.call(scatter, [np.ones_like(y), i, x])
    assert (x == 1).all()


def test_an_index_per_element() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 7, 5)).astype(np.float32)
    i = rng.integers(0, 7, (2, 9, 5))
    take, put = take_kernel(2, 7, 5, 9), put_kernel(2, 7, 5, 9)
    library = Library([take, put])
    y, total, want = np.empty((2, 9, 5), np.float32), np.zeros_like(x), np.zeros_like(x)
    library.call(take, [x, i, y])
    assert np.array_equal(y, np.take_along_axis(x, i, 1))
    library.call(put, [y, i, total])
    for o, j, c in np.ndindex(i.shape):
        want[o, i[o, j, c], c] += y[o, j, c]
    assert np.array_equal(total, want)


@pytest.mark.parametrize(("how", "ufunc"), [("mul", np.multiply), ("max", np.maximum), ("min", np.minimum)])
def test_an_index_per_element_with_other_reductions(how: str, ufunc: np.ufunc) -> None:
    rng = np.random.default_rng(1)
    total = rng.normal(size=(2, 4, 5)).astype(np.float32)
    updates = rng.normal(size=(2, 9, 5)).astype(np.float32)
    updates[0, 3, 2] = np.nan
    i = rng.integers(0, 4, (2, 9, 5)).astype(np.int32)
    want = total.copy()
    o, _, c = np.indices(i.shape)
    ufunc.at(want, (o, i, c), updates)
    put = put_kernel(2, 4, 5, 9, index="i32", how=how)
    Library([put]).call(put, [updates, i, total])
    assert np.array_equal(total, want, equal_nan=True)


def test_one_hot_is_a_map() -> None:
    i = np.array([2, 0, 4, -1], np.int32)
    exprs = [Expr("index", (), "i32", dim=1), Expr("eq", (0, 1), "bool"), Expr("cast", (2,), "f32")]
    kernel = map_kernel((4, 5), [Operand("i32", (1, 0))], exprs, [Output(3, "f32", (5, 1))])
    out = np.empty((4, 5), np.float32)
    Library([kernel]).call(kernel, [i, out])
    assert np.array_equal(out, (i[:, None] == np.arange(5)).astype(np.float32))

"""Every elementary function against NumPy in float64, over all of float32's range."""

from __future__ import annotations

import math

import numpy as np
import pytest

from abele.codegen import Expr, Library, Operand, Output, map_kernel

UNARY = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10,
    "log1p": np.log1p, "tanh": np.tanh, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x, "erf": np.vectorize(math.erf),
    "sigmoid": lambda x: np.where(x < 0, np.exp(np.minimum(x, 0)), 1) / (1 + np.exp(-np.abs(x))),
    "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc, "sign": np.sign, "abs": np.abs,
}  # fmt: skip
UNITS_IN_LAST_PLACE = {"exp": 2, "log": 2, "tanh": 2, "erf": 2, "rsqrt": 2, "sigmoid": 4}
TRIGONOMETRIC = {"sin", "cos", "tan"}
TWO = {"pow": np.power, "atan2": np.arctan2, "fmod": np.fmod, "rem": np.remainder, "floor_div": np.floor_divide}


def unary(fn: str):
    return map_kernel((1,), [Operand("f32", (1,))], [Expr(fn, (0,), "f32")], [Output(1, "f32", (1,))])


def binary(fn: str):
    operands = [Operand("f32", (1,))] * 2
    return map_kernel((1,), operands, [Expr(fn, (0, 1), "f32")], [Output(2, "f32", (1,))])


@pytest.fixture(scope="module")
def library() -> Library:
    return Library([*map(unary, UNARY), *map(binary, TWO)])


def samples() -> np.ndarray:
    """All magnitudes of float32, both signs, dense near 1 and 0, and the special values."""
    rng = np.random.default_rng(0)
    any_bits = rng.integers(0, 2**32, 40_000, dtype=np.uint32).view(np.float32)
    usual = rng.normal(0, 4, 40_000).astype(np.float32)
    near_one = (1 + rng.normal(0, 1e-3, 10_000)).astype(np.float32)
    range_of_exp = rng.uniform(-110, 95, 40_000).astype(np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-45, -1e-45, 3.4e38, 0.5, 88.72284], np.float32)
    return np.concatenate([any_bits, usual, near_one, range_of_exp, special])


def ulps(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distance in float32 places from the exact float64 value; infinities and nan must be the same."""
    with np.errstate(over="ignore"):
        want = exact.astype(np.float32)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    with np.errstate(invalid="ignore", over="ignore"):
        place = np.spacing(np.maximum(np.abs(want), np.float32(1e-45))).astype(np.float64)
        far = np.abs(got.astype(np.float64) - exact) / place
    # A finite result where the rounded one is infinite is off by its distance from the largest number.
    return np.where(same, np.minimum(np.nan_to_num(far, nan=0.0, posinf=0.0), 0.5), np.nan_to_num(far, nan=1e9))


@pytest.mark.parametrize("fn", UNARY)
def test_unary_functions_are_accurate_everywhere(fn: str, library: Library) -> None:
    x = samples()
    if fn in TRIGONOMETRIC:
        x = x[(np.abs(x) < 1e9) | ~np.isfinite(x)]
    got = np.empty_like(x)
    kernel = unary(fn)
    library.call(kernel, [x, got], 0, x.size)
    with np.errstate(all="ignore"):
        exact = UNARY[fn](x.astype(np.float64))
    error = ulps(got, exact)
    worst = int(np.argmax(error))
    assert error[worst] <= UNITS_IN_LAST_PLACE.get(fn, 1), (fn, x[worst], got[worst], exact[worst])


@pytest.mark.parametrize("fn", ["sin", "tanh", "erf", "atan", "expm1", "log1p", "sinh", "round", "ceil", "sqrt"])
def test_signed_zero_is_kept(fn: str, library: Library) -> None:
    x = np.array([0.0, -0.0], np.float32)
    got = np.empty_like(x)
    library.call(unary(fn), [x, got], 0, 2)
    assert np.signbit(got).tolist() == [False, True] and not got.any()


@pytest.mark.parametrize("fn", TWO)
def test_binary_functions_are_numpy_s(fn: str, library: Library) -> None:
    rng = np.random.default_rng(1)
    special = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 2, -3, 0.5, -2.5, 1e-42, 3e38, 7], np.float32)
    a, b = (v.ravel() for v in np.meshgrid(special, special))
    x = np.concatenate([a, rng.normal(0, 10, 20_000).astype(np.float32), np.arange(-20, 20).astype(np.float32)])
    y = np.concatenate([b, rng.normal(0, 4, 20_000).astype(np.float32), np.full(40, 3, np.float32)])
    if fn in ("fmod", "rem"):
        huge = np.exp(rng.uniform(-80, 80, 5000)).astype(np.float32)
        x, y = np.concatenate([x, huge]), np.concatenate([y, huge[::-1]])
    got = np.empty_like(x)
    library.call(binary(fn), [x, y, got], 0, x.size)
    with np.errstate(all="ignore"):
        if fn == "floor_div":
            want = np.floor_divide(x, y)
            assert np.array_equal(got, want, equal_nan=True)
            return
        exact = TWO[fn](x, y).astype(np.float64) if fn in ("fmod", "rem") else TWO[fn](x.astype("f8"), y.astype("f8"))
    error = ulps(got, exact)
    worst = int(np.argmax(error))
    assert error[worst] <= 1, (fn, x[worst], y[worst], got[worst], exact[worst])

"""Philox kernels against the published vectors and their definition in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from abele.codegen import Library
from abele.codegen.random import normal_kernel, uniform_kernel

MULTIPLIERS, STEPS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
LOW = 0xFFFFFFFF


def block(counter: list[int], key: list[int]) -> list[int]:
    c, k = list(counter), list(key)
    for _ in range(10):
        p, q = MULTIPLIERS[0] * c[0], MULTIPLIERS[1] * c[2]
        c = [q >> 32 ^ c[1] ^ k[0], q & LOW, p >> 32 ^ c[3] ^ k[1], p & LOW]
        k = [(k[0] + STEPS[0]) & LOW, (k[1] + STEPS[1]) & LOW]
    return c


def words(key: np.ndarray, count: int) -> np.ndarray:
    made = [block([b, 0, 0, 0], key.tolist()) for b in range(-(-count // 4))]
    return np.array(made, np.uint64).ravel()[:count]


def test_the_definition_gives_the_published_vectors() -> None:
    """Known answers of the authors' Random123 for philox4x32-10."""
    assert block([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert block([LOW] * 4, [LOW] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


@pytest.mark.parametrize("count", [1, 4, 63, 64, 1001])
def test_uniform_is_exact_for_any_split(count: int) -> None:
    key = np.array([0xDEADBEEF, 12345], np.uint32)
    top = np.nextafter(np.float16(5), np.float16(0))
    single, half = uniform_kernel(count, -3.0, 0.5, 0.49999997), uniform_kernel(count, 0.1, 5.0, float(top), "f16")
    library = Library([single, half])
    got = np.zeros(count, np.float32)
    for u in range(single.units):
        library.call(single, [key, got], u, u + 1)
    u24 = (words(key, count) >> np.uint64(8)).astype(np.float64) * 2.0**-24
    assert np.array_equal(got, np.minimum((-3.0 + 3.5 * u24).astype(np.float32), np.float32(0.49999997)))
    library.call(half, [key, got])
    u11 = (words(key, count) >> np.uint64(21)).astype(np.float64) * 2.0**-11
    assert np.array_equal(got, np.minimum((0.1 + 4.9 * u11).astype(np.float16), top))


def test_normal_is_box_muller() -> None:
    count = 2047
    key = np.array([7, 0xFFFFFFFF], np.uint32)
    kernel = normal_kernel(count, 1.0, 2.0)
    got = np.zeros(count, np.float32)
    Library([kernel]).call(kernel, [key, got])
    made = words(key, count + 1) >> np.uint64(8)
    radius = np.sqrt(-2 * np.log((made[0::2] + 1.0) * 2.0**-24))
    angle = made[1::2] * (2 * np.pi * 2.0**-24)
    want = 1 + 2 * np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).ravel()[:count]
    assert np.abs(got - want).max() <= 1e-6

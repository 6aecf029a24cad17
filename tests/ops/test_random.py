"""Random numbers: the published answers of Philox, statistics, and independence of the split over tiles."""

from __future__ import annotations

import numpy as np
import pytest

from abele.errors import InvalidOperand
from abele.ir import DType, TensorType, evaluate_operation, f16, f32, infer_types
from abele.ir.operation import complete_attributes
from abele.ops.random.op import below, fold, normal, philox, uniform, words

KEY = TensorType((2,), DType.U32)

ANSWERS = [
    # counter, key, words: the known-answer vectors of Random123 for philox4x32-10
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def run(name, key, **attributes):
    full = complete_attributes(name, attributes)
    types = infer_types(name, [KEY], full)
    return evaluate_operation(name, [np.array(key, np.uint32)], full, types)[0]


@pytest.mark.parametrize(("counter", "key", "answer"), ANSWERS)
def test_philox_gives_the_published_answers(counter, key, answer):
    assert tuple(int(w) for w in philox([np.array(c) for c in counter], key)) == answer


def test_an_element_depends_on_its_number_alone():
    key = np.array([5, 9], np.uint32)
    whole = words(key, 0, 41)
    for start, stop in ((0, 1), (1, 8), (3, 41), (17, 17), (40, 41), (0, 0)):
        np.testing.assert_array_equal(words(key, start, stop), whole[start:stop])
    attributes = {"mean": 0.0, "std": 1.0}
    for start, stop in ((0, 3), (3, 8), (5, 6), (7, 41)):
        np.testing.assert_array_equal(normal(key, start, stop, attributes), normal(key, 0, 41, attributes)[start:stop])
    np.testing.assert_array_equal(
        run("random_normal", key, shape=(5, 3)).ravel(), run("random_normal", key, shape=(15,))
    )


def test_numbers_beyond_four_billion_go_on():
    """The counter has more than one word."""
    key, far = np.array([1, 2], np.uint32), 2**34
    assert not np.array_equal(words(key, far, far + 4), words(key, 0, 4))


def test_keys_differ_and_are_apart_from_numbers():
    seed = np.array([3, 4], np.uint32)
    keys = {tuple(fold(seed, i).tolist()) for i in range(200)}
    assert len(keys) == 200
    assert tuple(int(w) for w in words(seed, 0, 2)) not in keys


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 0.5), (1.0, 1.001)])
def test_uniform_stays_below_its_bound(dtype, low, high):
    x = run("random_uniform", (1, 2), shape=(200_000,), dtype=dtype, low=low, high=high).astype(np.float64)
    assert x.min() >= DType(dtype).numpy.type(low) and x.max() < high
    if high - low > 0.1:
        assert x.mean() == pytest.approx((low + high) / 2, abs=4 * (high - low) / np.sqrt(12 * len(x)) + 1e-3)
        assert x.var() == pytest.approx((high - low) ** 2 / 12, rel=0.02)


def test_the_value_below_a_bound():
    assert below(1.0, DType.F16) == np.float16(1 - 2.0**-11)
    assert float(below(0.1, DType.F32)) < 0.1
    key, attributes = np.array([0, 0], np.uint32), {"dtype": "f32", "low": 0.0, "high": 1.0}
    assert uniform(key, 0, 1, attributes)[0] == np.float32((0x6627E8D5 >> 8) * 2.0**-24)


def test_normal_has_the_right_moments():
    x = run("random_normal", (7, 8), shape=(200_000,), mean=1.5, std=2.0).astype(np.float64)
    z = (x - 1.5) / 2
    assert np.isfinite(z).all()
    for power, moment in ((1, 0.0), (2, 1.0), (3, 0.0), (4, 3.0)):
        assert np.mean(z**power) == pytest.approx(moment, abs=0.08)
    assert abs(np.corrcoef(z[0::2], z[1::2])[0, 1]) < 0.01


def test_dropout_keeps_and_scales():
    full = complete_attributes("dropout", {"p": 0.25})
    x = np.full(20_000, 3.0, np.float16)
    y, mask = evaluate_operation("dropout", [x, np.array([1, 1], np.uint32)], full, [f16(20_000)])
    assert mask.mean() == pytest.approx(0.75, abs=0.02)
    np.testing.assert_array_equal(y, np.where(mask, np.float16(4.0), np.float16(0)))


def test_bernoulli_has_its_probability():
    p = np.repeat(np.array([0.0, 0.25, 1.0], np.float32), 5000)
    (x,) = evaluate_operation("bernoulli", [p, np.array([1, 1], np.uint32)], {}, [f32(15000)])
    assert x[:5000].max() == 0 and x[10000:].min() == 1
    assert x[5000:10000].mean() == pytest.approx(0.25, abs=0.03)


def test_what_does_not_fit_is_refused():
    with pytest.raises(InvalidOperand, match="key"):
        infer_types("random_uniform", [f32(2)], complete_attributes("random_uniform", {"shape": (3,)}))
    with pytest.raises(InvalidOperand, match="f32 or f16"):
        infer_types("random_normal", [KEY], complete_attributes("random_normal", {"shape": (3,), "dtype": "i32"}))
    with pytest.raises(InvalidOperand, match="outside"):
        infer_types("dropout", [f32(2), KEY], {"p": 1.5})

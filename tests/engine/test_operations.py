"""Every sample of every operation through a program of one operation, on each provider that takes it."""

from __future__ import annotations

import numpy as np
import pytest

from abele.engine.engine import Engine
from abele.errors import Unsupported
from abele.ir import OPERATIONS, evaluate_operation, infer_types
from abele.ir.operation import complete_attributes
from abele.ops.planning import PLANS
from tests.engine.support import feed, one_operation

HOST = frozenset({"host_load", "host_store", "all_reduce", "reshape", "checkpoint"})
"""Operations that the engine itself does, or that leave no work; see test_engine.py."""
PROVIDERS = ("llvm", "onednn", "numpy")


def names() -> list[str]:
    return [name for name in OPERATIONS if name not in HOST]


def tolerance(expected: np.ndarray, dtype: str) -> np.ndarray | float:
    """Float: 1e-5 of the value and 2e-6 of the tensor's largest. Half: 2 units in the last place, 1 of the largest."""
    size = np.abs(np.where(np.isfinite(expected), expected, 0)).astype(np.float64)
    if dtype == "f16":
        return 2.0 * np.spacing(size.astype(np.float16)).astype(np.float64) + 1e-3 * size.max(initial=0.0)
    return 1e-5 * size + 2e-6 * size.max(initial=0.0)


def close(actual: np.ndarray, expected: np.ndarray, dtype: str, what: str) -> None:
    assert actual.dtype == expected.dtype and actual.shape == expected.shape, what
    if dtype not in ("f32", "f16"):
        np.testing.assert_array_equal(actual, expected, err_msg=what)
        return
    with np.errstate(all="ignore"):
        off = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
        same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
        bad = ~same & ~(off <= tolerance(expected, dtype))
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise AssertionError(f"{what}: {bad.sum()} of {bad.size}, first {at}: {actual[at]!r} for {expected[at]!r}")


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("name", names())
def test_samples(name: str, provider: str) -> None:
    taken = 0
    for number, sample in enumerate(OPERATIONS[name].samples()):
        attributes = complete_attributes(name, sample.attributes)
        types = [a.type for a in sample.operands]
        values = [a.values(np.random.default_rng([5, number])) for a in sample.operands]
        results = infer_types(name, types, attributes)
        if name == "max_pool_grad":
            # The samples draw any y; torch looks for the maximum itself, which is the same for the real one.
            (values[1],) = evaluate_operation("max_pool", values[:1], attributes, types[1:2])
        expected = evaluate_operation(name, values, attributes, results)
        for constant in [(), (1,)] if len(types) > 1 and provider != "numpy" else [()]:
            try:
                engine = Engine(one_operation(name, types, attributes, constant), providers=[provider], threads=1)
            except Unsupported:
                continue
            taken += 1
            for i in constant:
                engine.write(f"a{i}", values[i])
            streams = {k: v for k, v in feed(values).items() if int(k[1:]) not in constant}
            for turn in range(2):
                made = engine.run(streams)
                for i, (want, type_) in enumerate(zip(expected, results, strict=True)):
                    what = f"{name} sample {number} on {provider}, result {i}, run {turn}"
                    close(made[f"r{i}"][0, 0], want, str(type_.dtype), what)
    if not taken:
        pytest.skip(f"{provider} does not run {name}")


def test_every_plan_runs() -> None:
    assert set(PLANS) - {"reshape", "checkpoint"} <= set(OPERATIONS)

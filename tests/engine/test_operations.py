"""Every sample of every operation through a program of one operation, on each provider that takes it."""

from __future__ import annotations

import numpy as np
import pytest

from abele.engine.engine import Engine
from abele.engine.native import load_kernels
from abele.engine.providers import Providers, has_torch
from abele.errors import Unsupported
from abele.ir import OPERATIONS, evaluate_operation, infer_types
from abele.ir.operation import complete_attributes, has
from abele.ops.hosts.kernels import KERNELS, Request, Spec, row_major
from abele.ops.plans.planning import PLANS
from tests.engine.support import feed, one_operation

HOST = frozenset({"host_load", "host_store", "reshape", "checkpoint"} | {n for n in OPERATIONS if has(n, "collective")})
"""Operations that the engine itself does, or that leave no work; see test_engine.py."""


ALWAYS_NATIVE = frozenset(
    {
        "map",
        "conv",
        "conv_input_grad",
        "conv_weight_grad",
        "softmax",
        "layer_norm",
        "batch_norm",
        "batch_norm_grad",
        "sgd",
    }
    | {"adam", "lstm", "lstm_grad", "attention", "max_pool", "avg_pool", "transpose", "concat", "add", "tanh", "expand"}
    | {"cumsum", "stencil"}
)
"""Operations whose float samples must not fall back on NumPy."""


def questions() -> list[tuple[str, str]]:
    """Every operation with every provider that knows it."""
    load_kernels()
    known = {"llvm": set(KERNELS), "numpy": set(OPERATIONS)}
    if has_torch():
        from abele.engine.onednn import _OFFERS

        known["onednn"] = {*_OFFERS, "fused"}
    return [
        (n, p)
        for n in OPERATIONS
        if n not in HOST and not n.startswith("hand_")
        for p, names in known.items()
        if n in names
    ]


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


@pytest.mark.parametrize(("name", "provider"), questions())
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
    assert taken, f"{provider} takes no sample of {name}"


@pytest.mark.parametrize("name", sorted(set(PLANS) - HOST))
def test_every_planned_operation_is_offered(name: str) -> None:
    """What lowering leaves as one operation, the engine runs; what has a kernel does not go to NumPy for want of it."""
    providers = Providers()
    for sample in OPERATIONS[name].samples():
        attributes = complete_attributes(name, sample.attributes)
        types = [a.type for a in sample.operands]
        results = infer_types(name, types, attributes)
        specs = [tuple(Spec(t, row_major(t.shape)) for t in ts) for ts in (types, results)]
        provider, _ = providers.offer(Request(name, attributes, *specs))
        easy = all(t.size for t in (*types, *results)) and all(str(t.dtype) == "f32" for t in types)
        if name in ALWAYS_NATIVE and easy:
            assert provider != "numpy", f"{name} on {types}"

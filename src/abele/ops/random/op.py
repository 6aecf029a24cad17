"""Random numbers: Philox4x32-10, a function of key and element number.

A key is ``u32[2]``. Element ``n`` of a result is made from word ``n % 4`` of the Philox block whose counter is
``n // 4``, so that it depends on nothing else: not on tiles, threads, or the shape around it.

Source: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from abele.errors import InvalidOperand
from abele.ir import (
    REQUIRED,
    Arg,
    Builder,
    Composite,
    DType,
    NotDifferentiable,
    Operation,
    Primitive,
    Sample,
    TensorType,
    Value,
    f16,
    f32,
    register,
)
from abele.ir.operation import Attributes
from abele.ops.rules import no_flops, to_float

ROUNDS = 10
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
KEY_DOMAIN = 1
"""Last counter word of the blocks that make keys; blocks that make numbers have 0 there."""


def philox(counter: Sequence[np.ndarray], key: Sequence[int]) -> list[np.ndarray]:
    """Four 32-bit words for every counter, as ``uint64`` arrays with values below 2**32.

    Args:
        counter: four arrays of one shape, the words of the counter, low word first.
        key: two words.
    """
    c0, c1, c2, c3 = (np.asarray(word, np.uint64) for word in counter)
    k0, k1 = int(key[0]), int(key[1])
    for _ in range(ROUNDS):
        p0, p1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (p1 >> _HALF) ^ c1 ^ np.uint64(k0), p1 & _LOW, (p0 >> _HALF) ^ c3 ^ np.uint64(k1), p0 & _LOW
        k0, k1 = (k0 + _KEY_STEPS[0]) & 0xFFFFFFFF, (k1 + _KEY_STEPS[1]) & 0xFFFFFFFF
    return [c0, c1, c2, c3]


def words(key: np.ndarray, start: int, stop: int) -> np.ndarray:
    """The words of elements ``start`` to ``stop``, ``uint64[stop - start]`` with values below 2**32."""
    blocks = np.arange(start // 4, -(-stop // 4) if stop > start else start // 4, dtype=np.uint64)
    zero = np.zeros_like(blocks)
    made = np.stack(philox((blocks & _LOW, blocks >> _HALF, zero, zero), key.tolist()), axis=1).reshape(-1)
    return made[start % 4 : start % 4 + stop - start]


def fold(seed: np.ndarray, index: int) -> np.ndarray:
    """The key number ``index`` of a seed: two words of a Philox block in a domain of its own."""
    low, high = index & 0xFFFFFFFF, index >> 32 & 0xFFFFFFFF
    made = philox([np.array(w) for w in (low, high, 0, KEY_DOMAIN)], seed.tolist())
    return np.array([int(made[0]), int(made[1])], np.uint32)


def uniform(key: np.ndarray, start: int, stop: int, attributes: Attributes) -> np.ndarray:
    """Elements ``start`` to ``stop`` of ``random_uniform``, flat.

    ``low + (high - low) * u``, rounded once; ``u`` has the top 24 bits of the word (11 in half, so that it is exact
    there), and what would round up to ``high`` becomes the largest value below it.
    """
    dtype = DType(str(attributes["dtype"]))
    bits = 11 if dtype is DType.F16 else 24
    u = (words(key, start, stop) >> np.uint64(32 - bits)).astype(np.float64) * 2.0**-bits
    low, high = float(attributes["low"]), float(attributes["high"])
    value = (low + (high - low) * u).astype(dtype.numpy)
    return np.minimum(value, below(high, dtype)) if high > low else value


def below(high: float, dtype: DType) -> np.floating:
    """The largest value of a float type that is less than ``high``."""
    nearest = dtype.numpy.type(high)
    return nearest if float(nearest) < high else np.nextafter(nearest, dtype.numpy.type(-np.inf))


def normal(key: np.ndarray, start: int, stop: int, attributes: Attributes) -> np.ndarray:
    """Elements ``start`` to ``stop`` of ``random_normal``, flat float64.

    Box-Muller: words ``2 i`` and ``2 i + 1`` give ``r = sqrt(-2 ln u)`` and an angle, both from 24 bits, with ``u`` in
    (0, 1]; the even element is ``r cos``, the odd one ``r sin``.
    """
    first = start - start % 2
    made = words(key, first, stop + stop % 2) >> np.uint64(8)
    u = (made[0::2].astype(np.float64) + 1.0) * 2.0**-24
    angle = made[1::2].astype(np.float64) * (2.0 * np.pi * 2.0**-24)
    radius = np.sqrt(-2.0 * np.log(u))
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)
    mean, std = float(attributes["mean"]), float(attributes["std"])
    return mean + std * pairs[start - first : stop - first]


def _is_key(name: str, operands: Sequence[TensorType]) -> None:
    if len(operands) != 1 or operands[0] != TensorType((2,), DType.U32):
        raise InvalidOperand(f"{name} takes one operand, a key u32[2], not ({', '.join(map(str, operands))})")


def _infer_key(operands: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
    _is_key("random_key", operands)
    if int(attributes["index"]) < 0:
        raise InvalidOperand(f"random_key: index {attributes['index']} is negative")
    return [operands[0]]


def _infer_numbers(name: str):
    def infer(operands: Sequence[TensorType], attributes: Attributes) -> list[TensorType]:
        _is_key(name, operands)
        dtype = DType(str(attributes["dtype"]))
        if not dtype.is_float:
            raise InvalidOperand(f"{name} makes f32 or f16, not {dtype}")
        return [TensorType(tuple(attributes["shape"]), dtype)]

    return infer


def _seed() -> Arg:
    return Arg(TensorType((2,), DType.U32), "integers", 0, 2**32)


def _shapes() -> Iterable[TensorType]:
    yield f32(3, 5)
    yield f32(64)
    yield f16(7, 9)
    yield f16(1)
    yield f32(0, 3)
    yield f32()


_STREAM = NotDifferentiable("it is a constant function of a key")

register(
    Primitive(
        "random_key",
        {"index": REQUIRED},
        _infer_key,
        lambda operands, attributes, results: [fold(operands[0], int(attributes["index"]))],
        _STREAM,
        no_flops,
        lambda: [Sample((_seed(),), {"index": index}) for index in (0, 1, 7, 2**31, 2**33 + 5)],
        traits=frozenset({"random"}),
    )
)

register(
    Primitive(
        "random_uniform",
        {"shape": REQUIRED, "dtype": "f32", "low": 0.0, "high": 1.0},
        _infer_numbers("random_uniform"),
        lambda operands, attributes, results: [
            uniform(operands[0], 0, results[0].size, attributes).reshape(results[0].shape)
        ],
        _STREAM,
        lambda operands, results, attributes: 2 * results[0].size,
        lambda: [
            Sample((_seed(),), {"shape": t.shape, "dtype": str(t.dtype), "low": low, "high": high})
            for t in _shapes()
            for low, high in ((0.0, 1.0), (-3.0, 0.5))
        ],
        traits=frozenset({"random"}),
    )
)

register(
    Primitive(
        "random_normal",
        {"shape": REQUIRED, "dtype": "f32", "mean": 0.0, "std": 1.0},
        _infer_numbers("random_normal"),
        lambda operands, attributes, results: [
            normal(operands[0], 0, results[0].size, attributes).reshape(results[0].shape)
        ],
        _STREAM,
        lambda operands, results, attributes: 6 * results[0].size,
        lambda: [
            Sample((_seed(),), {"shape": t.shape, "dtype": str(t.dtype), "mean": mean, "std": std})
            for t in _shapes()
            for mean, std in ((0.0, 1.0), (2.0, 0.25))
        ],
        traits=frozenset({"random"}),
    )
)


def _float_and_key(name: str, operands: Sequence[Value]) -> None:
    if len(operands) != 2 or not operands[0].dtype.is_float:
        have = ", ".join(str(v.type) for v in operands)
        raise InvalidOperand(f"{name} takes a float tensor and a key, not ({have})")


def _bernoulli(b: Builder, operands: Sequence[Value], attributes: Attributes) -> list[Value]:
    _float_and_key("bernoulli", operands)
    p, key = operands
    return [b.cast(b.lt(b.random_uniform(key, shape=p.shape), to_float(b, p)), dtype=str(p.dtype))]


register(
    Composite(
        "bernoulli",
        {},
        _bernoulli,
        lambda: [Sample((Arg(t, "uniform", 0, 1), _seed()), {}) for t in _shapes()],
        NotDifferentiable("its result is constant almost everywhere in the probability"),
    )
)


def _dropout(b: Builder, operands: Sequence[Value], attributes: Attributes) -> list[Value]:
    """``y = x / (1 - p)`` where the uniform number is at least ``p``, else 0; the mask says where."""
    _float_and_key("dropout", operands)
    x, key = operands
    p = float(attributes["p"])
    if not 0.0 <= p <= 1.0:
        raise InvalidOperand(f"dropout: p={p} lies outside [0, 1]")
    mask = b.ge(b.random_uniform(key, shape=x.shape), b.constant(p, DType.F32))
    return [_scaled(b, x, mask, p), mask]


def _scaled(b: Builder, x: Value, mask: Value, p: float) -> Value:
    """``x`` scaled in float and rounded once, where the mask is set; 0 elsewhere."""
    scaled = b.mul(to_float(b, x), b.constant(1.0 / (1.0 - p) if p < 1.0 else 0.0, DType.F32))
    kept = b.select(mask, scaled, b.constant(0.0, DType.F32))
    return b.cast_to(kept, x.dtype)


def _dropout_gradient(b: Builder, op: Operation, d: Sequence[Value | None]) -> list[Value | None]:
    dy = d[0]
    if dy is None:
        return [None, None]
    return [_scaled(b, dy, op.results[1], float(op.attributes["p"])), None]


register(
    Composite(
        "dropout",
        {"p": 0.5},
        _dropout,
        lambda: (
            [Sample((Arg(t), _seed()), {"p": p}) for t in _shapes() for p in (0.1, 0.5)]
            + [Sample((Arg(f32(8)), _seed()), {"p": p}) for p in (0.0, 1.0)]
        ),
        _dropout_gradient,
    )
)

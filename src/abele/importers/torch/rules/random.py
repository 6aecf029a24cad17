"""Random numbers: each operation draws with a key of its own. The numbers are not torch's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional as F

from abele.importers.torch.emitter import Emitter, Operand
from abele.importers.torch.table import function, rule
from abele.importers.torch.tracer import Tracer
from abele.ir import DType, Value


def uniform(e: Emitter, shape: Sequence[int], dtype: DType = DType.F32, low: float = 0.0, high: float = 1.0) -> Value:
    """Uniform numbers in [low, high)."""
    return e.emit("random_uniform", e.key(), shape=tuple(shape), dtype=str(dtype), low=float(low), high=float(high))


@rule("rand", "rand_like")
def rand(e: Emitter, *_: Any, **__: Any) -> Value:
    return uniform(e, e.out.shape, e.out.dtype)


@rule("uniform_")
def uniform_(e: Emitter, x: Value, from_: float = 0, to: float = 1, **given: Any) -> Value:
    return uniform(e, x.shape, x.dtype, given.get("from", from_), to)


@rule("randn", "randn_like")
def randn(e: Emitter, *_: Any, **__: Any) -> Value:
    return _normal(e, e.out.shape, e.out.dtype)


def _normal(e: Emitter, shape: Sequence[int], dtype: DType, mean: float = 0.0, std: float = 1.0) -> Value:
    return e.emit("random_normal", e.key(), shape=tuple(shape), dtype=str(dtype), mean=float(mean), std=float(std))


@rule("normal_")
def normal_(e: Emitter, x: Value, mean: float = 0, std: float = 1) -> Value:
    return _normal(e, x.shape, x.dtype, mean, std)


@rule("normal")
def normal(e: Emitter, mean: Operand, std: Operand = 1.0, *_: Any, **__: Any) -> Value:
    drawn = _normal(e, e.out.shape, e.out.dtype)
    return e.binary("add", e.binary("mul", drawn, std), mean)


@rule("exponential_")
def exponential_(e: Emitter, x: Value, lambd: float = 1) -> Value:
    # One minus a number in [0, 1) is never zero.
    drawn = e.emit("sub", e.number(1, DType.F32), uniform(e, x.shape))
    return e.cast(e.emit("mul", e.emit("log", drawn), e.number(-1 / lambd, DType.F32)), x.dtype)


@rule("geometric_")
def geometric_(e: Emitter, x: Value, p: float) -> Value:
    """How many trials until the first success."""
    drawn = e.emit("log", e.emit("sub", e.number(1, DType.F32), uniform(e, x.shape)))
    trials = e.emit("ceil", e.emit("mul", drawn, e.number(1 / math.log1p(-p), DType.F32)))
    return e.cast(e.emit("max", trials, e.number(1, DType.F32)), x.dtype)


@rule("cauchy_")
def cauchy_(e: Emitter, x: Value, median: float = 0, sigma: float = 1) -> Value:
    turned = e.emit("tan", uniform(e, x.shape, DType.F32, -math.pi / 2, math.pi / 2))
    scaled = e.emit("mul", turned, e.number(sigma, DType.F32))
    return e.cast(e.emit("add", scaled, e.number(median, DType.F32)), x.dtype)


@rule("log_normal_")
def log_normal_(e: Emitter, x: Value, mean: float = 1, std: float = 2) -> Value:
    return e.cast(e.emit("exp", _normal(e, x.shape, DType.F32, mean, std)), x.dtype)


def _integers(e: Emitter, shape: Sequence[int], low: int, high: int, dtype: DType) -> Value:
    drawn = e.emit("floor", uniform(e, shape, DType.F32, low, high))
    return e.cast(e.emit("clamp", drawn, low=float(low), high=float(high - 1)), dtype)


@rule("randint")
def randint(e: Emitter, high: int, size: Any = None, **_: Any) -> Value:
    return _integers(e, e.out.shape, 0, high, e.out.dtype)


@rule("randint.low")
def randint_low(e: Emitter, low: int, high: int, size: Any = None, **_: Any) -> Value:
    return _integers(e, e.out.shape, low, high, e.out.dtype)


@rule("randint_like.low_dtype")
def randint_like_low(e: Emitter, like: Value, low: int, high: int, **_: Any) -> Value:
    return _integers(e, e.out.shape, low, high, e.out.dtype)


@rule("randint_like")
def _randint_like(e: Emitter, like: Value, high: int, **_: Any) -> Value:
    return _integers(e, e.out.shape, 0, high, e.out.dtype)


@rule("random_")
def random_(e: Emitter, x: Value, *bounds: int, **_: Any) -> Value:
    limit = 2 if x.dtype is DType.BOOL else 2**24 if x.dtype is DType.F32 else 2**11 if x.dtype.is_float else 127
    low, high = (0, *bounds, limit)[-2:] if not bounds else (0, *bounds)[-2:]
    return _integers(e, x.shape, low, high, x.dtype)


@rule("randperm")
def randperm(e: Emitter, n: int, **_: Any) -> Value:
    return e.emit("sort", uniform(e, (n,)), axis=0)[1]


def _draw(e: Emitter, p: Operand, shape: Sequence[int]) -> Value:
    """Bools that are true with probability ``p``."""
    return e.emit("lt", uniform(e, shape), e.operand(p, DType.F32))


@rule("bernoulli", "bernoulli_")
def bernoulli(e: Emitter, x: Value, p: Operand | None = None) -> Value:
    chance = p if p is not None else x if e.name == "bernoulli" else 0.5
    return e.cast(_draw(e, chance, x.shape), e.out.dtype)


@rule("multinomial")
def multinomial(e: Emitter, p: Value, num_samples: int, replacement: bool = False) -> Value:
    """The highest of log p plus Gumbel noise: the first of an order in which each comes with its probability."""
    shape = p.shape if not replacement else (*p.shape[:-1], num_samples, p.shape[-1])
    noise = e.emit("neg", e.emit("log", e.emit("neg", e.emit("log", _open(e, shape)))))
    scores = e.emit("log", e.cast(p, DType.F32))
    if not replacement:
        return e.emit("top_k", e.emit("add", scores, noise), k=num_samples, axis=len(shape) - 1)[1]
    scores = e.reshape(scores, (*p.shape[:-1], 1, p.shape[-1]))
    return e.emit("arg_max", e.emit("add", scores, noise), axis=len(shape) - 1)


def _open(e: Emitter, shape: Sequence[int]) -> Value:
    return uniform(e, shape, DType.F32, math.ldexp(1, -24), 1.0)


# Dropout


def _dropped(tracer: Tracer, x: torch.Tensor, p: float, inplace: bool) -> torch.Tensor:
    e = tracer.e
    with tracer.located():
        value = tracer.read(x)
        if p >= 1:
            value = e.number(0, value.dtype, value.shape)
        else:
            value, _ = e.emit("dropout", value, e.key(), p=float(p))
        if inplace:
            tracer.write(x, value)
            return x
        return tracer.new(value, x.dtype)


@function(F.dropout, torch.dropout, torch.dropout_)
def dropout(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    named = ("input", "p", "training" if func is F.dropout else "train", "inplace")
    given = dict(zip(named, args)) | kwargs
    active = given.get("training", given.get("train", True))
    p = given.get("p", 0.5)
    if not active or p == 0:
        return given["input"]
    return _dropped(tracer, given["input"], p, bool(given.get("inplace")) or func is torch.dropout_)


@rule("native_dropout")
def native_dropout(e: Emitter, x: Value, p: float, train: bool | None = True) -> tuple[Value, Value]:
    if not train or p == 0:
        return x, e.number(True, DType.BOOL, x.shape)
    return e.emit("dropout", x, e.key(), p=float(p))

"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from abele.importers.torch.emitter import Emitter
from abele.importers.torch.table import function
from abele.importers.torch.tracer import Tracer
from abele.ir import DType, Value

_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


@function(F.scaled_dot_product_attention)
def attention(tracer: Tracer, func: Any, args: tuple, kwargs: dict) -> Any:
    given = dict(zip(_NAMES, args)) | kwargs
    query, key, value = (given[n] for n in _NAMES[:3])
    mask, p, causal = given.get("attn_mask"), float(given.get("dropout_p") or 0), bool(given.get("is_causal"))
    scale = given.get("scale")
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    e = tracer.e
    with tracer.located():
        q, k, v = (tracer.read(t) for t in (query, key, value))
        if given.get("enable_gqa"):
            k, v = (_shared_heads(e, t, q.shape[-3]) for t in (k, v))
        lead = torch.broadcast_shapes(*(t.shape[:-2] for t in (q, k, v)))
        q, k, v = (e.expand(t, (*lead, *t.shape[-2:])) for t in (q, k, v))
        extra = [] if mask is None else [_additive(tracer, mask, q.dtype)]
        if p:
            result = _with_dropout(e, q, k, v, extra, scale, causal, p)
        else:
            result = e.emit("attention", q, k, v, *extra, scale=scale, causal=causal)
        return tracer.new(result, value.dtype)


def _additive(tracer: Tracer, mask: torch.Tensor, dtype: DType) -> Value:
    """A mask as a term of the scores: bools become zero and minus infinity."""
    e = tracer.e
    value = e.unexpanded(tracer.read(mask))
    if value.dtype is DType.BOOL:
        return e.emit("select", value, e.number(0, dtype), e.number(-math.inf, dtype))
    return e.cast(value, dtype)


def _shared_heads(e: Emitter, x: Value, heads: int) -> Value:
    """Each head of ``x`` for as many heads of the query as share it."""
    *lead, count, length, width = x.shape
    if count == heads:
        return x
    apart = e.reshape(x, (*lead, count, 1, length, width))
    wide = e.expand(apart, (*lead, count, heads // count, length, width))
    return e.reshape(wide, (*lead, heads, length, width))


def _with_dropout(
    e: Emitter, q: Value, k: Value, v: Value, mask: list[Value], scale: float, causal: bool, p: float
) -> Value:
    """Attention whose weights are dropped at random, spelt out."""
    rank = len(k.shape)
    scores = e.matmul(q, e.transpose(k, (*range(rank - 2), rank - 1, rank - 2)))
    scores = e.emit("mul", scores, e.number(scale, scores.dtype))
    if causal:
        rows, columns = scores.shape[-2:]
        below = e.constant(np.tril(np.ones((rows, columns), np.bool_)))
        scores = e.emit("select", below, scores, e.number(-math.inf, scores.dtype))
    if mask:
        scores = e.emit("add", scores, mask[0])
    weights, _ = e.emit("dropout", e.emit("softmax", scores, axis=len(scores.shape) - 1, safe=True), e.key(), p=p)
    return e.matmul(weights, v)

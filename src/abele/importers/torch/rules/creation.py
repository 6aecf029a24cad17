"""Large tensors that are filled or counted; small ones are made for real and become constants."""

from __future__ import annotations

from typing import Any

from abele.importers.torch.emitter import Emitter
from abele.importers.torch.table import rule
from abele.ir import Value


@rule("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty", "new_empty_strided", "empty_strided")
def zeros(e: Emitter, *_: Any, **__: Any) -> Value:
    return e.number(0, e.out.dtype, e.out.shape)


@rule("ones", "ones_like", "new_ones")
def ones(e: Emitter, *_: Any, **__: Any) -> Value:
    return e.number(1, e.out.dtype, e.out.shape)


@rule("full", "full_like", "new_full")
def full(e: Emitter, shape_of: Any, fill_value: float, **_: Any) -> Value:
    return e.number(fill_value, e.out.dtype, e.out.shape)


@rule("arange")
def arange(e: Emitter, start: float, end: float | None = None, step: float = 1, **_: Any) -> Value:
    first = 0 if end is None else start
    return e.emit("iota", shape=e.out.shape, axis=0, dtype=str(e.out.dtype), start=first, step=step)

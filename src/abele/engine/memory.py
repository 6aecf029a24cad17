"""The arena: where every buffer of a program lies in one piece of host memory.

Buffers whose lifetimes do not overlap share memory. Offsets are found largest buffer first, each in the lowest
gap that is free all its life, so that the same program always gets the same arena.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from abele.ir.types import DType
from abele.ops.hosts.kernels import host_bytes

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector register."""

_HOST: dict[DType, np.dtype] = {d: np.dtype(np.float32) for d in (DType.F16, DType.F143, DType.F152)}


def host_dtype(dtype: DType) -> np.dtype:
    """The NumPy type in which the arena holds an element type; half and 8-bit floats are float32 on their grid."""
    return _HOST.get(dtype, dtype.numpy)


def rounded(size: int) -> int:
    """``size`` bytes up to the alignment, at least one unit."""
    return max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT)


@dataclass(frozen=True, slots=True)
class Life:
    """``bytes`` needed from instruction ``first`` to ``last``, both included; ``for_good`` for state."""

    bytes: int
    first: int = 0
    last: int = 0
    for_good: bool = False


@dataclass(frozen=True)
class ArenaPlan:
    """Offset in bytes of every buffer, and the size of the whole. State lies in front, in the first ``kept`` bytes."""

    offsets: Mapping[int, int]
    size: int
    kept: int


def plan_arena(lives: Mapping[int, Life]) -> ArenaPlan:
    """Offsets for buffers with these lifetimes, each a multiple of ``ALIGNMENT``."""
    offsets: dict[int, int] = {}
    kept = 0
    for key, life in lives.items():
        if life.for_good:
            offsets[key] = kept
            kept += rounded(life.bytes)
    passing = sorted((k for k, life in lives.items() if not life.for_good), key=lambda k: (-lives[k].bytes, k))
    count = len(passing)
    first, last = np.zeros(count, np.int64), np.zeros(count, np.int64)
    low, high = np.zeros(count, np.int64), np.zeros(count, np.int64)
    top = kept
    for i, key in enumerate(passing):
        life, size = lives[key], rounded(lives[key].bytes)
        meets = np.flatnonzero((first[:i] <= life.last) & (last[:i] >= life.first))
        order = meets[np.argsort(low[meets], kind="stable")]
        at = kept
        for begin, end in zip(low[order].tolist(), high[order].tolist(), strict=True):
            if begin - at >= size:
                break
            at = max(at, end)
        first[i], last[i], low[i], high[i] = life.first, life.last, at, at + size
        offsets[key] = at
        top = max(top, at + size)
    return ArenaPlan(offsets, top, kept)


class Arena:
    """The memory of one replica, zeroed, with arrays cut from it."""

    def __init__(self, plan: ArenaPlan) -> None:
        self.plan = plan
        self._whole = np.zeros(plan.size + ALIGNMENT, np.uint8)
        start = -self._whole.ctypes.data % ALIGNMENT
        self.bytes = self._whole[start : start + plan.size]

    def raw(self, key: int, size: int) -> np.ndarray:
        """``size`` bytes of a buffer."""
        at = self.plan.offsets[key]
        return self.bytes[at : at + size]

    def array(self, key: int, shape: tuple[int, ...], dtype: DType, order: tuple[int, ...] | None = None) -> np.ndarray:
        """A buffer as an array. ``order`` lists the dimensions as they lie in memory, outermost first."""
        count = int(np.prod(shape, dtype=np.int64))
        flat = self.raw(key, count * host_bytes(dtype)).view(host_dtype(dtype))
        if order is None:
            return flat.reshape(shape)
        back = tuple(order.index(d) for d in range(len(shape)))
        return flat.reshape([shape[d] for d in order]).transpose(back)

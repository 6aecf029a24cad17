"""Which outputs of a call come back to the user, and in which shape."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ._errors import Error
from .enums import OutputMode


def resolved(mode: OutputMode, training: bool) -> OutputMode:
    """The mode that the default stands for: the last output for training, all for inference."""
    if mode is not OutputMode.Default:
        return mode
    return OutputMode.Final if training else OutputMode.All


class Collector:
    """Gathers one output over the steps of a call.

    Args:
        mode: which steps count; not ``Default``.
        period: with ``EveryN``, the N.
    """

    def __init__(self, mode: OutputMode, period: int = 1) -> None:
        self._mode, self._period = mode, period if mode is OutputMode.EveryN else 1
        self._kept: list[np.ndarray] = []
        self._step = 0

    def add(self, array: np.ndarray) -> None:
        """Take what one run gave: ``[turns, replicas, *shape]``."""
        if self._mode is OutputMode.Final:
            self._kept = [array[-1]]
        elif self._mode is OutputMode.Sum:
            total = array.sum(axis=0, dtype=_wide(array.dtype))
            self._kept = [self._kept[0] + total] if self._kept else [total]
        else:
            self._kept += [row for n, row in enumerate(array, self._step + 1) if n % self._period == 0]
        self._step += len(array)

    def result(self, dtype: np.dtype) -> np.ndarray:
        """The output as the user gets it.

        With several micro-batches kept, a scalar becomes ``[count]`` and any other output is joined along its first
        dimension; with one it keeps its shape. Order: step, then replica, then within the micro-batch.

        Raises:
            Error: the period is longer than the call.
        """
        parts = list(self._parts())
        if not parts:
            raise Error(
                f"OutputMode.EveryN with a period of {self._period} keeps nothing of a call, which has {self._step} "
                "steps: choose a period that divides them."
            )
        if len(parts) == 1:
            return np.asarray(parts[0]).astype(dtype, copy=False)
        joined = np.stack(parts) if not parts[0].ndim else np.concatenate(parts)
        return joined.astype(dtype, copy=False)

    def _parts(self) -> Iterator[np.ndarray]:
        for row in self._kept:
            yield from row


def _wide(dtype: np.dtype) -> np.dtype:
    """The type in which outputs are summed: half in float, flags as numbers."""
    if dtype == np.float16:
        return np.dtype(np.float32)
    return np.dtype(np.int32) if dtype == np.bool_ else dtype

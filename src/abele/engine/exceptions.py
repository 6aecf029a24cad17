"""Floating-point exceptions: an engine that was asked to stops at the first operation that makes a NaN or an infinity.

Every operation is looked at before and after: what is not finite in its operands may be in its results, and an
operation whose own constants are infinite (a mask) may write them. A NaN that the host gives is one, too. What the
compiler has fused is one operation: an infinity that does not leave it is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from abele.engine.program import Run, label
from abele.errors import FloatingPointFault

_KINDS = (("a NaN", np.isnan), ("an infinity", np.isinf))


def checked(
    nodes: Sequence[Callable[[], None]],
    run: Run,
    replica: int,
    operands: Iterable[np.ndarray],
    results: list[np.ndarray],
) -> Callable[[], None]:
    """A node that runs the nodes of one operation on one replica and stops when they make what is not finite.

    Raises, when it runs:
        FloatingPointFault: a result holds a NaN or an infinity, and no operand did.
    """
    read = [array for array in operands if array.dtype.kind == "f"]
    made = [array for array in results if array.dtype.kind == "f"]
    masks = _infinite(run.attributes)

    def work() -> None:
        had_nan, had_infinity = (any(is_so(array).any() for array in read) for _, is_so in _KINDS)
        for node in nodes:
            node()
        for number, array in enumerate(made):
            if np.isfinite(array).all():
                continue
            for (kind, is_so), had in zip(_KINDS, (had_nan, had_infinity or masks), strict=True):
                where = is_so(array)
                if not had and where.any():
                    first = ", ".join(map(str, np.argwhere(where)[0].tolist()))
                    of_many = f" of result {number}" if len(made) > 1 else ""
                    raise FloatingPointFault(
                        f"The operation {label(run)} makes {kind} of finite operands on replica {replica}, in "
                        f"{int(where.sum())} of {array.size} elements{of_many}, the first at [{first}]",
                        where=run.origin.where,
                        remedy=_REMEDIES[str(run.results[results.index(array)].type.dtype) == "f16"],
                    )

    return work


def checked_load(load: Callable[[], None], stream: str, replica: int, made: np.ndarray) -> Callable[[], None]:
    """A node that loads a micro-batch and stops when it holds a NaN.

    Raises, when it runs:
        FloatingPointFault: it does.
    """

    def work() -> None:
        load()
        found = int(np.isnan(made).sum()) if made.dtype.kind == "f" else 0
        if found:
            raise FloatingPointFault(
                f"The input {stream!r} holds {found} NaN of {made.size} elements on replica {replica}",
                remedy="Look at the data, or fill with torch.nan_to_num before the model is called.",
            )

    return work


_REMEDIES = {
    False: "Keep its operands in its domain: add a small number to what is divided by or taken the logarithm of, or "
    "clip gradients.",
    True: "half ends at 65,504: lower the loss scale or the learning rate, or compute this in float.",
}


def _infinite(value: Any) -> bool:
    """Whether an attribute holds an infinite constant, at any depth."""
    if isinstance(value, float):
        return value in (float("inf"), float("-inf"))
    if isinstance(value, dict):
        return any(map(_infinite, value.values()))
    if isinstance(value, (tuple, list)):
        return any(map(_infinite, value))
    return any(_infinite(getattr(value, name)) for name in getattr(value, "__dataclass_fields__", ()))

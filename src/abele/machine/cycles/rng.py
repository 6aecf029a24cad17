"""Cycles of random numbers on a tile: uniform, normal, truncated normal, dropout, Bernoulli, and setting a seed."""

from __future__ import annotations

from typing import Any

from abele.errors import InvalidOption, suggest
from abele.machine.cycles.arith import Count, ceil_div
from abele.machine.cycles.registry import estimate

_SOURCE = "graphcore/poplibs, poprand cycle estimators"
_TRUNCATED_ROUNDS = 4  # draws of a truncated normal; the library's default is a parameter

# (cycles a vector, cycles a worker, cycles once)
_KINDS: dict[str, tuple[int, int, int]] = {
    "uniform": (4, 23, 0),
    "normal": (4, 23, 0),
    "truncated_normal": (11 * _TRUNCATED_ROUNDS + 5, 23, 0),
    "dropout": (2, 24, 6),
    "bernoulli": (1, 22, 0),
}


@estimate("Random", source=_SOURCE, confidence="published", code_bytes=300)
def random(chip: Any, *, n: Count, dtype: str = "f16", kind: str = "uniform") -> Count:
    """Tile cycles to draw ``n`` elements.

    ``kind`` is ``uniform``, ``normal``, ``truncated_normal``, ``dropout`` or ``bernoulli``. The library divides
    the path width by 2 and 4 for uniform and Bernoulli where the vector width is meant; the vector width is used.
    """
    if kind not in _KINDS:
        raise InvalidOption(f"No random numbers of kind '{kind}'", remedy=suggest(kind, _KINDS))
    vector, worker, once = _KINDS[kind]
    return vector * ceil_div(n, chip.vector_width(dtype)) + worker * chip.workers + once


@estimate("SetSeed", source=_SOURCE, confidence="published", code_bytes=160)
def set_seed(chip: Any) -> int:
    """Tile cycles to set the generators of all workers."""
    return 14 + 27 * chip.workers

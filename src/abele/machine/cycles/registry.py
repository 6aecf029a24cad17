"""The table of vertex estimates: a name, a pure function of a chip and fields, a source and a confidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from abele.machine.constants import Confidence


@dataclass(frozen=True, slots=True)
class Estimate:
    """Cycle cost of one vertex type: ``function(chip, **fields)`` gives tile cycles, all workers together."""

    name: str
    function: Callable[..., Any]
    source: str
    confidence: Confidence
    code_bytes: int = 512

    def __call__(self, chip: Any, **fields: Any) -> Any:
        return self.function(chip, **fields)


ESTIMATES: dict[str, Estimate] = {}
"""Every common estimate by vertex name; filled by importing the modules of this package."""


def estimate(
    name: str, *, source: str, confidence: Confidence, code_bytes: int
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as the estimate of the vertex ``name``.

    ``code_bytes`` is the vertex's code in tile memory. No public source lists code sizes, so all of them are
    assumed, from the number of paths in the vertex.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if name in ESTIMATES:
            raise ValueError(f"two estimates for the vertex {name!r}")
        ESTIMATES[name] = Estimate(name, function, source, confidence, code_bytes)
        return function

    return register

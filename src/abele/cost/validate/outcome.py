"""What a runner finds out about a case, and the one place where it becomes the published metric."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from abele.compile.cache import Cache
from abele.cost.validate.cases import UNITS, Case
from abele.errors import InvalidOption


class NoRunner(Exception):
    """This version cannot predict the case; the text says why."""


@dataclass(frozen=True)
class Outcome:
    """Predicted quantities of a case; those that its metric does not need may stay zero.

    Attributes:
        seconds, cycles: of what was measured.
        samples, flops, bytes, points: done in that time.
        rate: cycles for one more row or element.
        factor: a plain number.
        shares: share of the time by kind (compute, exchange, …), where a program was charged.
        fits: whether the program fits the tiles' memory; ``None`` where there is no program.
        notes: what the prediction leaves out or assumes.
    """

    seconds: float = 0.0
    cycles: float = 0.0
    samples: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0
    points: float = 0.0
    rate: float = 0.0
    factor: float = 0.0
    shares: Mapping[str, float] = field(default_factory=dict)
    fits: bool | None = None
    notes: tuple[str, ...] = ()

    def value(self, unit: str) -> float:
        """The predicted value in a unit of ``UNITS``."""
        quantity, scale = UNITS[unit]
        number = getattr(self, quantity)
        if quantity in ("samples", "flops", "bytes", "points"):
            number = number / self.seconds if self.seconds else 0.0
        if not number:
            raise InvalidOption(
                f"The runner of this family gives no {quantity}, which the unit {unit!r} needs",
                remedy="Choose another unit.",
            )
        return number * scale


@dataclass(frozen=True)
class Context:
    """What runners share: the cache of executables (``None``: compile afresh) and whom to tell of progress."""

    cache: Cache | None
    tell: Callable[[str, str], None]


Runner = Callable[[Case, Context], Outcome]
RUNNERS: dict[str, Runner] = {}
"""The runner of each family; filled by importing the modules of this package."""


def runner(*families: str) -> Callable[[Runner], Runner]:
    """Register the decorated function as the runner of these families."""

    def register(function: Runner) -> Runner:
        for family in families:
            if family in RUNNERS:
                raise ValueError(f"two runners for the family {family!r}")
            RUNNERS[family] = function
        return function

    return register

"""Ratios of cases that differ only in system or size: what a user asks before choosing a machine.

The noise of the sources is mostly in what both of a pair share, the software and the configuration, so that a ratio
says more of the machine than either of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from abele.cost.validate.summary import Row
from abele.errors import AbeleError
from abele.machine.presets import CHIPS
from abele.machine.system import find_system

_SIZE = re.compile(r"pod-?\d+", re.IGNORECASE)
_VERSION = re.compile(r"_?v?\d+(\.\d+)*|-closed|-open")


@dataclass(frozen=True)
class Ratio:
    """One case over another.

    Attributes:
        kind: ``system`` (as many IPUs of another chip) or ``size`` (more IPUs of the same).
        over, under: their rows.
    """

    kind: str
    over: Row
    under: Row

    @property
    def predicted(self) -> float:
        assert self.over.predicted is not None and self.under.predicted is not None
        return self.over.predicted / self.under.predicted

    @property
    def published(self) -> float:
        return self.over.case.value / self.under.case.value

    @property
    def error(self) -> float:
        """Predicted over published − 1, in percent of the published ratio."""
        return 100.0 * (self.predicted / self.published - 1.0)

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "over": self.over.case.id,
            "under": self.under.case.id,
            "systems": [self.over.case.system, self.under.case.system],
            "model": self.over.case.model,
            "predicted": self.predicted,
            "published": self.published,
            "error_percent": self.error,
        }


@dataclass(frozen=True)
class RatioSummary:
    """Absolute errors of the ratios of one kind, in percent."""

    kind: str
    ratios: int
    median: float
    largest: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def ratios(rows: Sequence[Row]) -> list[Ratio]:
    """The ratios of predicted rows.

    Two rows are a pair when they measure the same rate of the same model, mode, types and sequence length in the same
    source. Sizes are compared with the next smaller one of the same chip and the same version of the source, systems
    with an older chip and as many IPUs, where versions may differ. Micro-batch, accumulation and replicas are those
    that were published.
    """
    members = [(row, chip) for row in rows if (chip := _chip(row)) is not None]
    found = []
    for over, chip in members:
        smaller = [
            row
            for row, other in members
            if other == chip and row.case.ipus < over.case.ipus and _series(row) == _series(over)
        ]
        if smaller:
            nearest = max(row.case.ipus for row in smaller)
            found += [Ratio("size", over, row) for row in smaller if row.case.ipus == nearest]
        found += [
            Ratio("system", over, row)
            for row, other in members
            if _AGE[other] < _AGE[chip] and row.case.ipus == over.case.ipus and _series(row, 0) == _series(over, 0)
        ]
    return sorted(found, key=lambda r: (r.kind != "system", r.over.case.model, r.over.case.ipus))


def summarise_ratios(found: Sequence[Ratio]) -> list[RatioSummary]:
    """A line for each kind of ratio."""
    lines = []
    for kind in dict.fromkeys(ratio.kind for ratio in found):
        errors = np.abs([ratio.error for ratio in found if ratio.kind == kind])
        lines.append(RatioSummary(kind, len(errors), float(np.median(errors)), float(errors.max())))
    return lines


_AGE = {name: age for age, name in enumerate(CHIPS)}


def _chip(row: Row) -> str | None:
    """The chip of a row that may stand in a ratio: a predicted rate of a whole model on a chip that was sold."""
    if row.predicted is None or not row.case.is_rate or row.case.family not in ("training", "inference"):
        return None
    try:
        name = find_system(row.case.system).chip.name
    except AbeleError:  # a predicted row has a system; a user's file may have gone meanwhile
        return None
    return name if name in _AGE else None


def _series(row: Row, version: int = 1) -> tuple:
    """What the rows of a pair share; ``version`` 0 lets versions of the source differ."""
    case = row.case
    source = _SIZE.sub("", case.source)
    if not version:
        source = _VERSION.sub("", source)
    return case.family, case.model, case.mode, case.dtype, case.unit, case.sequence_length, source

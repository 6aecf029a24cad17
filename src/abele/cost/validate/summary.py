"""Statistics of predictions against publications: by family, and the group of known configuration apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from abele.cost.validate.cases import Case
from abele.cost.validate.outcome import Outcome


@dataclass(frozen=True)
class Row:
    """One case and what became of it.

    Attributes:
        status: ``predicted``, ``no runner`` or ``failed``; the latter two with a ``reason``.
        predicted: in the case's unit.
        seconds: CPU seconds that the prediction took.
    """

    case: Case
    status: str
    predicted: float | None = None
    outcome: Outcome | None = None
    reason: str = ""
    seconds: float = 0.0

    @property
    def error(self) -> float | None:
        """Predicted over published − 1, in percent of the published value."""
        return None if self.predicted is None else 100.0 * (self.predicted / self.case.value - 1.0)

    @property
    def speed(self) -> float | None:
        """How much faster than published, in percent of the published speed: plus means that the model is too fast."""
        if self.predicted is None:
            return None
        ratio = self.predicted / self.case.value
        return 100.0 * ((ratio if self.case.is_rate else 1.0 / ratio) - 1.0)

    def to_json(self) -> dict[str, Any]:
        case, outcome = asdict(self.case), self.outcome
        case["options"] = dict(self.case.options)
        return {
            "id": self.case.id,
            "family": self.case.family,
            "status": self.status,
            "predicted": self.predicted,
            "published": self.case.value,
            "unit": self.case.unit,
            "error_percent": self.error,
            "speed_percent": self.speed,
            "noise_percent": self.case.noise or None,
            "headline": self.case.headline,
            "reason": self.reason,
            "cpu_seconds": self.seconds,
            "cycles": outcome.cycles if outcome else None,
            "shares": dict(outcome.shares) if outcome else {},
            "fits": outcome.fits if outcome else None,
            "notes": list(outcome.notes) if outcome else [],
            "case": case,
        }


@dataclass(frozen=True)
class Summary:
    """Errors of one group of rows, in percent.

    Attributes:
        family, group: a family, with ``known`` (known configuration and device-bound) or ``other``; several
            families together may have ``all`` rows in one.
        rows, predicted: in the group, and of those predicted.
        median, p90: of the absolute error.
        bias: median of ``Row.speed``: plus means that the model is too fast.
        noise: median of the noise that the sources state, ``None`` where none does.
    """

    family: str
    group: str
    rows: int
    predicted: int
    median: float | None
    p90: float | None
    bias: float | None
    noise: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


TOGETHER = {
    "gemm and dense convolution": (("gemm", "conv"), {"all": (True, False)}),
    "end to end": (("inference", "training"), {"known": (True,), "other": (False,)}),
}
"""Families that are also judged as one, behind the last of them: their names, and which rows a group has (headline)."""


def summarise(rows: Sequence[Row]) -> list[Summary]:
    """A line for each family in the order of the rows, its headline rows before the others; and those ``TOGETHER``."""
    families = dict.fromkeys(row.case.family for row in rows)
    found = []
    for family in families:
        for group, headline in (("known", True), ("other", False)):
            members = [r for r in rows if r.case.family == family and r.case.headline == headline]
            if members:
                found.append(_summary(family, group, members))
    for name, (several, groups) in TOGETHER.items():
        if not set(several) <= set(families):
            continue
        at = 1 + max(i for i, line in enumerate(found) if line.family in several)
        for group, headlines in reversed(groups.items()):
            members = [r for r in rows if r.case.family in several and r.case.headline in headlines]
            if members:
                found.insert(at, _summary(name, group, members))
    return found


def _summary(family: str, group: str, rows: Sequence[Row]) -> Summary:
    errors = np.abs(_numbers(r.error for r in rows))
    speeds = _numbers(r.speed for r in rows)
    noises = [r.case.noise for r in rows if r.case.noise]
    some = len(errors) > 0
    return Summary(
        family,
        group,
        len(rows),
        len(errors),
        float(np.median(errors)) if some else None,
        float(np.percentile(errors, 90)) if some else None,
        float(np.median(speeds)) if some else None,
        float(np.median(noises)) if noises else None,
    )


def _numbers(values: Iterable[float | None]) -> np.ndarray:
    return np.array([v for v in values if v is not None], float)

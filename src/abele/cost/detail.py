"""A profile in full, for a report: its tables, and how far they are to be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from abele.cost.profile import Profile
from abele.cost.tables import tables
from abele.cost.trust import band_of, mode_of, provenance
from abele.machine.system import System
from abele.schedule.records import Schedule


@dataclass(frozen=True, eq=False)
class Detail:
    """What a report holds beside ``Profile.to_json``.

    Attributes:
        mode: ``training`` or ``inference``.
        tables: by name, each columns by name; ``docs/report_store.md`` explains them.
        provenance, band: see ``trust``.
        notes: further ones than the profile's.
    """

    mode: str
    tables: Mapping[str, Mapping[str, Any]]
    provenance: Mapping[str, list[str]]
    band: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def detail(profile: Profile, schedule: Schedule, system: System) -> Detail:
    """A profile in full, which ``cost`` made of this schedule on this system."""
    mode = mode_of(schedule)
    found, notes = tables(profile, schedule, system)
    return Detail(mode, found, provenance(schedule, system), band_of(mode), notes)

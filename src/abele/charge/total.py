"""A whole schedule in two figures, to compare schedules of one program."""

from __future__ import annotations

from dataclasses import dataclass

from abele.charge.columns import Columns
from abele.charge.cycles import Charger
from abele.charge.memory import tile_memory
from abele.machine.system import System
from abele.schedule.liveness import liveness
from abele.schedule.records import Schedule


@dataclass(frozen=True, slots=True)
class Charged:
    """Cycles of one device iteration, and bytes that the fullest tile lacks (0: it fits)."""

    cycles: float
    lacking: int

    @property
    def order(self) -> tuple[bool, float]:
        """Smaller is better: what fits comes first, and then the quicker."""
        return self.lacking > 0, self.cycles


def charged(schedule: Schedule, system: System) -> Charged:
    """Charge a schedule; it must fit the system's tiles and IPUs in number."""
    live, columns = liveness(schedule), Columns(schedule.tiles)
    charger = Charger(schedule, system, live, columns)
    inside = charger.function(schedule.main)
    begin, end = charger.ends()
    memory = tile_memory(schedule, system, live, charger, columns)
    return Charged((begin + inside + end).total, max(0, memory.gap))

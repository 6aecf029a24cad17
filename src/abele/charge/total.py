"""A whole schedule charged: ``cost`` makes a profile of it, and the compiler compares ways to compile a program."""

from __future__ import annotations

from dataclasses import dataclass

from abele.charge.columns import Columns
from abele.charge.cycles import Charger
from abele.charge.memory import TileMemory, tile_memory
from abele.charge.records import Cycles
from abele.machine.system import System
from abele.schedule.liveness import Liveness, liveness
from abele.schedule.records import Schedule


@dataclass(frozen=True)
class Charged:
    """One device iteration of a schedule.

    Attributes:
        live: the live ranges of the schedule.
        charger: what each of its nodes takes.
        begin, end: before and after main, see ``Charger.ends``.
        cycles: of all.
        memory: what the tiles hold.
    """

    live: Liveness
    charger: Charger
    begin: Cycles
    end: Cycles
    cycles: Cycles
    memory: TileMemory

    @property
    def order(self) -> tuple[bool, float]:
        """Smaller is better: what fits comes first, and then the quicker."""
        return not self.memory.fits, self.cycles.total


def charged(schedule: Schedule, system: System) -> Charged:
    """Charge a schedule; it must fit the system's tiles and IPUs in number."""
    live, columns = liveness(schedule), Columns(schedule.tiles)
    charger = Charger(schedule, system, live, columns)
    inside = charger.function(schedule.main)
    begin, end = charger.ends()
    memory = tile_memory(schedule, system, live, charger, columns)
    return Charged(live, charger, begin, end, begin + inside + end, memory)

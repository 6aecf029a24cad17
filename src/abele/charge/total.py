"""A whole schedule charged: ``cost`` makes a profile of it, and the compiler compares ways to compile a program."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from abele.charge.columns import Columns
from abele.charge.cycles import Charger
from abele.charge.memory import MemoryCharger, TileMemory
from abele.charge.records import Cycles
from abele.machine.system import System
from abele.schedule.liveness import liveness
from abele.schedule.records import Schedule


class Charged:
    """One device iteration of a schedule; the memory is measured when it is first asked for.

    Args:
        like: another schedule charged for this system, say another way to compile the program: what it found out about
            layouts and plans is not found out again, nor kept twice.

    Attributes:
        live: the live ranges of the schedule.
        charger: what each of its nodes takes.
        begin, end: before and after main, see ``Charger.ends``.
        cycles: of all.
    """

    def __init__(self, schedule: Schedule, system: System, like: Charged | None = None) -> None:
        self.schedule, self.system = schedule, system
        self.live, self.columns = liveness(schedule), like.columns if like else Columns()
        self.charger = Charger(schedule, system, self.live, self.columns)
        if like:
            self.charger.share(like.charger)
        inside = self.charger.function(schedule.main)
        self.begin, self.end = self.charger.ends()
        self.cycles: Cycles = self.begin + inside + self.end

    @cached_property
    def tiles(self) -> MemoryCharger:
        """What measures the tiles."""
        return MemoryCharger(self.schedule, self.system, self.live, self.charger, self.columns)

    @cached_property
    def memory(self) -> TileMemory:
        """What the tiles hold."""
        return self.tiles.measure()

    @property
    def fits(self) -> bool:
        """Whether the tiles hold it; measured only where what is kept for good fits the tiles of every IPU."""
        kept = [0] * self.schedule.ipus
        for name in self.live.always:
            tensor = self.schedule.tensors[name]
            kept[tensor.ipu] += tensor.type.bytes
        return max(kept) <= self.schedule.tiles * self.system.chip.tile_memory and self.memory.fits


_LAST: list[Charged] = []
"""What was chosen or asked about last: what was just compiled is what is shown next."""


def charged(schedule: Schedule, system: System) -> Charged:
    """Charge a schedule; it must fit the system's tiles and IPUs in number. The last answer is given again."""
    if not (_LAST and _LAST[0].schedule is schedule and _LAST[0].system is system):
        _LAST[:] = [Charged(schedule, system)]
    return _LAST[0]


def cheapest(found: Sequence[Charged]) -> int:
    """Which of several schedules of one program is the quickest that fits; when none does, the quickest; the first of
    equals. Memory is measured from the quickest on, until one fits."""
    quickest = sorted(range(len(found)), key=lambda i: found[i].cycles.total)
    best = next((i for i in quickest if found[i].fits), quickest[0])
    _LAST[:] = [found[best]]
    return best

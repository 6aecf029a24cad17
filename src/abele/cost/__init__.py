"""Cost: charges a schedule with cycles, tile memory and energy. The same schedule that the engine runs."""

from abele.charge.memory import LiveTensor, TileMemory
from abele.charge.records import Cycles
from abele.cost.detail import Detail, detail
from abele.cost.fit import Explanation, explain
from abele.cost.profile import Aggregate, Profile, StepProfile, Timeline, cost

__all__ = [
    "Aggregate",
    "Cycles",
    "Detail",
    "Explanation",
    "LiveTensor",
    "Profile",
    "StepProfile",
    "TileMemory",
    "Timeline",
    "cost",
    "detail",
    "explain",
]

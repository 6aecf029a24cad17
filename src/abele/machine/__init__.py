"""Machines as data: chips, systems, links, clocks, power, and the cycles of their vertices.

A chip or system is a frozen record of plain numbers, each with a unit, a public source and a confidence.
Everything here is data and plain arithmetic; plans and costs read it, nothing here knows a program.
"""

from abele.machine.chip import Chip
from abele.machine.constants import Constant, dtype_bytes
from abele.machine.presets import CHIPS, bow, c600, gc200, good_ipu, mk1
from abele.machine.system import SYSTEMS, System, find_system, list_systems, one_ipu

__all__ = [
    "CHIPS",
    "SYSTEMS",
    "Chip",
    "Constant",
    "System",
    "bow",
    "c600",
    "dtype_bytes",
    "find_system",
    "gc200",
    "good_ipu",
    "list_systems",
    "mk1",
    "one_ipu",
]

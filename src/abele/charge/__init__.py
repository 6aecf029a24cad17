"""Cycles and tile memory of a schedule: the compiler chooses by them, ``cost`` shows them with time and energy.

``columns`` answers questions about layouts as columns over tiles; ``cycles`` charges compute sets, steps and loops;
``memory`` what each tile holds.
"""

from abele.charge.total import Charged, charged

__all__ = ["Charged", "charged"]

"""Cycles and tile memory of a schedule: the compiler chooses by them, ``cost`` shows them with time and energy.

``columns`` answers questions about layouts as columns over tiles; ``plans`` charges the compute sets of a step, and
``cycles`` steps and loops; ``memory`` says what each tile holds; ``total`` all of it at once.
"""

from abele.charge.total import Charged, charged, cheapest

__all__ = ["Charged", "charged", "cheapest"]

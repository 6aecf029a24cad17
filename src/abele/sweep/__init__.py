"""Sweeps: one model over every combination of fields of chip, system and program, each compiled and charged.

``points`` says what may be varied, ``charge`` costs one point, ``engines`` maps it over all of them, ``table`` keeps
the rows in a Parquet file and ``plot`` draws them.
"""

from abele.sweep.charge import Row, Sweep
from abele.sweep.engines import ENGINES, each
from abele.sweep.points import Point, combinations, parse

__all__ = ["ENGINES", "Point", "Row", "Sweep", "combinations", "each", "parse"]

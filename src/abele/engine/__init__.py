"""Runs a schedule: on the host for real (``Engine``), and tile by tile as the reference (``run_reference``)."""

from abele.engine.engine import Engine
from abele.engine.reference import run_reference

__all__ = ["Engine", "run_reference"]

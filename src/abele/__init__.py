"""Abele: compile a model for a described tile-parallel machine, run it here, and see what it costs.

A model becomes one graph, the compiler turns the graph into one schedule, and everything else reads that
schedule: the engine runs it, cost charges it, the report draws it. ``docs/architecture.md`` has the picture.
"""

__version__ = "0.1.0"

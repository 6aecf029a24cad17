"""See :mod:`poptorch_geometric.ops.neighbours`, which has them; existing programs import them from here."""

from poptorch_geometric.ops.neighbours import radius, radius_graph

__all__ = ["radius", "radius_graph"]

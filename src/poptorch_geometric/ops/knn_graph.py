"""See :mod:`poptorch_geometric.ops.neighbours`, which has it; existing programs import it from here."""

from poptorch_geometric.ops.neighbours import knn_graph

__all__ = ["knn_graph"]

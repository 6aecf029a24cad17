"""Operations of PyTorch Geometric and torch-cluster whose results have shapes that are known in advance."""

from poptorch_geometric.ops.neighbours import knn, knn_graph, knn_interpolate, radius, radius_graph

__all__ = ["knn", "knn_graph", "knn_interpolate", "radius", "radius_graph"]

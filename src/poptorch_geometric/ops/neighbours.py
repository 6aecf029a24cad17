"""Neighbours of points, found with shapes that do not depend on where the points lie.

All distances are computed and the nearest taken, so that the cost grows with the product of the numbers of points.
Neighbours that are not there have the index -1.
"""

from __future__ import annotations

from typing import Any

import torch
from torch_geometric.utils import scatter

NO_NEIGHBOUR = -1


def _distances(
    y: torch.Tensor, x: torch.Tensor, batch_y: torch.Tensor | None, batch_x: torch.Tensor | None, cosine: bool = False
) -> torch.Tensor:
    """Distance of each point of ``y`` to each of ``x``; infinite where they belong to different examples."""
    y, x = (t.reshape(-1, 1) if t.dim() == 1 else t for t in (y, x))
    y, x = (t if t.is_floating_point() else t.float() for t in (y, x))
    if cosine:
        y, x = (torch.nn.functional.normalize(t, dim=-1) for t in (y, x))
        distances = 1 - y @ x.t()
    else:
        distances = (y.unsqueeze(1) - x.unsqueeze(0)).square().sum(-1).sqrt()
    if batch_y is None and batch_x is None:
        return distances
    of_y = y.new_zeros(len(y)) if batch_y is None else batch_y
    of_x = x.new_zeros(len(x)) if batch_x is None else batch_x
    return distances.masked_fill(of_y.unsqueeze(1) != of_x.unsqueeze(0), float("inf"))


def _nearest(distances: torch.Tensor, k: int, limit: float = float("inf")) -> torch.Tensor:
    """Indices ``[2, rows * k]`` (row, column) of the ``k`` smallest of each row that are below the limit."""
    near, column = torch.topk(distances, min(k, distances.shape[1]), dim=1, largest=False, sorted=True)
    row = torch.arange(distances.shape[0]).unsqueeze(1).expand(column.shape)
    there = near < limit
    return torch.stack([torch.where(there, t, NO_NEIGHBOUR).reshape(-1) for t in (row, column)])


def _without_self(distances: torch.Tensor) -> torch.Tensor:
    return distances.masked_fill(torch.eye(distances.shape[0], dtype=torch.bool), float("inf"))


def _directed(pairs: torch.Tensor, flow: str) -> torch.Tensor:
    if flow not in ("source_to_target", "target_to_source"):
        raise AssertionError(f"The flow is source_to_target or target_to_source, not {flow!r}.")
    return pairs.flip(0) if flow == "source_to_target" else pairs


def knn(
    x: torch.Tensor,
    y: torch.Tensor,
    k: int,
    batch_x: torch.Tensor | None = None,
    batch_y: torch.Tensor | None = None,
    cosine: bool = False,
    num_workers: int = 1,
    batch_size: int | None = None,
) -> torch.Tensor:
    """For each point of ``y`` the ``k`` nearest of ``x``.

    Args:
        x, y: points ``[points, dimensions]``, or ``[points]``.
        k: how many, at most as many as ``x`` has.
        batch_x, batch_y: to which example each point belongs; only points of the same one are neighbours.
        cosine: take the angle between points for their distance.
        num_workers, batch_size: accepted; they have no effect here.

    Returns:
        ``[2, len(y) * k]``: indices into ``y`` and into ``x``; -1 where an example has fewer than ``k`` points.
    """
    return _nearest(_distances(y, x, batch_y, batch_x, cosine), k)


def knn_graph(
    x: torch.Tensor,
    k: int,
    batch: torch.Tensor | None = None,
    loop: bool = False,
    flow: str = "source_to_target",
    cosine: bool = False,
    num_workers: int = 1,
    batch_size: int | None = None,
) -> torch.Tensor:
    """The edges between each point and its ``k`` nearest.

    Args:
        x, batch, k, cosine, num_workers, batch_size: as of :func:`knn`.
        loop: whether a point is a neighbour of itself.
        flow: ``source_to_target``: edges lead from the neighbours to the point.

    Returns:
        ``[2, points * k]``: sources and targets.
    """
    distances = _distances(x, x, batch, batch, cosine)
    return _directed(_nearest(distances if loop else _without_self(distances), k), flow)


def radius(
    x: torch.Tensor,
    y: torch.Tensor,
    r: float,
    batch_x: torch.Tensor | None = None,
    batch_y: torch.Tensor | None = None,
    max_num_neighbors: int = 32,
    num_workers: int = 1,
    batch_size: int | None = None,
) -> torch.Tensor:
    """For each point of ``y`` the points of ``x`` within a distance.

    Args:
        x, y, batch_x, batch_y, num_workers, batch_size: as of :func:`knn`.
        r: the distance.
        max_num_neighbors: the most of them for a point, the nearest first.

    Returns:
        ``[2, len(y) * max_num_neighbors]``: indices into ``y`` and into ``x``; -1 where there is none.
    """
    return _nearest(_distances(y, x, batch_y, batch_x), max_num_neighbors, r * (1 + 1e-6) + 1e-8)


def radius_graph(
    x: torch.Tensor,
    r: float,
    batch: torch.Tensor | None = None,
    loop: bool = False,
    max_num_neighbors: int = 32,
    flow: str = "source_to_target",
    num_workers: int = 1,
    batch_size: int | None = None,
) -> torch.Tensor:
    """The edges between each point and those within a distance.

    Args:
        x, r, batch, max_num_neighbors, num_workers, batch_size: as of :func:`radius`.
        loop, flow: as of :func:`knn_graph`.

    Returns:
        ``[2, points * max_num_neighbors]``: sources and targets; -1 where there is none.
    """
    distances = _distances(x, x, batch, batch)
    limit = r * (1 + 1e-6) + 1e-8
    return _directed(_nearest(distances if loop else _without_self(distances), max_num_neighbors, limit), flow)


def knn_interpolate(
    x: torch.Tensor,
    pos_x: torch.Tensor,
    pos_y: torch.Tensor,
    batch_x: torch.Tensor | None = None,
    batch_y: torch.Tensor | None = None,
    k: int = 3,
    num_workers: int = 1,
) -> torch.Tensor:
    """Features at points, from those of the ``k`` nearest points weighted by one over the squared distance.

    Args:
        x: features ``[points, channels]`` at ``pos_x``.
        pos_x, pos_y: where features are, and where they are wanted.
        batch_x, batch_y, k, num_workers: as of :func:`knn`.

    Returns:
        ``[len(pos_y), channels]``.
    """
    with torch.no_grad():
        pairs: Any = knn(pos_x, pos_y, k, batch_x, batch_y)
        there = pairs[0] != NO_NEIGHBOUR
        at, of = (torch.where(there, t, 0) for t in pairs)
        apart = (pos_x.index_select(0, of) - pos_y.index_select(0, at)).square().sum(-1, keepdim=True)
        weights = torch.where(there.unsqueeze(1), 1 / apart.clamp(min=1e-16), 0.0)
    size = pos_y.shape[0]
    total = scatter(x.index_select(0, of) * weights, at, 0, size, reduce="sum")
    return total / scatter(weights, at, 0, size, reduce="sum")

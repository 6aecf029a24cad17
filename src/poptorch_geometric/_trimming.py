"""Leaving out nodes or edges, drawn at random, of graphs that are too large for a batch together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch_geometric.data import HeteroData
from torch_geometric.data.data import BaseData

from poptorch_geometric.common import edge_stores, node_stores, of_type


def trim_nodes(graphs: Sequence[Any], sizes: int | dict[str, int]) -> list[BaseData]:
    """The graphs with no more nodes of each type than ``sizes`` together; each keeps one at least.

    Raises:
        RuntimeError: when there are more graphs than nodes to keep.
    """
    masks: dict[Any, list[torch.Tensor]] = {}
    for kind in node_stores(graphs[0]):
        size = of_type(sizes, kind)
        if size < len(graphs):
            which = f" of type {kind}" if kind is not None else ""
            raise RuntimeError(
                f"{len(graphs)} graphs cannot be trimmed to {size} nodes{which}: some would be empty. Allow for more "
                "nodes, or batch fewer graphs."
            )
        counts = [int((g[kind] if kind is not None else g).num_nodes or 0) for g in graphs]
        if sum(counts) > size:
            masks[kind] = _kept(counts, size)
    return [_part(g, {kind: masks[kind][i] for kind in masks}, "subgraph") for i, g in enumerate(graphs)]


def trim_edges(graphs: Sequence[Any], sizes: int | dict[Any, int]) -> list[BaseData]:
    """The graphs with no more edges of each type than ``sizes`` together; each keeps one where there is room."""
    masks: dict[Any, list[torch.Tensor]] = {}
    for kind in edge_stores(graphs[0]):
        counts = [int((g[kind] if kind is not None else g).num_edges or 0) for g in graphs]
        if sum(counts) > of_type(sizes, kind):
            masks[kind] = _kept(counts, of_type(sizes, kind))
    return [_part(g, {kind: masks[kind][i] for kind in masks}, "edge_subgraph") for i, g in enumerate(graphs)]


def _part(graph: Any, masks: dict[Any, torch.Tensor], method: str) -> BaseData:
    if not masks:
        return graph
    return getattr(graph, method)(masks if isinstance(graph, HeteroData) else masks[None])


def _kept(counts: Sequence[int], size: int) -> list[torch.Tensor]:
    """For each graph which of its elements stay, ``size`` of all together."""
    total = sum(counts)
    rank = torch.rand(total)
    start = 0
    for count in counts:
        if count:  # first of all, one of each graph
            rank[start + int(torch.randint(count, ()))] -= 1.0
        start += count
    kept = torch.zeros(total, dtype=torch.bool)
    kept[rank.argsort()[:size]] = True
    return list(kept.split(list(counts)))

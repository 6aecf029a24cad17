"""A loader of clusters of one large graph, each batch one micro-batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.utils.data
from torch_geometric.loader import ClusterData, ClusterLoader

from poptorch_geometric.collate import FixedSizeCollater
from poptorch_geometric.fixed_size_options import FixedSizeOptions
from poptorch_geometric.pyg_dataloader import OverSizeStrategy, trims

__all__ = ["FixedSizeClusterLoader"]


class FixedSizeClusterLoader(torch.utils.data.DataLoader):
    """Joins clusters of nodes with the edges among them into batches of fixed size.

    Args:
        cluster_data: the graph, cut into clusters.
        fixed_size_options: the numbers of nodes and edges; its number of graphs is 2, the clusters and the padding.
        batch_size: clusters of a batch.
        over_size_strategy: what happens to clusters that do not fit.
        add_pad_masks: add masks that say what is real (see :class:`FixedSizeCollater`).
        kwargs: further arguments of PyTorch's loader, but those that say how batches are made.
    """

    def __init__(
        self,
        cluster_data: ClusterData,
        fixed_size_options: FixedSizeOptions,
        batch_size: int = 1,
        over_size_strategy: OverSizeStrategy = OverSizeStrategy.TrimNodesAndEdges,
        add_pad_masks: bool = True,
        **kwargs: Any,
    ) -> None:
        name = type(self).__name__
        if fixed_size_options.num_graphs != 2:
            raise AssertionError(
                f"The clusters of a batch of {name} are one graph, and the padding another: the fixed size options "
                f"must have num_graphs=2, not {fixed_size_options.num_graphs}."
            )
        refused = sorted(set(kwargs) & {"collate_fn", "batch_sampler", "shuffle", "exclude_keys"})
        if refused:
            raise AssertionError(f"`{name}` does not support the following arguments: {', '.join(refused)}.")
        self.cluster_data = cluster_data
        self._clusters = batch_size
        collate_fn = self._create_collater(
            fixed_size_options=fixed_size_options, add_masks_to_batch=add_pad_masks, **trims(over_size_strategy)
        )
        super().__init__(dataset=range(len(cluster_data)), batch_size=batch_size, collate_fn=collate_fn, **kwargs)  # type: ignore[arg-type]

    def _create_collater(self, **collater_args: Any) -> Callable[[list[Any]], Any]:
        """What joins the clusters of these numbers."""
        return _ClusterCollater(self.cluster_data, FixedSizeCollater(**collater_args))


class _ClusterCollater:
    def __init__(self, cluster_data: ClusterData, pad: FixedSizeCollater) -> None:
        self._join = ClusterLoader(cluster_data)._collate
        self._pad = pad

    def __call__(self, clusters: list[int]) -> Any:
        return self._pad([self._join(clusters)])

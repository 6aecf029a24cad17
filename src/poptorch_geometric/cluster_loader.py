"""A loader of clusters of one large graph that gives the batches of whole calls of a wrapped model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch_geometric.loader import ClusterData

import poptorch
from poptorch_geometric.collate import CombinedBatchingCollater
from poptorch_geometric.fixed_size_options import FixedSizeOptions
from poptorch_geometric.pyg_cluster_loader import FixedSizeClusterLoader as _FixedSizeClusterLoader
from poptorch_geometric.pyg_dataloader import OverSizeStrategy

__all__ = ["FixedSizeClusterLoader"]


class FixedSizeClusterLoader(_FixedSizeClusterLoader, poptorch.DataLoader):
    """Joins clusters into micro-batches of fixed size, and those into the batches of calls.

    Args:
        cluster_data: the graph, cut into clusters.
        fixed_size_options: the numbers of nodes and edges; its number of graphs is 2.
        batch_size: clusters of a micro-batch.
        over_size_strategy: what happens to clusters that do not fit.
        add_pad_masks: add masks that say what is real (see :class:`FixedSizeCollater`).
        options: of the model (default: those of :class:`poptorch.Options`).
        kwargs: further arguments of :class:`poptorch.DataLoader`.
    """

    def __init__(
        self,
        cluster_data: ClusterData,
        fixed_size_options: FixedSizeOptions,
        batch_size: int = 1,
        over_size_strategy: OverSizeStrategy = OverSizeStrategy.TrimNodesAndEdges,
        add_pad_masks: bool = True,
        options: poptorch.Options | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            cluster_data=cluster_data,
            fixed_size_options=fixed_size_options,
            batch_size=batch_size,
            over_size_strategy=over_size_strategy,
            add_pad_masks=add_pad_masks,
            options=options or poptorch.Options(),
            **kwargs,
        )

    def _create_collater(self, **collater_args: Any) -> Callable[[list[Any]], Any]:
        return CombinedBatchingCollater(super()._create_collater(**collater_args), self._clusters)

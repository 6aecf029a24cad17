"""A loader of sampled neighbourhoods in one large graph, in batches of fixed size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.utils.data
from torch_geometric.loader import NeighborLoader
from torch_geometric.loader.utils import get_input_nodes

import poptorch
from poptorch_geometric.collate import CombinedBatchingCollater, FixedSizeCollater
from poptorch_geometric.fixed_size_options import FixedSizeOptions
from poptorch_geometric.pyg_dataloader import OverSizeStrategy, trims

__all__ = ["FixedSizeNeighborLoader", "PyGFixedSizeNeighborLoader"]


class PyGFixedSizeNeighborLoader(torch.utils.data.DataLoader):
    """Samples neighbourhoods as PyTorch Geometric's ``NeighborLoader`` does, each batch one micro-batch.

    Sampling is PyTorch Geometric's own, which needs ``pyg-lib`` or ``torch-sparse``.

    Args:
        data, num_neighbors, input_nodes: as of ``NeighborLoader``.
        batch_size: nodes that neighbourhoods are sampled for in a batch.
        over_size_strategy: what happens to neighbourhoods that do not fit.
        fixed_size_options: the numbers of nodes and edges; None: as :meth:`FixedSizeOptions.from_loader` finds them.
        add_pad_masks: add masks that say what is real (see :class:`FixedSizeCollater`).
        follow_batch, exclude_keys: as of PyTorch Geometric's loader.
        filter_per_worker: accepted; features are always taken where a batch is sampled.
        kwargs: further arguments of ``NeighborLoader`` (``replace``, ``subgraph_type``, ``disjoint``, ``transform`` …)
            and of PyTorch's loader.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        input_nodes: Any = None,
        batch_size: int = 1,
        over_size_strategy: OverSizeStrategy = OverSizeStrategy.TrimNodesAndEdges,
        fixed_size_options: FixedSizeOptions | None = None,
        add_pad_masks: bool = False,
        follow_batch: Sequence[str] | None = None,
        exclude_keys: Sequence[str] | None = None,
        filter_per_worker: bool = True,
        **kwargs: Any,
    ) -> None:
        sampling = {name: kwargs.pop(name) for name in _SAMPLING if name in kwargs}
        if sampling.get("directed", True):
            sampling.pop("directed", None)  # PyTorch Geometric warns of it, whatever its value
        self.neighbour_loader = NeighborLoader(
            data, num_neighbors, input_nodes=input_nodes, filter_per_worker=True, batch_size=batch_size, **sampling
        )
        self.input_type, nodes, *_ = get_input_nodes(data, input_nodes)
        collate_fn = self._create_collater(
            fixed_size_options=fixed_size_options or FixedSizeOptions.from_loader(self.neighbour_loader),
            add_masks_to_batch=add_pad_masks,
            follow_batch=follow_batch,
            exclude_keys=exclude_keys,
            **trims(over_size_strategy),
        )
        super().__init__(dataset=range(len(nodes)), batch_size=batch_size, collate_fn=collate_fn, **kwargs)  # type: ignore[arg-type]

    def _create_collater(self, **collater_args: Any) -> Callable[[list[Any]], Any]:
        """What samples the neighbourhoods of the nodes of these numbers."""
        self.fixed_size_collater = FixedSizeCollater(**collater_args)
        return lambda index: self.fixedSizeCollate(self.nativeCollate(index))

    def nativeCollate(self, index: Any) -> Any:
        """The neighbourhoods as they are sampled."""
        return self.neighbour_loader(index)

    def fixedSizeCollate(self, data_list: Any) -> Any:
        """The neighbourhoods with padding; what counts and names the sampled nodes stays unpadded."""
        where = data_list[self.input_type] if self.input_type else data_list
        aside = {key: where.pop(key) for key in ("batch_size", "input_id") if key in where}
        padded: Any = self.fixed_size_collater([data_list])
        where = padded[self.input_type] if self.input_type else padded
        for key, value in aside.items():
            where[key] = value
        return padded


_SAMPLING = (
    "input_time",
    "replace",
    "subgraph_type",
    "directed",
    "disjoint",
    "temporal_strategy",
    "time_attr",
    "weight_attr",
    "transform",
    "transform_sampler_output",
    "is_sorted",
    "neighbor_sampler",
)
"""Arguments of ``NeighborLoader`` that PyTorch's loader does not know."""


class FixedSizeNeighborLoader(PyGFixedSizeNeighborLoader, poptorch.DataLoader):
    """Sampled neighbourhoods in the batches of whole calls of a wrapped model.

    Args:
        data, num_neighbors, input_nodes, batch_size: see :class:`PyGFixedSizeNeighborLoader`.
        options: of the model (default: those of :class:`poptorch.Options`).
        kwargs: further arguments of :class:`PyGFixedSizeNeighborLoader` and of :class:`poptorch.DataLoader`.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        input_nodes: Any = None,
        batch_size: int = 1,
        options: poptorch.Options | None = None,
        **kwargs: Any,
    ) -> None:
        self._micro_batch = batch_size
        super().__init__(
            data,
            num_neighbors,
            input_nodes=input_nodes,
            batch_size=batch_size,
            options=options or poptorch.Options(),
            **kwargs,
        )

    def _create_collater(self, **collater_args: Any) -> Callable[[list[Any]], Any]:
        return CombinedBatchingCollater(super()._create_collater(**collater_args), self._micro_batch)

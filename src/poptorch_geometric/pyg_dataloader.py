"""Loaders of batches of fixed size that need no more than PyTorch Geometric: each batch is one micro-batch.

Those of :mod:`poptorch_geometric.dataloader` derive from them and give the batches of whole calls of a model.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import torch.utils.data
from torch.utils.data import RandomSampler, SequentialSampler
from torch_geometric.data import HeteroData

from poptorch_geometric.collate import FixedSizeCollater
from poptorch_geometric.fixed_size_options import FixedSizeOptions
from poptorch_geometric.pyg_collate import Collater
from poptorch_geometric.stream_packing_sampler import StreamPackingSampler

__all__ = ["DataLoader", "FixedSizeDataLoader", "FixedSizeStrategy", "OverSizeStrategy"]


class FixedSizeStrategy(enum.Enum):
    """How graphs are put into batches.

    ``PadToMax``: always as many graphs, and one for padding.
    ``StreamPack``: as many of the next graphs as fit, which leaves less to padding.
    """

    PadToMax = 0
    StreamPack = 1


class OverSizeStrategy(enum.Enum):
    """What happens to graphs that do not fit into a batch.

    ``Error``: an error. ``Skip``: they are left out (with ``StreamPack``).
    ``TrimNodes``, ``TrimEdges``, ``TrimNodesAndEdges``: nodes or edges of them are left out, drawn at random.
    """

    Error = 0
    Skip = 1
    TrimNodes = 2
    TrimEdges = 3
    TrimNodesAndEdges = 4


def trims(strategy: OverSizeStrategy) -> dict[str, bool]:
    """The arguments of a :class:`FixedSizeCollater` that a strategy stands for."""
    both = strategy is OverSizeStrategy.TrimNodesAndEdges
    return {
        "trim_nodes": both or strategy is OverSizeStrategy.TrimNodes,
        "trim_edges": both or strategy is OverSizeStrategy.TrimEdges,
    }


class DataLoader(torch.utils.data.DataLoader):
    """Joins graphs into batches, as PyTorch Geometric's loader does.

    Args:
        dataset: graphs.
        batch_size: graphs of a batch.
        shuffle: whether to permute at every epoch.
        follow_batch: attributes for which the batch says to which graph each element belongs.
        exclude_keys: attributes to leave out.
        kwargs: further arguments of PyTorch's loader.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        follow_batch: Sequence[str] | None = None,
        exclude_keys: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        kwargs.pop("collate_fn", None)
        collate_fn = self._create_collater(follow_batch=follow_batch, exclude_keys=exclude_keys)
        super().__init__(dataset=dataset, batch_size=batch_size, shuffle=shuffle, collate_fn=collate_fn, **kwargs)

    def _create_collater(self, **collater_args: Any) -> Callable[[list[Any]], Any]:
        """What joins the graphs of a batch."""
        return Collater(**collater_args)


class FixedSizeDataLoader(torch.utils.data.DataLoader):
    """Joins graphs into batches that all have the same numbers of nodes, edges and graphs.

    Args:
        dataset: graphs.
        batch_size: graphs of a batch, that for padding included: at least 2.
        shuffle: whether to permute at every epoch.
        fixed_size_options: the numbers; None: as :meth:`FixedSizeOptions.from_dataset` finds them.
        fixed_size_strategy: how graphs are put into batches.
        over_size_strategy: what happens to graphs that do not fit.
        add_pad_masks: add masks that say what is real (see :class:`FixedSizeCollater`).
        follow_batch, exclude_keys: as of PyTorch Geometric's loader.
        kwargs: further arguments of PyTorch's loader.

    Raises:
        ValueError: for ``StreamPack`` together with a ``batch_sampler``.
        AssertionError: when the options have another number of graphs than ``batch_size``.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 2,
        shuffle: bool | None = False,
        fixed_size_options: FixedSizeOptions | None = None,
        fixed_size_strategy: FixedSizeStrategy = FixedSizeStrategy.PadToMax,
        over_size_strategy: OverSizeStrategy = OverSizeStrategy.Error,
        add_pad_masks: bool = True,
        follow_batch: Sequence[str] | None = None,
        exclude_keys: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        if "collate_fn" in kwargs:
            raise AssertionError(
                f"A {type(self).__name__} has its own collate_fn. To bring batches of yours to a fixed size, apply "
                "torch_geometric.transforms.Pad after it, in a torch.utils.data.DataLoader."
            )
        options = fixed_size_options or FixedSizeOptions.from_dataset(dataset, batch_size)
        if isinstance(dataset[0], HeteroData):
            options.to_hetero(dataset[0].node_types, dataset[0].edge_types)
        if batch_size != options.num_graphs:
            raise AssertionError(
                f"The batch_size of {batch_size} and num_graphs={options.num_graphs} of the fixed size options must be "
                "equal: both count the real graphs and that for padding."
            )
        self.fixed_size_options = options
        self.padded_batch_size = batch_size
        batch_sampler = kwargs.pop("batch_sampler", None)
        if fixed_size_strategy is FixedSizeStrategy.StreamPack:
            if batch_sampler is not None:
                raise ValueError(
                    f"{fixed_size_strategy} makes the batches itself, and cannot be used with the batch_sampler "
                    f"{batch_sampler}: leave one of them out."
                )
            batch_sampler = StreamPackingSampler(
                dataset,
                batch_size - 1,
                max_num_nodes=options.total_num_nodes - 1,
                max_num_edges=options.total_num_edges - 1,
                base_sampler=RandomSampler(dataset) if shuffle else SequentialSampler(dataset),
                allow_skip_data=over_size_strategy is OverSizeStrategy.Skip,
            )
        elif fixed_size_strategy is not FixedSizeStrategy.PadToMax:
            raise NotImplementedError(f"{fixed_size_strategy!r} is no strategy of {type(self).__name__}.")
        self.batch_sampler = batch_sampler  # type: ignore[assignment]  # read by _create_collater
        collate_fn = self._create_collater(
            fixed_size_options=options,
            add_masks_to_batch=add_pad_masks,
            follow_batch=follow_batch,
            exclude_keys=exclude_keys,
            **trims(over_size_strategy),
        )
        if batch_sampler is not None:
            batching: dict[str, Any] = {"batch_sampler": batch_sampler, "shuffle": None}
        else:
            batching = {"batch_size": batch_size - 1, "shuffle": shuffle}
        super().__init__(dataset=dataset, collate_fn=collate_fn, **batching, **kwargs)

    def _create_collater(self, **collater_args: Any) -> Callable[[list[Any]], Any]:
        """What joins the graphs of a batch."""
        return FixedSizeCollater(**collater_args)

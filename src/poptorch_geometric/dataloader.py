"""Loaders of graphs that give the batches of whole calls of a wrapped model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import poptorch
from poptorch_geometric.collate import CombinedBatchingCollater
from poptorch_geometric.fixed_size_options import FixedSizeOptions
from poptorch_geometric.pyg_dataloader import DataLoader as _DataLoader
from poptorch_geometric.pyg_dataloader import FixedSizeDataLoader as _FixedSizeDataLoader
from poptorch_geometric.pyg_dataloader import FixedSizeStrategy, OverSizeStrategy

__all__ = ["DataLoader", "FixedSizeDataLoader", "FixedSizeStrategy", "OverSizeStrategy"]


class DataLoader(_DataLoader, poptorch.DataLoader):
    """Joins graphs into micro-batches, and those into the batches of calls.

    Args:
        dataset: graphs.
        batch_size: graphs of a micro-batch.
        shuffle: whether to permute at every epoch.
        follow_batch, exclude_keys: as of PyTorch Geometric's loader.
        options: of the model (default: those of :class:`poptorch.Options`).
        kwargs: further arguments of :class:`poptorch.DataLoader`.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        follow_batch: Sequence[str] | None = None,
        exclude_keys: Sequence[str] | None = None,
        options: poptorch.Options | None = None,
        **kwargs: Any,
    ) -> None:
        self._micro_batch = batch_size
        super().__init__(
            dataset=dataset,
            batch_size=batch_size,
            shuffle=shuffle,
            follow_batch=follow_batch,
            exclude_keys=exclude_keys,
            options=options or poptorch.Options(),
            **kwargs,
        )

    def _create_collater(self, **collater_args: Any) -> Callable[[list[Any]], Any]:
        return CombinedBatchingCollater(super()._create_collater(**collater_args), self._micro_batch)


class FixedSizeDataLoader(_FixedSizeDataLoader, poptorch.DataLoader):
    """Joins graphs into micro-batches of fixed size, and those into the batches of calls.

    Args:
        dataset: graphs.
        batch_size: graphs of a micro-batch, that for padding included: at least 2.
        shuffle: whether to permute at every epoch.
        fixed_size_options: the numbers; None: as :meth:`FixedSizeOptions.from_dataset` finds them.
        fixed_size_strategy: how graphs are put into micro-batches.
        over_size_strategy: what happens to graphs that do not fit.
        add_pad_masks: add masks that say what is real (see :class:`FixedSizeCollater`).
        follow_batch, exclude_keys: as of PyTorch Geometric's loader.
        options: of the model (default: those of :class:`poptorch.Options`).
        kwargs: further arguments of :class:`poptorch.DataLoader`.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 2,
        shuffle: bool = False,
        fixed_size_options: FixedSizeOptions | None = None,
        fixed_size_strategy: FixedSizeStrategy = FixedSizeStrategy.PadToMax,
        over_size_strategy: OverSizeStrategy = OverSizeStrategy.Error,
        add_pad_masks: bool = True,
        follow_batch: Sequence[str] | None = None,
        exclude_keys: Sequence[str] | None = None,
        options: poptorch.Options | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            dataset=dataset,
            batch_size=batch_size,
            shuffle=shuffle,
            fixed_size_options=fixed_size_options,
            fixed_size_strategy=fixed_size_strategy,
            over_size_strategy=over_size_strategy,
            add_pad_masks=add_pad_masks,
            follow_batch=follow_batch,
            exclude_keys=exclude_keys,
            options=options or poptorch.Options(),
            **kwargs,
        )

    def _create_collater(self, **collater_args: Any) -> Callable[[list[Any]], Any]:
        size = self.padded_batch_size - 1 if self.batch_sampler is None else None
        return CombinedBatchingCollater(super()._create_collater(**collater_args), size)

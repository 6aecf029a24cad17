"""``poptorch.DataLoader``: batches of the size that one call of a model takes."""

from __future__ import annotations

import dataclasses
import logging
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from . import _batching
from ._arguments import Batching
from ._async_accessor import AsynchronousDataAccessor
from ._batching import Recipe
from ._errors import Error, member, require, whole_number
from ._logging import logger
from .enums import DataLoaderMode
from .options import Options

__all__ = ["AsynchronousDataAccessor", "DataLoader", "micro_batches_per_call"]

#: The part of a data set whose loss at the end of each epoch is warned of.
NOTABLE_LOSS = 0.1


class DataLoader(torch.utils.data.DataLoader):
    """PyTorch's data loader with batches of the size that one call of a model takes.

    One call takes ``batch_size`` × device iterations × gradient accumulation × replicas ÷ input group size
    elements. With several processes (``options.Distributed``) each loads its own part of the data set.

    Args:
        options: the options of the model; they freeze.
        dataset: the data set.
        batch_size: elements of one micro-batch; None to take the elements of the data set as batches.
        shuffle: whether to permute at every epoch; with several processes ``options.randomSeed`` is needed.
        num_workers: processes that load.
        drop_last: leave out what does not fill the last batch (default True, unlike PyTorch).
        persistent_workers: keep the workers from epoch to epoch (default: when there are any).
        auto_distributed_partitioning: give each process its part of the data set.
        mode: whether to load in this process or ahead in another.
        async_options: further arguments of :class:`AsynchronousDataAccessor`.
        rebatched_worker_size: with ``AsyncRebatched``, the elements that a worker loads at a time.
        batch_sampler: gives the indices of each micro-batch, instead of ``batch_size`` and ``shuffle``.
        kwargs: further arguments of PyTorch's loader.
    """

    def __init__(
        self,
        options: Options,
        dataset: torch.utils.data.Dataset[Any],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        num_workers: int = 0,
        drop_last: bool = True,
        persistent_workers: bool | None = None,
        auto_distributed_partitioning: bool = True,
        mode: DataLoaderMode = DataLoaderMode.Sync,
        async_options: dict[str, Any] | None = None,
        rebatched_worker_size: int | None = None,
        batch_sampler: torch.utils.data.Sampler[Sequence[int]] | Iterable[Sequence[int]] | None = None,
        **kwargs: Any,
    ) -> None:
        member("DataLoader", options, Options)
        member("DataLoader", mode, DataLoaderMode)
        require(
            async_options is None or mode is not DataLoaderMode.Sync,
            "The async_options need mode=DataLoaderMode.Async or AsyncRebatched.",
        )
        require(
            rebatched_worker_size is None or mode is DataLoaderMode.AsyncRebatched,
            "The rebatched_worker_size needs mode=DataLoaderMode.AsyncRebatched.",
        )
        if batch_size is not None:
            whole_number("batch_size", batch_size)
        options._freeze()
        self._options = options
        self._accessor: AsynchronousDataAccessor | None = None
        per_call = micro_batches_per_call(options)
        self._combined_batch_size = None if batch_size is None else batch_size * per_call
        arguments: dict[str, Any] = {
            "dataset": dataset,
            "num_workers": num_workers,
            "persistent_workers": num_workers > 0 if persistent_workers is None else persistent_workers,
            **kwargs,
        }
        recipe = Recipe(arguments, drop_last=drop_last)
        if batch_sampler is not None:
            require(batch_size == 1 and not shuffle, "A batch_sampler excludes batch_size and shuffle.")
            arguments["batch_sampler"] = batch_sampler
            recipe.batches_per_call = per_call
            size = getattr(batch_sampler, "batch_size", None)
            self._combined_batch_size = size * per_call if isinstance(size, int) else None
        else:
            arguments |= {
                "batch_size": self._combined_batch_size,
                # Without batches there is no incomplete one: PyTorch refuses the combination.
                "drop_last": drop_last and batch_size is not None,
            }
            if shuffle is not None:
                arguments["shuffle"] = shuffle
            _check_sampler(arguments.get("sampler"), options)
            if auto_distributed_partitioning and options.Distributed.numProcesses > 1:
                self._partition(arguments)
            self._check_losses(arguments, batch_size, mode)
        self._recipe = recipe
        super().__init__(**arguments)
        if mode is DataLoaderMode.Sync:
            return
        if mode is DataLoaderMode.AsyncRebatched and batch_sampler is None and batch_size is not None:
            self._recipe = self._rebatched(recipe, rebatched_worker_size)
        self._accessor = AsynchronousDataAccessor(self, **(async_options or {}))
        # Not a strong reference: the loader would keep itself, and so the process, until a garbage collection.
        self._accessor._dataset = weakref.proxy(self)

    def _partition(self, arguments: dict[str, Any]) -> None:
        """Replace the order of the elements by this process's part of it."""
        dataset: Any = arguments["dataset"]
        distributed = self._options.Distributed
        require(
            not issubclass(type(dataset), torch.utils.data.IterableDataset) and arguments.get("sampler") is None,
            "An iterable data set, or one with a sampler, cannot be shared out among processes: share it out "
            "yourself and pass auto_distributed_partitioning=False.",
        )
        require(
            self._combined_batch_size is not None,
            "A data set without batch_size cannot be shared out among processes: pass "
            "auto_distributed_partitioning=False.",
        )
        shuffle = bool(arguments.pop("shuffle", False))
        seed = self._options.random_seed
        require(
            not shuffle or seed is not None,
            "Shuffling with several processes needs a seed that they share: set options.randomSeed.",
        )
        arguments["sampler"] = _batching.DistributedSampler(
            len(dataset),
            self._combined_batch_size or 1,
            distributed.processId,
            distributed.numProcesses,
            shuffle,
            seed or 0,
            arguments["drop_last"],
        )

    def _rebatched(self, recipe: Recipe, worker_size: int | None) -> Recipe:
        size = self._combined_batch_size
        require(
            worker_size is None or 1 <= worker_size <= (size or 1),
            f"The rebatched_worker_size is from 1 to the combined batch size of {size}, not {worker_size!r}.",
        )
        arguments = {**recipe.arguments, "batch_size": worker_size or size, "drop_last": False}
        return dataclasses.replace(recipe, arguments=arguments, rebatched_size=size)

    def _check_losses(self, arguments: dict[str, Any], batch_size: int | None, mode: DataLoaderMode) -> None:
        """Warn of what ``drop_last`` drops; an asynchronous loader that drops everything is an error."""
        dataset, size = arguments["dataset"], arguments["batch_size"]
        if not arguments["drop_last"] or isinstance(dataset, torch.utils.data.IterableDataset):
            return
        try:
            source: Any = arguments.get("sampler") or dataset
            length = len(source)
        except TypeError:
            return
        if length < size:
            what = f"{length} samples do not fill one batch of {_product(size, batch_size, self._options)}"
            if mode is not DataLoaderMode.Sync:
                raise Error(f"{what}: take a smaller one, or pass drop_last=False.")
            logger.warning("%s: with drop_last=True there is no batch.", what)
        elif length % size:
            # A few elements are what the default is known for; a good part of the data is worth a warning.
            logger.log(
                logging.WARNING if length % size >= NOTABLE_LOSS * length else logging.DEBUG,
                "drop_last=True drops %d of the %d elements at the end of each epoch: the combined batch size is %d.",
                length % size,
                length,
                size,
            )

    def __len__(self) -> int:
        batches = super().__len__()
        count = self._recipe.batches_per_call
        return batches // count if self._recipe.drop_last else -(-batches // count)

    @property
    def combinedBatchSize(self) -> int | None:
        """Elements of one call; None when the sizes are not known in advance."""
        return self._combined_batch_size

    @property
    def options(self) -> Options:
        """The options that the batch sizes follow."""
        return self._options

    def terminate(self) -> None:
        """Stop the process that loads ahead, if there is one; the loader cannot be used any more."""
        if self._accessor is not None:
            self._accessor.terminate()

    def __iter__(self) -> Any:
        if self._accessor is not None:
            return iter(self._accessor)
        if self._recipe.batches_per_call > 1:
            return _batching.combine(super().__iter__(), self._recipe.batches_per_call, self._recipe.drop_last)
        return super().__iter__()


def micro_batches_per_call(options: Options) -> int:
    """How many micro-batches one call of a model with these options takes."""
    return Batching.of(options).count


def _product(size: int, batch_size: int | None, options: Options) -> str:
    """The size of a batch with its factors, those above 1 alone."""
    factors = {
        "micro-batch": batch_size or 1,
        "accumulation": options.Training.gradient_accumulation,
        "replicas": options.replication_factor // options.input_group_size,
        "device iterations": options.device_iterations,
    }
    shown = [f"{name} {n}" for name, n in factors.items() if n > 1 or name == "micro-batch"]
    return f"{size} = {' × '.join(shown)}"


def _check_sampler(sampler: Any, options: Options) -> None:
    """Warn of a sampler that shares the data out among replicas, which one loader feeds together."""
    processes = options.Distributed.numProcesses
    if isinstance(sampler, torch.utils.data.DistributedSampler) and sampler.num_replicas != processes:
        logger.warning(
            "The sampler shares the data out among %d, but there %s: only every %dth sample is seen. A "
            "poptorch.DataLoader feeds all replicas of its process; leave the sampler out.",
            sampler.num_replicas,
            "is one process" if processes == 1 else f"are {processes} processes",
            sampler.num_replicas,
        )

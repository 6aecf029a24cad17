"""``poptorch.AsynchronousDataAccessor``: the elements of a data set, loaded ahead in another process."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch

from ._async_reader import WorkerHandle
from ._async_worker import Worker
from ._batching import Recipe
from ._errors import member, require
from .enums import SharingStrategy

_START_METHODS = {
    SharingStrategy.SharedMemory: "spawn",
    SharingStrategy.FileSystem: "spawn",
    SharingStrategy.Fork: "fork",
    SharingStrategy.ForkServer: "forkserver",
}


class AsynchronousDataAccessor:
    """Loads the elements of a data set ahead, in another process.

    The tensors that it gives are in shared memory and are overwritten later: clone what is to be kept beyond one
    step of the loop.

    Args:
        dataset: a data set, or a :class:`DataLoader`.
        buffer_size: how many elements may wait.
        miss_sleep_time_in_ms: how long to sleep when no element is ready before looking again.
        load_indefinitely: start over at the end of the data, so that one can iterate again.
        early_preload: load before an iterator is created.
        sharing_strategy: how the process is started; ``Fork`` needs no pickling of the data set. With ``FileSystem``
            torch leaves a small process of its own, which keeps shared files, until the program ends.
        rebatched_size: cut the batches of the data set into batches of this many elements.
    """

    def __init__(
        self,
        dataset: Any,
        buffer_size: int = 3,
        miss_sleep_time_in_ms: float = 0.1,
        load_indefinitely: bool = True,
        early_preload: bool = False,
        sharing_strategy: SharingStrategy = SharingStrategy.ForkServer,
        rebatched_size: int | None = None,
    ) -> None:
        require(isinstance(buffer_size, int) and buffer_size >= 1, f"Invalid buffer_size: {buffer_size!r}.")
        member("sharing_strategy", sharing_strategy, SharingStrategy)
        self._dataset = dataset
        self._rebatched_size = rebatched_size
        self._worker = WorkerHandle(
            Worker(
                make=_maker(dataset, rebatched_size),
                slots=buffer_size,
                pause=miss_sleep_time_in_ms / 1000,
                load_indefinitely=load_indefinitely,
                early_preload=early_preload,
                seed=int(torch.empty((), dtype=torch.int64).random_().item()),
                file_sharing=sharing_strategy is SharingStrategy.FileSystem,
            ),
            _START_METHODS[sharing_strategy],
        )

    def terminate(self) -> None:
        """Stop the process; the accessor cannot be used any more."""
        self._worker.stop()

    def __len__(self) -> int:
        if self._rebatched_size is None:
            return len(self._dataset)
        return len(self._dataset) // self._rebatched_size

    def __iter__(self) -> AsynchronousDataAccessor:
        self._worker.restart()
        return self

    def __next__(self) -> Any:
        return self._worker.next()


def _maker(dataset: Any, rebatched_size: int | None) -> Any:
    """A function without arguments, to be called in the worker, that gives what is iterated over."""
    recipe = getattr(dataset, "_recipe", None)
    if isinstance(recipe, Recipe):  # a DataLoader
        if rebatched_size is not None:
            recipe = dataclasses.replace(recipe, rebatched_size=rebatched_size)
        return recipe.make
    if rebatched_size is not None:
        return functools.partial(Recipe({}, rebatched_size=rebatched_size).over, dataset)
    return functools.partial(_identity, dataset)


def _identity(dataset: Any) -> Any:
    return dataset

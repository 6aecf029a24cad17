"""Forming the batches of a call from the batches that a loader gives, and sharing a data set among processes."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from ._errors import require
from ._structure import flatten, rebuild


def concatenate(batches: list[Any]) -> Any:
    """One batch from several of the same structure, joined along dimension 0."""
    if len(batches) == 1:
        return batches[0]
    columns = zip(*(flatten(b) for b in batches))
    return rebuild(batches[0], [torch.cat(c) for c in columns])


def combine(batches: Iterable[Any], count: int, drop_last: bool) -> Iterator[Any]:
    """Join every ``count`` successive batches; the last, incomplete group is dropped or joined as it is."""
    source = iter(batches)
    while group := list(itertools.islice(source, count)):
        if len(group) == count or not drop_last:
            yield concatenate(group)


def rebatch(batches: Iterable[Any], size: int, drop_last: bool) -> Iterator[Any]:
    """Cut batches of any sizes into batches of ``size`` elements, in the order in which they come.

    Args:
        batches: structures of tensors that share their first dimension.
        size: elements of each batch that comes out.
        drop_last: drop the incomplete batch at the end.
    """
    waiting: list[list[torch.Tensor]] = []
    rows = 0
    structure: Any = None
    for batch in batches:
        structure = batch
        tensors = flatten(batch)
        require(
            len({len(t) for t in tensors}) <= 1,
            "The tensors of a batch must have the same first dimension to be cut into batches of another size.",
        )
        waiting.append(tensors)
        rows += len(tensors[0])
        while rows >= size:
            joined = [torch.cat(c) for c in zip(*waiting)]
            yield rebuild(structure, [t[:size] for t in joined])
            rest = [t[size:] for t in joined]
            rows -= size
            waiting = [rest] if rows else []
    if rows and not drop_last:
        yield rebuild(structure, [torch.cat(c) for c in zip(*waiting)])


class DistributedSampler(torch.utils.data.Sampler[int]):
    """The indices of a data set that one of several processes works on.

    Without shuffling each process has a contiguous part. With shuffling all processes draw the same permutation
    anew for every epoch and each takes its part; the elements that an epoch leaves over come first in the next.

    Args:
        length: elements of the data set.
        step: elements of one call of one process; parts are multiples of it when ``drop_last``.
        process, processes: which process this is, and how many there are.
        shuffle: whether to permute.
        seed: the seed that all processes share.
        drop_last: leave over what does not fill a step on every process.
    """

    def __init__(
        self,
        length: int,
        step: int,
        process: int,
        processes: int,
        shuffle: bool,
        seed: int,
        drop_last: bool,
    ) -> None:
        self._length = length
        self._process, self._processes = process, processes
        self._shuffle, self._seed = shuffle, seed
        self._share = length // (step * processes) * step if drop_last else -(-length // processes)
        self._epoch = 0
        self._left_over: list[int] = []

    def __len__(self) -> int:
        start = min(self._process * self._share, self._length)
        return min(start + self._share, self._length) - start

    def __iter__(self) -> Iterator[int]:
        order = self._permutation() if self._shuffle else list(range(self._length))
        start = self._process * self._share
        return iter(order[start : start + self._share])

    def _permutation(self) -> list[int]:
        generator = torch.Generator().manual_seed(self._seed + self._epoch)
        self._epoch += 1
        first = set(self._left_over)
        drawn = torch.randperm(self._length, generator=generator).tolist()
        ordered = [*self._left_over, *(i for i in drawn if i not in first)]
        used = min(self._share * self._processes, self._length)
        self._left_over = ordered[used:]
        # Shuffled again, so that what was left over is not always the first process's share.
        return [ordered[i] for i in torch.randperm(used, generator=generator).tolist()]


@dataclasses.dataclass
class Recipe:
    """How to load: arguments of PyTorch's loader, and what is done with its batches."""

    arguments: dict[str, Any]
    batches_per_call: int = 1
    rebatched_size: int | None = None
    drop_last: bool = True

    def over(self, loader: Any) -> Any:
        """The batches of calls from the batches of ``loader``."""
        return _Batches(loader, self)

    def make(self) -> Any:
        """A new loader of batches of calls."""
        return self.over(torch.utils.data.DataLoader(**self.arguments))


class _Batches:
    """Iterates over a loader any number of times, forming the batches of calls."""

    def __init__(self, loader: Any, recipe: Recipe) -> None:
        self._loader, self._recipe = loader, recipe

    def __iter__(self) -> Iterator[Any]:
        recipe = self._recipe
        if recipe.rebatched_size is not None:
            return rebatch(self._loader, recipe.rebatched_size, recipe.drop_last)
        if recipe.batches_per_call > 1:
            return combine(self._loader, recipe.batches_per_call, recipe.drop_last)
        return iter(self._loader)

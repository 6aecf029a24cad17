"""Batches of as many graphs as fit, in the order in which a sampler gives them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sized
from typing import Any

from torch.utils.data import RandomSampler, Sampler, SequentialSampler

__all__ = ["StreamPackingSampler"]


class StreamPackingSampler(Sampler[list[int]]):
    """Gives the indices of batches that hold as many of the next graphs as fit.

    A graph that does not fit begins the next batch. A place that stays without a graph keeps a node and an edge free
    for the padding that will go there.

    Args:
        data_source: graphs.
        max_num_graphs: the most graphs of a batch.
        max_num_nodes, max_num_edges: the most nodes and edges of a batch; None: as many as the ``max_num_graphs``
            largest graphs could have.
        base_sampler: gives the order (default: that of the data).
        allow_skip_data: leave out a graph that is too large for an empty batch, which else is an error.

    Raises:
        ValueError: for sizes that no graph fits into, or an empty sampler.
        RuntimeError: while iterating, for a graph that is too large.
    """

    def __init__(
        self,
        data_source: Any,
        max_num_graphs: int,
        max_num_nodes: int | None = None,
        max_num_edges: int | None = None,
        base_sampler: Sampler[int] | Iterable[int] | None = None,
        allow_skip_data: bool = False,
    ) -> None:
        super().__init__()
        if isinstance(base_sampler, Sized) and not len(base_sampler):
            raise ValueError(f"The sampler {base_sampler} gives no index: its length must be greater than 0.")
        if max_num_graphs is None or max_num_graphs < 1:
            raise ValueError(f"Invalid max_num_graphs: at least 1 graph is needed, not {max_num_graphs}.")
        for name, size in (("max_num_nodes", max_num_nodes), ("max_num_edges", max_num_edges)):
            if size is not None and size < max_num_graphs:
                raise ValueError(f"Invalid {name}: {size} is less than one for each of the {max_num_graphs} graphs.")
        self.data_source = data_source
        self.max_num_graphs = max_num_graphs
        self.max_num_nodes = max_num_nodes or max(d.num_nodes for d in data_source) * max_num_graphs
        self.max_num_edges = max_num_edges or max(d.num_edges for d in data_source) * max_num_graphs
        self.base_sampler = SequentialSampler(data_source) if base_sampler is None else base_sampler
        self.allow_skip_data = allow_skip_data

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        nodes = edges = 0
        for index in self.base_sampler:
            data = self.data_source[index]
            if batch and not self._fits(len(batch) + 1, nodes + data.num_nodes, edges + data.num_edges):
                yield batch
                batch, nodes, edges = [], 0, 0
            if not batch and not self._fits(1, data.num_nodes, data.num_edges):
                if self.allow_skip_data:
                    continue
                raise RuntimeError(
                    f"Sample {index} with {data.num_nodes} nodes and {data.num_edges} edges is too large for a batch "
                    f"of {self.max_num_graphs} graphs, {self.max_num_nodes} nodes and {self.max_num_edges} edges, in "
                    "which each graph that is not there needs a node and an edge of padding. Make them more, or pass "
                    f"allow_skip_data=True to leave such samples out. The sample is {data}."
                )
            batch.append(index)
            nodes, edges = nodes + data.num_nodes, edges + data.num_edges
        if batch:
            yield batch

    def _fits(self, graphs: int, nodes: int, edges: int) -> bool:
        free = self.max_num_graphs - graphs
        return free >= 0 and self.max_num_nodes - nodes >= free and self.max_num_edges - edges >= free

    def __len__(self) -> int:
        if isinstance(self.base_sampler, RandomSampler):
            raise NotImplementedError(
                f"How many batches a {type(self).__name__} over a RandomSampler gives is not known before they are "
                "drawn, and differs from epoch to epoch: do not ask for the length."
            )
        return self._count

    @functools.cached_property
    def _count(self) -> int:
        return sum(1 for _ in self)

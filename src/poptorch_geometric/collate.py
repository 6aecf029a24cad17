"""Joining graphs into batches of fixed size, and batches into those of one call of a model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch_geometric.data import Batch, HeteroData
from torch_geometric.data.data import BaseData

from poptorch._batching import concatenate
from poptorch_geometric import types
from poptorch_geometric._trimming import trim_edges, trim_nodes
from poptorch_geometric.common import edge_stores, keys_of, node_stores, of_type
from poptorch_geometric.fixed_size_options import FixedSizeOptions
from poptorch_geometric.pyg_collate import Collater

__all__ = ["CombinedBatchingCollater", "FixedSizeCollater", "make_exclude_keys"]


def make_exclude_keys(include_keys: Sequence[str], data: BaseData) -> tuple[str, ...]:
    """Names of all attributes of a graph but these."""
    return tuple(set(keys_of(data)) - set(include_keys))


class FixedSizeCollater(Collater):
    """Joins graphs into a batch, and adds graphs of padding that bring it to its fixed numbers.

    Edges of padding join the first node of a graph of padding with itself, so that they reach no real node.

    Args:
        fixed_size_options: the numbers of nodes, edges and graphs, and the values of padding.
        add_masks_to_batch: add ``graphs_mask``, ``nodes_mask`` and ``edges_mask`` (the latter two by type for graphs
            with several types), which are True for what is real.
        trim_nodes, trim_edges: leave out nodes or edges, drawn at random, where the graphs have too many.
        follow_batch, exclude_keys: as of PyTorch Geometric's loader.

    Raises:
        RuntimeError: when called with more graphs, nodes or edges than there is room for.
    """

    def __init__(
        self,
        fixed_size_options: FixedSizeOptions,
        add_masks_to_batch: bool = False,
        trim_nodes: bool = False,
        trim_edges: bool = False,
        follow_batch: Sequence[str] | None = None,
        exclude_keys: Sequence[str] | None = None,
    ) -> None:
        super().__init__(follow_batch, exclude_keys)
        self.opts = fixed_size_options
        self.add_masks_to_batch = add_masks_to_batch
        self.trim_nodes = trim_nodes
        self.trim_edges = trim_edges

    def __call__(self, data_list: list[BaseData]) -> Batch:  # type: ignore[override]
        """The batch of these graphs, of which there is at least one."""
        if not isinstance(data_list, list):
            raise TypeError(f"Expected list, got {type(data_list).__name__}.")
        first, options = data_list[0], self.opts
        if any(type(d) is not type(first) for d in data_list):
            raise TypeError(
                f"The graphs of a batch are of one type, not {sorted({type(d).__name__ for d in data_list})}."
            )
        if isinstance(first, HeteroData):
            options.to_hetero(first.node_types, first.edge_types)
            self._check_types(first)
        padding = options.num_graphs - len(data_list)
        if padding < 0:
            raise RuntimeError(
                f"{len(data_list)} graphs do not fit into a batch of {options.num_graphs}, which with one for padding "
                f"needs num_graphs={len(data_list) + 1} in its fixed size options."
            )
        levels = self._levels(data_list)
        if self.trim_nodes:
            sizes = _one_less(options.num_nodes, len(data_list)) if padding else options.num_nodes
            data_list = _with_own(trim_nodes(data_list, sizes), data_list, levels)
        if self.trim_edges:
            data_list = _with_own(trim_edges(data_list, options.num_edges), data_list, levels)
        nodes = self._spare(data_list, "nodes", options.num_nodes)
        edges = self._spare(data_list, "edges", options.num_edges)
        if not padding and any((*nodes.values(), *edges.values())):
            raise RuntimeError(
                f"The {len(data_list)} graphs fill the batch of {options.num_graphs}, and there is no graph left for "
                f"the nodes and edges of padding that it also needs ({nodes} nodes, {edges} edges): batch one fewer."
            )
        batch = super().__call__([*data_list, *self._padding(data_list[0], padding, nodes, edges, levels)])
        if self.add_masks_to_batch:
            self._add_masks(batch, len(data_list), nodes, edges)
        return batch

    def _check_types(self, data: HeteroData) -> None:
        for what, kinds, sizes in (
            ("node", data.node_types, self.opts.num_nodes),
            ("edge", data.edge_types, self.opts.num_edges),
        ):
            missing = [k for k in kinds if isinstance(sizes, dict) and k not in sizes]
            if missing:
                raise AssertionError(
                    f"The fixed size options have no num_{what}s for the {what} type {missing[0]}, which the data has."
                )

    # The vendor's public tests call these two.
    def _prune_nodes(self, data_list: list[BaseData]) -> list[BaseData]:
        return trim_nodes(data_list, self.opts.num_nodes)

    def _prune_edges(self, data_list: list[BaseData]) -> list[BaseData]:
        return trim_edges(data_list, self.opts.num_edges)

    def _spare(self, graphs: list[BaseData], what: str, sizes: int | dict[Any, int]) -> dict[Any, int]:
        """How many nodes or edges of padding there are, by type."""
        spare = {}
        for kind, count in _counts(graphs, what).items():
            spare[kind] = of_type(sizes, kind) - count
            if spare[kind] < 0:
                name = what if kind is None else f"{kind} {what}"
                raise RuntimeError(
                    f"The fixed sizes given don't allocate enough space for the number of {name} of {len(graphs)} "
                    f"sample(s): there are {count} in a batch for {of_type(sizes, kind)}. Make num_{what} larger in "
                    f"the fixed size options, or set trim_{what} to leave {what} out (OverSizeStrategy.Trim… in a "
                    "loader)."
                )
        return spare

    def _padding(
        self, model: BaseData, count: int, nodes: dict[Any, int], edges: dict[Any, int], levels: dict[str, str]
    ) -> list[BaseData]:
        """Graphs of padding, with the spare nodes and edges shared out among them."""
        made = []
        shares = {kind: _shares(n, [True] * count) for kind, n in nodes.items()}
        places: dict[Any, list[int]] = {}
        for kind, n in edges.items():
            ends = (None, None) if kind is None else (kind[0], kind[-1])
            possible = [all(shares[end][i] for end in ends) for i in range(count)]
            if n and count and not any(possible):
                raise RuntimeError(
                    f"A batch needs {n} edges of padding{'' if kind is None else f' of type {kind}'}, and there is no "
                    "node of padding that they could join: make num_nodes larger by one in the fixed size options, or "
                    "trim nodes too."
                )
            places[kind] = _shares(n, possible)
        for i in range(count):
            one = {kind: share[i] for kind, share in shares.items()}
            made.append(self._one_of_padding(model, one, {k: p[i] for k, p in places.items()}, levels))
        return made

    def _levels(self, graphs: list[BaseData]) -> dict[str, str]:
        """For graphs of one type: which tensors are of nodes, of edges and of the graph.

        Sizes tell. An attribute is one of nodes when it is in every graph of the batch.

        Raises:
            ValueError: for one of the graph whose shape differs among graphs.
        """
        first: Any = graphs[0]
        if isinstance(first, HeteroData):
            return {}
        found = {}
        for key, value in first.to_dict().items():
            if not isinstance(value, torch.Tensor):
                continue
            every: list[Any] = list(graphs)
            if all(d.is_node_attr(key) for d in every):
                found[key] = "node"
            elif all(d.is_edge_attr(key) for d in every):
                found[key] = "edge"
            elif all(d[key].shape == value.shape for d in every):
                found[key] = "graph"
            elif value.dim() and all(d[key].shape[0] == d.num_nodes for d in every):
                found[key] = "node"
            else:
                raise ValueError(
                    f"The attribute {key!r} has different shapes in the graphs of a batch, {[*value.shape]} in the "
                    "first, and its sizes are not their numbers of nodes or of edges, nor 1: it cannot be padded."
                )
        return found

    def _one_of_padding(
        self, model: BaseData, nodes: dict[Any, int], edges: dict[Any, int], levels: dict[str, str]
    ) -> BaseData:
        made: Any = copy.copy(model)
        node_value, edge_value = self.opts.node_pad_value, self.opts.edge_pad_value

        def fill(store: Any, key: str, level: str, kind: Any) -> None:
            value = store[key]
            if not isinstance(value, torch.Tensor):
                if level == "graph":
                    store[key] = self.opts.pad_graph_defaults.get(key, value)
                return
            if level == "graph":
                store[key] = _full(value, value.shape, self.opts.graph_pad_value)
                return
            shape = list(value.shape)
            shape[made.__cat_dim__(key, value, store)] = (nodes if level == "node" else edges)[kind]
            zero = level == "edge" and "index" in key  # ends of edges: the first node of the graph
            store[key] = _full(
                value, shape, 0 if zero else _value(node_value if level == "node" else edge_value, kind, key)
            )

        if not isinstance(made, HeteroData):
            store = made._store
            for key in list(store.keys()):
                fill(store, key, levels.get(key, "graph"), None)
            store["num_nodes"] = nodes[None]
            return made
        for key in list(made._global_store.keys()):
            fill(made._global_store, key, "graph", None)
        for level, stores in (("node", node_stores(made)), ("edge", edge_stores(made))):
            for kind, store in stores.items():
                for key in list(store.keys()):
                    fill(store, key, level, kind)
                if "num_nodes" in store:
                    store["num_nodes"] = nodes[kind]
        return made

    def _add_masks(self, batch: Any, graphs: int, nodes: dict[Any, int], edges: dict[Any, int]) -> None:
        batch.graphs_mask = torch.arange(self.opts.num_graphs) < graphs
        for name, spare, sizes in (
            ("nodes_mask", nodes, self.opts.num_nodes),
            ("edges_mask", edges, self.opts.num_edges),
        ):
            for kind, padding in spare.items():
                size = of_type(sizes, kind)
                setattr(batch if kind is None else batch[kind], name, torch.arange(size) < size - padding)


class CombinedBatchingCollater:
    """Joins the graphs of one call of a model: micro-batches first, then their tensors along dimension 0.

    Args:
        collater: makes a micro-batch from its graphs.
        mini_batch_size: graphs of a micro-batch; None when each list is one micro-batch.
    """

    def __init__(self, collater: Callable[[list[Any]], Any], mini_batch_size: int | None = None) -> None:
        self.mini_batch_size = mini_batch_size
        self.collater = collater
        types.registerCustomArgParsers()

    def __call__(self, batch: list[Any]) -> Any:
        """The batch of one call; an AssertionError when the list does not divide into micro-batches."""
        size = self.mini_batch_size or len(batch)
        if len(batch) % size:
            raise AssertionError(f"Invalid batch size: {len(batch)} graphs do not divide into micro-batches of {size}.")
        return concatenate([self.collater(batch[i : i + size]) for i in range(0, len(batch), size)])


def _with_own(parts: Sequence[Any], graphs: Sequence[Any], levels: dict[str, str]) -> list[Any]:
    """Parts of graphs, with the whole attributes of the graphs: in one with a single edge they look like its own."""
    for part, graph in zip(parts, graphs, strict=True):
        for key, level in levels.items():
            if level == "graph":
                part[key] = graph[key]
    return list(parts)


def _counts(graphs: Sequence[BaseData], what: str) -> dict[Any, int]:
    stores = node_stores if what == "nodes" else edge_stores
    return {
        kind: sum(int(getattr(g if kind is None else g[kind], f"num_{what}") or 0) for g in graphs)  # type: ignore[index]
        for kind in stores(graphs[0])
    }


def _one_less(sizes: int | dict[Any, int], graphs: int) -> Any:
    """The numbers of nodes with one left for padding to join edges to, where each graph can keep a node besides."""
    if isinstance(sizes, dict):
        return {kind: n - (n > graphs) for kind, n in sizes.items()}
    return sizes - (sizes > graphs)


def _shares(amount: int, possible: Sequence[bool]) -> list[int]:
    """The amount in parts that differ by one at most, where a part is possible."""
    places = max(sum(possible), 1)
    parts = iter([amount // places + (i < amount % places) for i in range(places)])
    return [next(parts) if p else 0 for p in possible]


def _full(like: torch.Tensor, shape: Sequence[int], value: float) -> torch.Tensor:
    """A tensor of one value; masks of padding are False, whatever the value."""
    return like.new_full(tuple(shape), False if like.dtype is torch.bool else value)


def _value(padding: Any, kind: Any, key: str) -> float:
    """What to fill with: a number, or one of PyTorch Geometric's paddings, which know types and names."""
    return padding.get_value(kind, key) if hasattr(padding, "get_value") else padding

"""How large the batches of fixed size are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice, repeat
from typing import Any

from torch_geometric.data import HeteroData
from torch_geometric.data.data import BaseData

from poptorch_geometric.common import edge_stores, node_stores

__all__ = ["FixedSizeOptions"]


class FixedSizeOptions:
    """The numbers of nodes, edges and graphs that every batch has, padding included.

    At least one graph of a batch, and in it at least one node and one edge, are for padding.

    Args:
        num_nodes: nodes of a batch; for graphs with several types of nodes also a dictionary by type.
        num_edges: edges of a batch, or a dictionary by type; None for as many as join each node with each other.
        num_graphs: graphs of a batch, at least 2.
        node_pad_value, edge_pad_value, graph_pad_value: what features of padding are filled with (default 0).
        pad_graph_defaults: values of attributes that are no tensors in the graphs for padding, by name; those that
            are not named are taken from the first graph of the batch.

    Raises:
        ValueError: for fewer than two graphs.
    """

    def __init__(
        self,
        num_nodes: int | dict[str, int],
        num_edges: int | dict[tuple[str, str, str], int] | None = None,
        num_graphs: int = 2,
        node_pad_value: float | None = None,
        edge_pad_value: float | None = None,
        graph_pad_value: float | None = None,
        pad_graph_defaults: dict[str, Any] | None = None,
    ) -> None:
        _check_graphs(num_graphs)
        self.num_nodes = num_nodes
        nodes = _total(num_nodes)
        self.num_edges = num_edges or nodes * (nodes - 1)
        self.num_graphs = num_graphs
        self.node_pad_value = node_pad_value or 0.0
        self.edge_pad_value = edge_pad_value or 0.0
        self.graph_pad_value = graph_pad_value or 0.0
        self.pad_graph_defaults = pad_graph_defaults or {}

    def is_hetero(self) -> bool:
        """Whether each type of nodes and of edges has a number of its own."""
        return isinstance(self.num_nodes, dict) and isinstance(self.num_edges, dict)

    def to_hetero(self, node_types: Sequence[str], edge_types: Sequence[tuple[str, str, str]]) -> FixedSizeOptions:
        """Give each of these types the one number that was given for all; returns the options themselves."""
        if not isinstance(self.num_nodes, dict):
            self.num_nodes = dict.fromkeys(node_types, self.num_nodes)
        if not isinstance(self.num_edges, dict):
            self.num_edges = dict.fromkeys(edge_types, self.num_edges)
        return self

    @property
    def total_num_nodes(self) -> int:
        """Nodes of a batch, of all types together."""
        return _total(self.num_nodes)

    @property
    def total_num_edges(self) -> int:
        """Edges of a batch, of all types together."""
        return _total(self.num_edges)

    @classmethod
    def from_dataset(
        cls, dataset: Any, batch_size: int, sample_limit: int | None = None, progress_bar: bool | None = None
    ) -> FixedSizeOptions:
        """Sizes that any ``batch_size`` - 1 graphs of the data set fit into, with one graph for padding.

        Args:
            dataset: graphs.
            batch_size: graphs of a batch, that for padding included.
            sample_limit: look at no more graphs than this; None: all.
            progress_bar: accepted for programs that pass it; nothing is drawn.
        """
        _check_graphs(batch_size)
        nodes, edges, _ = _largest(dataset[i] for i in range(min(len(dataset), sample_limit or len(dataset))))
        room = batch_size - 1
        return cls(
            num_nodes=_scaled(nodes, room),
            num_edges=_scaled(edges, room),
            num_graphs=batch_size,
        )

    @classmethod
    def from_loader(cls, loader: Any, sample_limit: int = 1000) -> FixedSizeOptions:
        """Sizes that the batches of a loader fit into, as far as ``sample_limit`` of them show.

        A loader with fewer batches is read again: one that shuffles or samples gives others then.
        """
        nodes, edges, graphs = _largest(islice(chain.from_iterable(repeat(loader)), sample_limit))
        return cls(num_nodes=_scaled(nodes, 1), num_edges=_scaled(edges, 1), num_graphs=graphs + 1)

    def __repr__(self) -> str:
        reserved = " (At least one {} reserved for padding)"
        return (
            f"{type(self).__name__}(num_nodes={self.num_nodes}{reserved.format('node')}, "
            f"num_edges={self.num_edges}{reserved.format('edge')}, "
            f"num_graphs={self.num_graphs}{reserved.format('graph')}, "
            f"node_pad_value={self.node_pad_value}, edge_pad_value={self.edge_pad_value}, "
            f"graph_pad_value={self.graph_pad_value}, pad_graph_defaults={self.pad_graph_defaults})"
        )


def _check_graphs(count: int) -> None:
    if count < 2:
        raise ValueError(
            f"The number of graphs in the batch must be at least 2 and is {count}: one real graph and one for the "
            "padding that brings the batch to its fixed size."
        )


def _total(sizes: int | dict[Any, int]) -> int:
    return sum(sizes.values()) if isinstance(sizes, dict) else sizes


def _largest(graphs: Iterator[BaseData]) -> tuple[dict[Any, int], dict[Any, int], int]:
    """The most nodes and edges of each type (None: the only one), and the most graphs of a batch."""
    nodes: dict[Any, int] = {}
    edges: dict[Any, int] = {}
    count = 1
    for data in graphs:
        homogeneous = not isinstance(data, HeteroData)
        for kind, store in node_stores(data).items():
            nodes[kind] = max(nodes.get(kind, 0), (data if homogeneous else store).num_nodes or 0)
        for kind, store in edge_stores(data).items():
            edges[kind] = max(edges.get(kind, 0), (data if homogeneous else store).num_edges or 0)
        count = max(count, getattr(data, "num_graphs", 1))
    return nodes, edges, count


def _scaled(sizes: dict[Any, int], times: int) -> Any:
    """Room for ``times`` as many, and one for padding."""
    roomy = {kind: size * times + 1 for kind, size in sizes.items()}
    return roomy.get(None, roomy)

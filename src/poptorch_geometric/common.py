"""The types of batches, and one view of the stores of graphs with one kind and with several kinds of nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.data.data import BaseData

DataBatch = type(Batch(_base_cls=Data))
HeteroDataBatch = type(Batch(_base_cls=HeteroData))

R = TypeVar("R")


def call_once(function: Callable[..., R]) -> Callable[..., R | None]:
    """The function, which does its work at the first call and nothing later."""
    done = False

    def once(*args: Any, **kwargs: Any) -> R | None:
        nonlocal done
        if done:
            return None
        done = True
        return function(*args, **kwargs)

    return once


def keys_of(data: Any) -> list[str]:
    """Names of all attributes: a method in some releases of PyTorch Geometric, a property in others."""
    found = data.keys
    return list(found if isinstance(found, list) else found())


def node_stores(data: BaseData) -> dict[str | None, Any]:
    """The stores of nodes by type; a graph of one type has its only store under None."""
    return dict(data.node_items()) if isinstance(data, HeteroData) else {None: data._store}


def edge_stores(data: BaseData) -> dict[tuple[str, str, str] | None, Any]:
    """The stores of edges by type; a graph of one type has its only store under None."""
    return dict(data.edge_items()) if isinstance(data, HeteroData) else {None: data._store}


def of_type(sizes: int | dict[Any, int], kind: Any) -> int:
    """The size for a type of nodes or edges."""
    return sizes[kind] if isinstance(sizes, dict) else sizes

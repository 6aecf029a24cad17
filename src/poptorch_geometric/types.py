"""How graphs are taken apart into tensors, which is how they become arguments and results of a wrapped model."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch_geometric.data import Data, HeteroData

import poptorch
from poptorch_geometric.common import DataBatch, HeteroDataBatch, call_once

__all__ = ["PyGArgsParser", "registerCustomArgParsers"]


class PyGArgsParser(poptorch.ICustomArgParser):
    """Parser of ``Data``, ``HeteroData`` and batches of them.

    What is no tensor goes along unchanged. A batch that is put together from larger tensors (those of several
    micro-batches) keeps the numbers of nodes, edges and graphs of one micro-batch, which is what a model sees.
    """

    def yieldTensors(self, struct: Any) -> Iterator[torch.Tensor]:
        """Every tensor of the graph."""
        for _, _, tensor in _tensors(struct):
            yield tensor

    def reconstruct(self, original_structure: Any, tensor_iterator: Iterator[torch.Tensor]) -> Any:
        """A graph like the original with other tensors."""
        made = copy.copy(original_structure)
        larger = False
        for (_, key, old), (store, _, _) in zip(_tensors(original_structure), _tensors(made), strict=True):
            new = store[key] = next(tensor_iterator)
            larger |= bool(old.dim()) and new.shape[0] != old.shape[0]
        if larger and isinstance(original_structure, DataBatch | HeteroDataBatch):
            for one, store in zip(original_structure.node_stores, made.node_stores, strict=True):
                store["num_nodes"] = one.num_nodes
        return made


def _tensors(data: Any) -> Iterator[tuple[Any, str, torch.Tensor]]:
    """Store, name and tensor of everything in a graph that is one, by name within each store."""
    if not isinstance(data, Data | HeteroData):
        raise ValueError(f"Unsupported data type: {type(data)}")
    for store in data.stores:
        for key in sorted(map(str, store.keys())):
            if isinstance(store[key], torch.Tensor):
                yield store, key, store[key]


@call_once
def registerCustomArgParsers() -> None:
    """Let wrapped models take and return graphs. Importing the package does it."""
    for kind in (Data, HeteroData, DataBatch, HeteroDataBatch):
        poptorch.registerCustomArgParser(kind, PyGArgsParser())

"""An interface between a model and the padding of its data: how entries of padding are masked out."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["LayerMasker", "Masker", "NoMasker", "PreLayerMasker"]

Entries = torch.Tensor | tuple[torch.Tensor, ...]
Mask = torch.Tensor | None
Layer = Callable[..., Any]
DecoratedLayer = Callable[..., Any]


class Masker(abc.ABC):
    """Masks out what padding has added. A model calls it where padding must not count, a loader knows how.

    The methods run inside of the model, on the device.
    """

    @abc.abstractmethod
    def node_masker(self, node_entries: Entries, mask: Mask = None) -> Entries:
        """Entries of nodes, those of padding masked out."""

    @abc.abstractmethod
    def edge_masker(self, edge_entries: Entries, mask: Mask = None) -> Entries:
        """Entries of edges, those of padding masked out."""

    @abc.abstractmethod
    def graph_masker(self, graph_entries: Entries, mask: Mask = None) -> Entries:
        """Entries of graphs, those of padding masked out."""


class NoMasker(Masker):
    """Leaves everything as it is, for data without padding."""

    def node_masker(self, node_entries: Entries, mask: Mask = None) -> Entries:
        return node_entries

    def edge_masker(self, edge_entries: Entries, mask: Mask = None) -> Entries:
        return edge_entries

    def graph_masker(self, graph_entries: Entries, mask: Mask = None) -> Entries:
        return graph_entries


class LayerMasker(abc.ABC):
    """Makes layers that mask their arguments, so that a model need not say it at every call.

    Args:
        masker: masks the arguments, all of which are of nodes, of edges or of graphs.
    """

    def __init__(self, masker: Masker) -> None:
        super().__init__()
        self.masker = masker

    @abc.abstractmethod
    def node_masker(self, layer: Layer) -> DecoratedLayer:
        """The layer on masked entries of nodes; it takes the mask as ``mask=``."""
        return _masked(layer, self.masker.node_masker)

    @abc.abstractmethod
    def edge_masker(self, layer: Layer) -> DecoratedLayer:
        """The layer on masked entries of edges; it takes the mask as ``mask=``."""
        return _masked(layer, self.masker.edge_masker)

    @abc.abstractmethod
    def graph_masker(self, layer: Layer) -> DecoratedLayer:
        """The layer on masked entries of graphs; it takes the mask as ``mask=``."""
        return _masked(layer, self.masker.graph_masker)


class PreLayerMasker(LayerMasker):
    """Masks the arguments before the layer."""

    def node_masker(self, layer: Layer) -> DecoratedLayer:
        return super().node_masker(layer)

    def edge_masker(self, layer: Layer) -> DecoratedLayer:
        return super().edge_masker(layer)

    def graph_masker(self, layer: Layer) -> DecoratedLayer:
        return super().graph_masker(layer)


def _masked(layer: Layer, masker: Callable[..., Entries]) -> DecoratedLayer:
    def masked_layer(*args: torch.Tensor, mask: Mask = None) -> Any:
        return layer(*masker(args, mask=mask))

    return masked_layer

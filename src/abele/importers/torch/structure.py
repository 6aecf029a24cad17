"""Nested Python data with tensors in it: taken apart into leaves and put together again.

Knows tuples, lists, dicts, named tuples, dataclasses (also those that are mappings, as model outputs are) and
every type that torch's own registry knows. Whatever is none of these and no tensor is kept as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils import _pytree


@dataclasses.dataclass(frozen=True)
class Leaf:
    """A tensor: its number in the list of leaves, and its path (``hidden.0``; empty for a lone tensor)."""

    index: int
    path: str


@dataclasses.dataclass(frozen=True)
class Constant:
    """A value that is no tensor; it is frozen when a program is captured."""

    value: Any


@dataclasses.dataclass(frozen=True)
class Node:
    """A container: its type, the names of its items and the items. ``build`` makes one from a list of items."""

    type: type
    keys: tuple[Any, ...]
    items: tuple[Structure, ...]
    build: Callable[[list[Any]], Any] = dataclasses.field(compare=False)


Structure = Leaf | Constant | Node


def flatten(data: Any, path: str = "") -> tuple[list[torch.Tensor], Structure]:
    """The tensors in ``data``, in order, and its structure. ``path`` is put before the path of every leaf."""
    leaves: list[torch.Tensor] = []
    return leaves, _take_apart(data, path, leaves)


def unflatten(structure: Structure, leaves: list[Any]) -> Any:
    """Data of this structure with ``leaves`` in the place of its tensors."""
    if isinstance(structure, Leaf):
        return leaves[structure.index]
    if isinstance(structure, Constant):
        return structure.value
    return structure.build([unflatten(item, leaves) for item in structure.items])


def paths(structure: Structure) -> list[str]:
    """The path of every leaf, in order."""
    return [leaf.path for leaf in _leaves(structure)]


def constants(structure: Structure) -> Iterator[Any]:
    """Everything in it that is no tensor."""
    if isinstance(structure, Constant):
        yield structure.value
    elif isinstance(structure, Node):
        for item in structure.items:
            yield from constants(item)


def _leaves(structure: Structure) -> Iterator[Leaf]:
    if isinstance(structure, Leaf):
        yield structure
    elif isinstance(structure, Node):
        for item in structure.items:
            yield from _leaves(item)


def _take_apart(data: Any, path: str, leaves: list[torch.Tensor]) -> Structure:
    if isinstance(data, torch.Tensor):
        leaves.append(data)
        return Leaf(len(leaves) - 1, path)
    found = _container(data)
    if found is None:
        return Constant(data)
    keys, values, build = found
    items = tuple(_take_apart(v, f"{path}.{k}" if path else str(k), leaves) for k, v in zip(keys, values, strict=True))
    return Node(type(data), tuple(keys), items, build)


def _container(data: Any) -> tuple[list[Any], list[Any], Callable[[list[Any]], Any]] | None:
    kind = type(data)
    if isinstance(data, tuple) and hasattr(kind, "_fields"):
        return list(kind._fields), list(data), lambda items: kind(*items)
    if kind in (tuple, list, torch.Size):
        return list(range(len(data))), list(data), kind
    if dataclasses.is_dataclass(data) and isinstance(data, Mapping):
        # A model output: a mapping of those of its fields that are set.
        keys = [str(key) for key in data]
        return keys, [data[key] for key in keys], lambda items: kind(**dict(zip(keys, items, strict=True)))
    if isinstance(data, dict):
        keys = list(data)
        return keys, list(data.values()), lambda items: _mapping(kind, keys, items)
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        names = [f.name for f in dataclasses.fields(data)]
        return names, [getattr(data, n) for n in names], lambda items: _record(data, names, items)
    if kind in _pytree.SUPPORTED_NODES:
        registered = _pytree.SUPPORTED_NODES[kind]
        values, context = registered.flatten_fn(data)
        values = list(values)
        return list(range(len(values))), values, lambda items: registered.unflatten_fn(items, context)
    return None


def _mapping(kind: type, keys: list[Any], items: list[Any]) -> Any:
    made = dict(zip(keys, items, strict=True))
    return made if kind is dict else kind(made)


def _record(data: Any, names: list[str], items: list[Any]) -> Any:
    # Not dataclasses.replace: fields may not be arguments of __init__, and __post_init__ has run already.
    made = object.__new__(type(data))
    for name, item in zip(names, items, strict=True):
        object.__setattr__(made, name, item)
    return made

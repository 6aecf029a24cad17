"""Tensors inside tuples, lists, dictionaries and the user's own types."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from ._errors import require


class ICustomArgParser(abc.ABC):
    """Teaches PopTorch a type of the user's that holds tensors.

    Register an instance with :func:`registerCustomArgParser`.
    """

    @abc.abstractmethod
    def yieldTensors(self, struct: Any) -> Iterator[torch.Tensor]:
        """Yield every tensor of ``struct``, always in the same order."""

    @abc.abstractmethod
    def reconstruct(self, original_structure: Any, tensor_iterator: Iterator[torch.Tensor]) -> Any:
        """A new object like ``original_structure`` with the tensors that the iterator gives, in that order."""


_parsers: dict[type, ICustomArgParser] = {}


def registerCustomArgParser(arg_data_type: type, arg_parser: ICustomArgParser | None) -> None:
    """Use ``arg_parser`` for arguments and results of type ``arg_data_type``; None forgets the type."""
    require(isinstance(arg_data_type, type), f"A type is needed, not {arg_data_type!r}.")
    if arg_parser is None:
        _parsers.pop(arg_data_type, None)
        return
    require(isinstance(arg_parser, ICustomArgParser), "The parser is a poptorch.ICustomArgParser.")
    _parsers[arg_data_type] = arg_parser


def has_parser(kind: type) -> bool:
    """Whether a parser is registered for a type or for one that it derives from."""
    return any(t in _parsers for t in kind.__mro__)


def custom_parser(value: Any) -> ICustomArgParser | None:
    """The parser for ``value``: that of its type, or of the nearest type it derives from."""
    return next((_parsers[t] for t in type(value).__mro__ if t in _parsers), None)


def map_tensors(structure: Any, function: Callable[[torch.Tensor], Any]) -> Any:
    """The structure with ``function`` applied to each tensor; everything else stays as it is."""
    if isinstance(structure, torch.Tensor):
        return function(structure)
    parser = custom_parser(structure)
    if parser is not None:
        return parser.reconstruct(structure, iter([function(t) for t in parser.yieldTensors(structure)]))
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return type(structure)(*[map_tensors(v, function) for v in structure])
    if isinstance(structure, (tuple, list)):
        return type(structure)([map_tensors(v, function) for v in structure])
    if isinstance(structure, dict):
        mapped = {k: map_tensors(v, function) for k, v in structure.items()}
        return mapped if type(structure) is dict else _like_dictionary(structure, mapped)
    return structure


def _like_dictionary(original: dict[Any, Any], values: dict[Any, Any]) -> Any:
    """A dictionary of the type of ``original`` (ordered, a model's output) with other values."""
    if dataclasses.is_dataclass(original):
        fields = {f.name for f in dataclasses.fields(original)}
        return type(original)(**{k: v for k, v in values.items() if k in fields})
    copy = original.copy()
    copy.update(values)
    return copy


def _walk(structure: Any) -> Iterator[tuple[bool, Any]]:
    """Each leaf of a structure, and whether it is a tensor; of the user's own types the tensors only."""
    parser = None if isinstance(structure, torch.Tensor) else custom_parser(structure)
    if isinstance(structure, torch.Tensor):
        yield True, structure
    elif parser is not None:
        yield from ((True, t) for t in parser.yieldTensors(structure))
    elif isinstance(structure, (tuple, list)):
        for value in structure:
            yield from _walk(value)
    elif isinstance(structure, dict):
        for value in structure.values():
            yield from _walk(value)
    else:
        yield False, structure


def flatten(structure: Any) -> list[torch.Tensor]:
    """All tensors of a structure, in the order in which :func:`rebuild` takes them."""
    return [leaf for is_tensor, leaf in _walk(structure) if is_tensor]


def constants(structure: Any) -> list[Any]:
    """All leaves of a structure that are not tensors, in order."""
    return [leaf for is_tensor, leaf in _walk(structure) if not is_tensor]


def rebuild(structure: Any, tensors: Iterable[torch.Tensor]) -> Any:
    """The structure with its tensors replaced, in order."""
    source = iter(tensors)
    return map_tensors(structure, lambda _: next(source))

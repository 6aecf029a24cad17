"""The arguments of a call: bound to the model's signature, compared with the compiled ones, cut into micro-batches."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree

from abele.importers.torch import structure as tree
from abele.importers.torch.dtypes import to_numpy

from . import _structure
from ._errors import Error, require
from ._logging import logger
from .enums import CommGroupType
from .options import Options

_AGAIN = "The model was compiled for the expected one: call destroy() on it and try again to compile it anew."


_known_types: set[type] = set()


def know_custom_types(values: Iterable[Any] = ()) -> None:
    """Let Abele take apart the types for which a parser is registered, and what of ``values`` derives from them."""
    kinds = [type(v) for v in values if type(v) not in _known_types]
    if any(kind.__module__.partition(".")[0] == "torch_geometric" for kind in kinds):
        importlib.import_module("poptorch_geometric")  # registers the parser of its types
    for kind in (*_structure._parsers, *kinds):
        if kind in _known_types or kind in _pytree.SUPPORTED_NODES or not _structure.has_parser(kind):
            continue
        _known_types.add(kind)

        def apart(value: Any) -> tuple[list[Any], Any]:
            parser = _structure.custom_parser(value)
            return ([], value) if parser is None else (list(parser.yieldTensors(value)), value)

        def together(tensors: Iterable[Any], original: Any) -> Any:
            parser = _structure.custom_parser(original)
            return original if parser is None else parser.reconstruct(original, iter(tensors))

        _pytree.register_pytree_node(kind, apart, together)


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of a model's ``forward``.

    Attributes:
        leaves: its tensors, without gradients.
        structure: of ``(args, kwargs)`` as the signature has them, defaults filled in: two calls that say the same are
            equal here.
        spelled: the same tensors as the call was written. ``forward`` is called so, for what decorators and hooks
            around it see depends on what is given by name.
    """

    leaves: list[torch.Tensor]
    structure: tree.Structure
    spelled: tree.Structure

    @classmethod
    def of(cls, model: torch.nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> Call:
        """This call.

        Raises:
            Error: when a parameter without a default is missing.
            TypeError: when there are arguments that the signature does not take.
        """
        know_custom_types((*args, *kwargs.values()))
        try:
            signature = inspect.signature(model.forward)
        except (TypeError, ValueError):
            leaves, structure = tree.flatten((tuple(args), dict(kwargs)))
            return cls(_detached(leaves), structure, structure)
        bound = signature.bind_partial(*args, **kwargs)
        for name, parameter in signature.parameters.items():
            optional = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            if not optional and parameter.default is parameter.empty and name not in bound.arguments:
                raise Error(f"Mandatory parameter {name} missing: the model's forward takes {signature}.")
        bound.apply_defaults()
        leaves, structure = tree.flatten((bound.args, bound.kwargs))
        by_place = max(len(args), sum(p.kind is p.POSITIONAL_ONLY for p in signature.parameters.values()))
        by_name = dict(zip(list(signature.parameters)[by_place:], bound.args[by_place:], strict=False)) | bound.kwargs
        # A default that holds tensors is an input too, and has to be said.
        by_name = {k: v for k, v in by_name.items() if k in kwargs or tree.flatten(v)[0]}
        return cls(_detached(leaves), structure, tree.flatten((bound.args[:by_place], by_name))[1])


def _detached(leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors without gradients: none flows back through a compiled model."""
    if not any(t.requires_grad for t in leaves):
        return leaves
    logger.warning(
        "Input tensor has requires_grad=True set. This tensor will be detached because backward pass via inputs is "
        "not supported."
    )
    return [t.detach() for t in leaves]


@dataclasses.dataclass(frozen=True)
class Batching:
    """How a call is cut: device iterations, accumulation steps, replicas, and replicas that share an input."""

    iterations: int
    accumulation: int
    replicas: int
    group_size: int = 1
    group_type: CommGroupType = CommGroupType.NoGrouping

    @classmethod
    def of(cls, options: Options) -> Batching:
        """What the options say.

        Raises:
            AssertionError: the groups of replicas are not all of one size.
        """
        require(
            options.replication_factor % options.input_group_size == 0,
            f"The replication factor {options.replication_factor} is not a multiple of the input group size "
            f"{options.input_group_size}.",
        )
        return cls(
            options.device_iterations,
            options.Training.gradient_accumulation,
            options.replication_factor,
            options.input_group_size,
            options.input_group_type,
        )

    @property
    def groups(self) -> int:
        """Different inputs at a time."""
        return self.replicas // self.group_size

    @property
    def count(self) -> int:
        """Micro-batches in one call."""
        return self.iterations * self.accumulation * self.groups

    def micro(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """The first micro-batch of an input."""
        length = tensor.shape[0] if tensor.dim() else 1
        require(
            length % self.count == 0,
            f"Invalid batch dimension: in the input {name}, dimension 0 is {length}, which is not a multiple of "
            f"{self.count} = {self.iterations} (deviceIterations) × {self.groups} (replicationFactor ÷ input group "
            f"size) × {self.accumulation} (gradientAccumulation). Every call takes that many micro-batches.",
        )
        return tensor.narrow(0, 0, length // self.count) if tensor.dim() else tensor

    def stream(self, tensor: torch.Tensor, runs: int, name: str = "") -> np.ndarray:
        """An input as the engine takes it: ``[runs, turns, replicas, *micro-batch]``.

        The leading dimension of the tensor is [iteration][accumulation][replica][micro-batch].
        """
        array = to_numpy(tensor, name)
        if array.ndim:
            turns = self.count // (runs * self.groups)
            array = array.reshape(runs, turns, self.groups, array.shape[0] // self.count, *array.shape[1:])
        else:
            array = array.reshape(1, 1, 1)
        return array if self.group_size == 1 else np.take(array, self._sources(), axis=2)

    def _sources(self) -> list[int]:
        """For each replica the input that it gets."""
        if self.group_type is CommGroupType.Orthogonal:
            return [r % self.groups for r in range(self.replicas)]
        return [r // self.group_size for r in range(self.replicas)]

    def first_of_groups(self) -> list[int]:
        """For each input the first replica that got it."""
        sources = self._sources() if self.group_size > 1 else list(range(self.replicas))
        return [sources.index(g) for g in range(self.groups)]


@dataclasses.dataclass(frozen=True)
class Expected:
    """The arguments that a model was compiled for.

    Attributes:
        structure, spelled: as in :class:`Call`.
        shapes, dtypes: of each tensor of a whole call.
        names: of the positional arguments.
    """

    structure: tree.Structure
    spelled: tree.Structure
    shapes: tuple[torch.Size, ...]
    dtypes: tuple[torch.dtype, ...]
    names: tuple[str, ...]

    @classmethod
    def of(cls, model: torch.nn.Module, call: Call) -> Expected:
        """Those of this call."""
        assert isinstance(call.structure, tree.Node) and isinstance(call.structure.items[0], tree.Node)
        shapes, dtypes = tuple(t.shape for t in call.leaves), tuple(t.dtype for t in call.leaves)
        return cls(call.structure, call.spelled, shapes, dtypes, _names(model, len(call.structure.items[0].items)))

    def leaf_names(self) -> list[str]:
        """What to call each tensor in messages."""
        found = []
        for path in tree.paths(self.structure):
            kind, head, *rest = path.split(".")
            found.append(".".join([self.names[int(head)] if kind == "0" else head, *rest]))
        return found

    def match(self, call: Call) -> list[torch.Tensor]:
        """The tensors of a later call, in the order of the first.

        Raises:
            Error: when the call differs in structure, shapes, types or values that are not tensors.
        """
        given = call.structure
        assert isinstance(self.structure, tree.Node) and isinstance(given, tree.Node)
        positional, keyword = self.structure.items
        now_positional, now_keyword = given.items
        assert isinstance(positional, tree.Node) and isinstance(now_positional, tree.Node)
        if len(positional.items) != len(now_positional.items):
            raise Error(
                f"Number of positional arguments mismatch: expected {len(positional.items)} arguments but got "
                f"{len(now_positional.items)}. {_AGAIN}"
            )
        found: list[torch.Tensor] = []
        for name, a, b in zip(self.names, positional.items, now_positional.items, strict=True):
            self._match(a, b, name, call.leaves, found)
        self._match(keyword, now_keyword, "", call.leaves, found)
        return found

    def _match(
        self,
        expected: tree.Structure,
        given: tree.Structure,
        name: str,
        leaves: list[torch.Tensor],
        found: list[torch.Tensor],
    ) -> None:
        if isinstance(expected, tree.Leaf):
            if not isinstance(given, tree.Leaf):
                raise Error(f"Type mismatch for {name}: expected {torch.Tensor} but got {_kind(given)}. {_AGAIN}")
            tensor, shape, dtype = leaves[given.index], self.shapes[expected.index], self.dtypes[expected.index]
            if tensor.dtype != dtype:
                raise Error(f"Type mismatch for {name}: expected {dtype} but got {tensor.dtype}. {_AGAIN}")
            if tensor.shape != shape:
                raise Error(f"Shape mismatch for {name}: expected {shape} but got {tensor.shape}. {_AGAIN}")
            found.append(tensor)
        elif isinstance(expected, tree.Constant):
            self._match_constant(expected, given, name)
        else:
            self._match_node(expected, given, name, leaves, found)

    def _match_constant(self, expected: tree.Constant, given: tree.Structure, name: str) -> None:
        if not isinstance(given, tree.Constant):
            raise Error(f"Type mismatch for {name}: expected {_kind(expected)} but got {_kind(given)}. {_AGAIN}")
        if type(expected.value) is not type(given.value):
            raise Error(f"Type mismatch for {name}: expected {_kind(expected)} but got {_kind(given)}. {_AGAIN}")
        if not _same(expected.value, given.value):
            raise Error(f"Value mismatch for {name}: expected {expected.value} but got {given.value}. {_AGAIN}")

    def _match_node(
        self, expected: tree.Node, given: tree.Structure, name: str, leaves: list[torch.Tensor], found: list
    ) -> None:
        if not isinstance(given, tree.Node) or given.type is not expected.type:
            raise Error(f"Type mismatch for {name}: expected {expected.type} but got {_kind(given)}. {_AGAIN}")
        missing = [str(k) for k in expected.keys if k not in given.keys]
        extra = [str(k) for k in given.keys if k not in expected.keys]
        where = f" in {name}" if name else ""
        if missing:
            raise Error(f"Missing arguments: {', '.join(missing)}.{where} {_AGAIN}")
        if extra:
            raise Error(f"Unexpected arguments: {', '.join(extra)}.{where} {_AGAIN}")
        items = dict(zip(given.keys, given.items, strict=True))
        for key, item in zip(expected.keys, expected.items, strict=True):
            self._match(item, items[key], f"{name}[{key!r}]" if name else str(key), leaves, found)


def _same(one: Any, other: Any) -> bool:
    """Whether two values that are not tensors are equal, those of arrays all together; NaN is itself."""
    if one is other:
        return True
    equal = one == other
    if not isinstance(equal, bool):
        return bool(np.array_equal(one, other)) if isinstance(one, np.ndarray) else bool(equal)
    return equal or (one != one and other != other)


def _kind(structure: tree.Structure) -> type:
    if isinstance(structure, tree.Leaf):
        return torch.Tensor
    return type(structure.value) if isinstance(structure, tree.Constant) else structure.type


def _names(model: torch.nn.Module, count: int) -> tuple[str, ...]:
    """Names of the first positional arguments; those beyond the named parameters have a number."""
    try:
        parameters = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    return tuple(named[i] if i < len(named) else f"{rest}[{i - len(named)}]" for i in range(count))

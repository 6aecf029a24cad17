"""Which value every torch tensor stands for: storages, the views of them, and what was written to either.

A tensor is known by its *place*: storage, offset, shape, strides and type. A place is either a root, which holds
the current value of a storage, or a view, which knows how to read itself from another place and how to write
itself back to it. Writing to any view changes the root; every other view then reads itself anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from abele.errors import Unsupported
from abele.importers.torch.table import Read, Write
from abele.ir import Value

if TYPE_CHECKING:
    from abele.importers.torch.emitter import Emitter

Place = tuple[int, int, tuple[int, ...], tuple[int, ...], torch.dtype]


def place_of(tensor: torch.Tensor) -> Place:
    """The place of a tensor."""
    storage = tensor.untyped_storage()._cdata
    return (storage, int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride(), tensor.dtype)


@dataclass(slots=True)
class Root:
    """A storage's value now. ``make`` gives the first one, when it is first read."""

    make: Callable[[], Value]
    value: Value | None = None
    version: int = 0


@dataclass(slots=True)
class View:
    """A view of ``parent``; ``value`` is what it read when the root had ``version``. ``root`` is found when needed."""

    parent: Place
    root: Root | None
    read: Read
    write: Write
    value: Value | None = None
    version: int = -1


@dataclass
class Storages:
    """All places that stand for values of the graph."""

    emitter: Emitter
    roots: dict[Place, Root] = field(default_factory=dict)
    views: dict[Place, View] = field(default_factory=dict)
    main: dict[int, Place] = field(default_factory=dict)
    _kept: list[torch.UntypedStorage] = field(default_factory=list)

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's storage stands for a value of the graph."""
        return tensor.untyped_storage()._cdata in self.main

    def add_root(self, tensor: torch.Tensor, make: Callable[[], Value]) -> Root:
        """From now on the tensor stands for the value that ``make`` gives when it is first read."""
        place = place_of(tensor)
        root = Root(make)
        self.roots[place] = root
        if place[0] not in self.main:
            self.main[place[0]] = place
            self._kept.append(tensor.untyped_storage())  # or its address might be given to another
        return root

    def set(self, tensor: torch.Tensor, value: Value) -> None:
        """From now on the tensor, which has a storage of its own, stands for this value."""
        self.add_root(tensor, lambda: value).value = value

    def add_view(self, result: torch.Tensor, parent: torch.Tensor, read: Read, write: Write) -> None:
        """``result`` is a view of ``parent``. A place that is known already stays as it is."""
        place, above = place_of(result), place_of(parent)
        if place in self.roots or place in self.views:
            return
        if place[0] not in self.main:
            self.main[place[0]] = place
            self._kept.append(result.untyped_storage())
        self.views[place] = View(above, self._root(above), read, write)

    def remember_view(self, place: Place, parent: Place, read: Read, write: Write) -> None:
        """``place`` views ``parent``, a tensor that stands for no value yet."""
        self.views[place] = View(parent, None, read, write)

    def read(self, tensor: torch.Tensor) -> Value:
        """The value that the tensor has now."""
        return self._read(place_of(tensor))

    def write(self, tensor: torch.Tensor, value: Value) -> None:
        """The tensor's elements become ``value``, for every tensor that shares them."""
        self._write(place_of(tensor), value)

    def whole(self, tensor: torch.Tensor) -> Value:
        """The value now of the whole storage of which the tensor shows elements."""
        root = self._root(place_of(tensor))
        if root.value is None:
            root.value = root.make()
        return root.value

    def exchange(self, tensor: torch.Tensor, value: Value) -> None:
        """The whole storage of which the tensor shows elements stands for this value instead."""
        root = self._root(place_of(tensor))
        root.value = value
        root.version += 1

    def root_of(self, tensor: torch.Tensor) -> Root:
        """The root that holds the tensor's elements."""
        return self._root(place_of(tensor))

    def versions(self) -> dict[Place, int]:
        """How often each root was written."""
        return {place: root.version for place, root in self.roots.items()}

    def forget(self, values: Set[Value], roots: Mapping[Place, int]) -> bool:
        """Let no tensor stand for one of ``values`` any more; it is read anew.

        Args:
            values: what is not there any more.
            roots: the version of each root before these values were made; younger roots stay as they are.

        Returns:
            False when one of these roots was written since.
        """
        for view in self.views.values():
            if view.value in values:
                view.value = None
        for place, version in roots.items():
            root = self.roots[place]
            if root.version != version:
                return False
            if root.value in values:
                root.value = None
        return True

    def _root(self, place: Place) -> Root:
        if place in self.roots:
            return self.roots[place]
        view = self._view(place)
        if view.root is None:
            view.root = self._root(view.parent)
        return view.root

    def _view(self, place: Place) -> View:
        if place not in self.views:
            # A view that torch made without telling: find its elements by their positions in the storage.
            main = self.main[place[0]]
            self.views[place] = View(main, self._root(main), *positions_view(main, place))
        return self.views[place]

    def _read(self, place: Place) -> Value:
        root = self.roots.get(place)
        if root is not None:
            if root.value is None:
                root.value = root.make()
            return root.value
        view = self._view(place)
        version = self._root(place).version
        if view.value is None or view.version != version:
            view.value = view.read(self.emitter, self._read(view.parent))
            view.version = version
        return view.value

    def _write(self, place: Place, value: Value) -> None:
        root = self.roots.get(place)
        if root is not None:
            root.value = value
            root.version += 1
            return
        view = self._view(place)
        self._write(view.parent, view.write(self.emitter, self._read(view.parent), value))
        view.value, view.version = value, self._root(place).version


def positions_view(parent: Place, place: Place) -> tuple[Read, Write]:
    """Read and write of any view of a root, element by element through positions in their common storage."""
    base = _positions(parent)
    found: dict[int, int] = {int(p): i for i, p in enumerate(base.reshape(-1))}
    asked = _positions(place).reshape(-1)
    if any(int(p) not in found for p in asked):
        raise Unsupported(
            f"A view of shape {list(place[2])} reaches elements of its storage that its operand does not show",
            remedy="Take the view of the whole tensor, or write it with slices, transposes and reshapes.",
        )
    wanted = np.array([found[int(p)] for p in asked], dtype=np.int32)
    return selection_view(wanted, parent[2], place[2])


def selection_view(wanted: np.ndarray, above: tuple[int, ...], shape: tuple[int, ...]) -> tuple[Read, Write]:
    """Read and write of a view whose elements are those with the numbers ``wanted`` (row-major) of its parent."""
    size = int(np.prod(above, dtype=np.int64))

    def read(e: Emitter, x: Value) -> Value:
        flat = e.reshape(x, (size,))
        return e.reshape(e.emit("gather", flat, e.constant(wanted), axis=0), shape)

    def write(e: Emitter, x: Value, new: Value) -> Value:
        source = np.arange(size, dtype=np.int32)
        source[wanted] = size + np.arange(wanted.size, dtype=np.int32)
        both = e.concat([e.reshape(x, (size,)), e.reshape(new, (wanted.size,))], 0)
        return e.reshape(e.emit("gather", both, e.constant(source), axis=0), above)

    return read, write


def _positions(place: Place) -> np.ndarray:
    _, offset, shape, strides, _ = place
    total = np.full(shape, offset, dtype=np.int64)
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        steps = np.arange(size, dtype=np.int64) * stride
        total += steps.reshape((size,) + (1,) * (len(shape) - axis - 1))
    return total

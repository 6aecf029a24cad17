"""The user's parameters and buffers, kept up to date with those that training changes on the device.

A compiled program has weights of its own. Those of the user's module are brought up to date when something looks at
them after a training call, not before: until the program is destroyed they are of a class that asks first. Pickles,
copies and ``state_dict`` hold ordinary tensors and the user's own class.
"""

from __future__ import annotations

import contextlib
import copy
import copyreg
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

_WHAT_NEVER_CHANGES = frozenset(
    {
        getattr(torch.Tensor, name).__get__
        for name in ("shape", "dtype", "device", "requires_grad", "is_leaf", "layout", "ndim", "grad", "grad_fn")
    }
    | {torch.Tensor.size, torch.Tensor.dim, torch.Tensor.numel, torch.Tensor.stride, torch.Tensor.__hash__}
)
"""Calls on a tensor that do not look at its elements."""

_links: weakref.WeakKeyDictionary[torch.nn.Module, Link] = weakref.WeakKeyDictionary()


class Link:
    """Ties the tensors of a user's module to the executor that trains it.

    Attributes:
        version: goes up whenever the host's tensors are brought up to date.
        own: the module's class without the link.
        classes: of tensors whose last link this is, by their own class and their links.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        refresh: Callable[[], object],
        destroy: Callable[[], object],
        group: Callable[..., object],
    ) -> None:
        self.version = 0
        # Weak: the module, through its tensors, must not keep the executor.
        self._refresh, self._destroy = weakref.WeakMethod(refresh), weakref.WeakMethod(destroy)
        self._group = weakref.WeakMethod(group)
        self._model = weakref.ref(model)
        self.own = type(model)
        self._tensors: list[torch.Tensor] = []
        self.classes: dict[tuple[type, tuple[Link, ...]], type] = {}
        self.adopt()
        model.__class__ = _wrapped_class(self.own, self)
        _links[model] = self

    def alive(self) -> bool:
        """Whether the executor is still there."""
        return self._refresh() is not None

    def refresh(self) -> None:
        """Bring the host's tensors up to date when the device is ahead."""
        refresh = self._refresh()
        if refresh is not None:
            refresh()

    def destroy(self) -> None:
        """Destroy the executor, which cuts the link."""
        destroy = self._destroy()
        if destroy is not None:
            destroy()
        else:
            self.cut()

    def group(self, *grouping: Any) -> None:
        """Let groups of replicas have values of their own of a weight."""
        group = self._group()
        if group is not None:
            group(*grouping)

    def adopt(self) -> None:
        """Tie the tensors that the module has now."""
        model = self._model()
        if model is None:
            return
        known = {id(t) for t in self._tensors}
        for tensor in (*model.parameters(), *model.buffers()):
            if id(tensor) not in known and _own_class(tensor) in (torch.nn.Parameter, torch.Tensor):
                self._tensors.append(tensor)
        for tensor in self._tensors:
            others = _links_at(type(tensor))
            if self not in others:
                tensor.__class__ = _linked_class(_own_class(tensor), (*others, self))

    def release(self) -> None:
        """Give the tensors the class back that they would have without this link: their own, if no other is there."""
        for tensor in self._tensors:
            others = tuple(link for link in _links_at(type(tensor)) if link is not self)
            tensor.__class__ = _linked_class(_own_class(tensor), others)

    def cut(self) -> None:
        """Give the tensors and the module their own classes back, for good."""
        self.release()
        self._tensors.clear()
        self.classes.clear()
        model = self._model()
        if model is not None and _links.get(model) is self:
            model.__class__ = self.own
            del _links[model]


def link_of(model: torch.nn.Module) -> Link | None:
    """The link of a module that is being trained by an executor, or None."""
    return _links.get(model)


def links_of(model: torch.nn.Module) -> list[Link]:
    """The links of a module and of its tensors, which may be those of a module that it is a part of."""
    found = {link_of(model): None}
    for tensor in (*model.parameters(), *model.buffers()):
        found |= dict.fromkeys(_links_at(type(tensor)))
    return [link for link in found if link is not None]


def _links_at(kind: type) -> tuple[Link, ...]:
    """The links of tensors of this class: one for each executor that trains a module with the tensor in it."""
    return getattr(kind, "_poptorch_links", ())


def _own_class(tensor: torch.Tensor) -> type:
    kind = type(tensor)
    return kind.__bases__[0] if _links_at(kind) else kind


@contextlib.contextmanager
def plain_tensors(model: torch.nn.Module) -> Iterator[None]:
    """Run the body with the module's tensors as ordinary ones, so that nothing is copied when they are looked at."""
    link = link_of(model)
    if link is None:
        yield
        return
    link.release()
    try:
        yield
    finally:
        link.adopt()


@contextlib.contextmanager
def _as(obj: Any, own: type) -> Iterator[None]:
    now = type(obj)
    obj.__class__ = own
    try:
        yield
    finally:
        obj.__class__ = now


def _linked_class(own: type, links: tuple[Link, ...]) -> type:
    """The class of tensors that ask these links first; their own where there are none."""
    if not links:
        return own
    made = links[-1].classes
    if (own, links) not in made:
        made[own, links] = _new_linked_class(own, links)
    return made[own, links]


def _new_linked_class(own: type, links: tuple[Link, ...]) -> type:
    def refresh() -> None:
        for link in links:
            link.refresh()

    def intercept(cls: type, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        if func not in _WHAT_NEVER_CHANGES:
            for kind in types:
                for link in _links_at(kind):
                    link.refresh()
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    def deepcopy(self: Any, memo: dict[int, Any]) -> Any:
        refresh()
        with _as(self, own):
            return copy.deepcopy(self, memo)

    def reduce(self: Any, protocol: Any) -> Any:
        refresh()
        with _as(self, own):
            return self.__reduce_ex__(protocol)

    def text(self: Any, **options: Any) -> str:
        refresh()
        with _as(self, own):
            return self.__repr__(**options)

    def group(self: Any, comm_group_type: Any, shards: int, variable_retrieval_mode: Any) -> None:
        """Give each group of replicas a value of its own of this weight; dimension 0 counts the groups.

        Args:
            comm_group_type: how replicas are put into groups.
            shards: replicas of a group.
            variable_retrieval_mode: whose value comes back: ``OnePerGroup``.
        """
        for link in links:
            link.group(self, comm_group_type, shards, variable_retrieval_mode)

    members = {
        "_poptorch_links": links,
        "replicaGrouping": group,
        "__torch_function__": classmethod(intercept),
        "__deepcopy__": deepcopy,
        "__reduce_ex__": reduce,
        "__repr__": text,
        "__module__": own.__module__,
        "__qualname__": own.__qualname__,
    }
    return type(own)(own.__name__, (own,), members)


def _wrapped_class(own: type, link: Link) -> type:
    def destroy(self: Any) -> None:
        """Destroy the executor that trains this module."""
        link.destroy()

    def reduce(self: Any, protocol: Any) -> Any:
        link.refresh()
        with _as(self, own):
            made = self.__reduce_ex__(protocol)
        if isinstance(made, tuple) and made[0] is copyreg.__newobj__ and len(made[1]) == 1:  # type: ignore[attr-defined]
            # pickle compares the class in that form with the object's, which is this one.
            made = (copyreg._reconstructor, (own, object, None), *made[2:])  # type: ignore[attr-defined]
        return made

    members: dict[str, Any] = {"__reduce_ex__": reduce, "__module__": own.__module__, "__qualname__": own.__qualname__}
    if not hasattr(own, "destroy"):
        members["destroy"] = destroy
    return type(own)(own.__name__, (own,), members)

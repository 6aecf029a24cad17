"""Functions of the user's that run before and after every compilation."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterator

import torch
from torch.utils.hooks import RemovableHandle

from ._logging import logger

_before: collections.OrderedDict[int, Callable[[], None]] = collections.OrderedDict()
_after: collections.OrderedDict[int, Callable[[], None]] = collections.OrderedDict()


def _register(hooks: collections.OrderedDict[int, Callable[[], None]], hook: Callable[[], None]) -> RemovableHandle:
    if not callable(hook):
        raise RuntimeError(f"A hook must be callable, and {hook!r} is not.")
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


def registerPreCompileHook(hook: Callable[[], None]) -> RemovableHandle:
    """Call ``hook()`` before every compilation, in the order of registration.

    Returns:
        a handle whose ``remove()`` ends that.
    """
    return _register(_before, hook)


def registerPostCompileHook(hook: Callable[[], None]) -> RemovableHandle:
    """Call ``hook()`` after every compilation, in the order of registration.

    Returns:
        a handle whose ``remove()`` ends that.
    """
    return _register(_after, hook)


_around_captures: list[Callable[[], contextlib.AbstractContextManager[None]]] = []


def during_capture(context: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
    """Enter a new ``context()`` around every capture of a model (a package's stand-ins for what cannot be captured)."""
    if context not in _around_captures:
        _around_captures.append(context)


@contextlib.contextmanager
def capturing() -> Iterator[None]:
    """The contexts of :func:`during_capture`."""
    with contextlib.ExitStack() as stack:
        for context in _around_captures:
            stack.enter_context(context())
        yield


def warn_of_gradient_hooks(model: torch.nn.Module) -> None:
    """Say which hooks on gradients will not run: the compiler derives the backward pass, and torch's own never runs."""
    tables = ("_backward_hooks", "_backward_pre_hooks", "_post_accumulate_grad_hooks")
    owners = (*model.named_parameters(), *model.named_modules())
    names = [name or "the model" for name, owner in owners if any(getattr(owner, t, None) for t in tables)]
    if names:
        logger.warning(
            "Hooks on gradients have no effect on a PopTorch model: those of %s do not run. A torch.autograd.Function "
            "in forward can change gradients, and max_grad_norm of an optimizer of poptorch.optim bounds them.",
            ", ".join(names),
        )


def run_pre_compile() -> None:
    """Call the hooks for the moment before a compilation."""
    for hook in list(_before.values()):
        hook()


def run_post_compile() -> None:
    """Call the hooks for the moment after a compilation."""
    for hook in list(_after.values()):
        hook()

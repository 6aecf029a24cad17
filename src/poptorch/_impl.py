"""Where the current thread is: in plain Python, or in the capture of a model.

The names are the vendor's private ones that existing programs import.
"""

from __future__ import annotations

import threading
from typing import Any

import torch

from . import _placement
from ._host_weights import link_of

_context = threading.local()


def isRunningOnIpu() -> bool:
    """Whether the code runs for the IPU: True while a wrapped model is being captured, else False."""
    return _placement.current_capture() is not None or getattr(_context, "on_ipu", False)


def setIpuContext(val: bool) -> None:
    """Make :func:`isRunningOnIpu` answer ``val`` in this thread outside a capture."""
    _context.on_ipu = bool(val)


def isDispatchTracing() -> bool:
    """Whether the operations that this thread runs are being captured."""
    return _placement.current_capture() is not None


def unwrapModelIfNecessary(model: torch.nn.Module) -> None:
    """Give the tensors of a module that is being trained their own classes back, with their present values."""
    link = link_of(model)
    if link is not None:
        link.refresh()
        link.release()


def rewrapModelIfNecessary(model: torch.nn.Module) -> None:
    """Undo :func:`unwrapModelIfNecessary`."""
    link = link_of(model)
    if link is not None:
        link.adopt()


def _restoreWrapperIfNecessary(obj: Any) -> Any:
    """The object itself. Pickles that the vendor's package made of wrapped modules and parameters call this on each.

    Pickles made here hold plain objects from the start.
    """
    return obj

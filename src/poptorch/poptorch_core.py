"""The names of the vendor's compiled module that existing programs use."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from . import _placement, _popart_checks
from ._errors import Error, RecoverableError, UnrecoverableError

__all__ = [
    "Error",
    "RecoverableError",
    "TestErrorType",
    "UnrecoverableError",
    "isCompilingWithDispatcher",
]


def isCompilingWithDispatcher() -> bool:
    """Whether a model is being captured in this thread."""
    return _placement.current_capture() is not None


def _validateOptions(options: Mapping[str, Any]) -> None:
    """Check the dictionary of :meth:`poptorch.Options.toDict`; raises :class:`Error`."""
    _popart_checks.validate(options)


class TestErrorType(enum.IntEnum):
    """The errors that :func:`_throwTestError` can raise, for programs that try their error handling."""

    __test__ = False

    Poptorch = 0
    PoplarUnrecoverable = 1
    PoplarRecoverableFullReset = 2
    PoplarLinkError = 3


def _throwTestError(kind: TestErrorType) -> None:
    """Raise an error of that kind."""
    where = {"type": "poptorch_cpp_error", "location": "poptorch_core._throwTestError"}
    if kind is TestErrorType.PoplarUnrecoverable:
        raise UnrecoverableError("a lasting error, raised on request", **where)
    if kind is TestErrorType.PoplarRecoverableFullReset:
        raise RecoverableError("a transient error, raised on request", "FULL_RESET", **where)
    raise Error("an error, raised on request", **where)

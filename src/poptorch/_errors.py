"""The exceptions that the vendor's API promises, with the attributes it promises.

Programs, and the vendor's public tests, tell errors and log lines apart by a few fixed phrases. Where such a test
matches a phrase it is part of the API and stands here word for word; all other texts are this project's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, TypeVar

Kind = TypeVar("Kind")


class Error(RuntimeError):
    """Something that the user can put right, found while a model is compiled or run.

    Attributes:
        message: what is wrong, without context.
        type: the part of the stack that found it.
        location: where it was found; the user's source line when it is known.
    """

    def __init__(self, message: str = "", *, type: str = "poptorch_py_error", location: str = "") -> None:
        self.message, self.type, self.location = message, type, location
        super().__init__(message)

    def __str__(self) -> str:
        place = f" (at {self.location})" if self.location else ""
        return f"{self.message}{place}"


class RecoverableError(Error):
    """A transient error of the machine; ``recovery_action`` names what would clear it.

    ``recovery_action`` is one of ``IPU_RESET``, ``LINK_RESET``, ``PARTITION_RESET`` and ``FULL_RESET``.
    Abele runs on a modelled machine, so it never raises this itself; programs may still catch it.
    """

    def __init__(self, message: str = "", recovery_action: str = "IPU_RESET", **context: str) -> None:
        self.recovery_action = recovery_action
        super().__init__(message, **context)


class UnrecoverableError(Error):
    """A lasting error of the machine. Abele never raises it itself; programs may still catch it."""


def require(condition: object, message: str) -> None:
    """Raise ``AssertionError(message)`` unless ``condition`` holds.

    The vendor's API reports wrong arguments as assertion errors, which programs and tests rely on; an
    ``assert`` statement would vanish under ``python -O``.
    """
    if not condition:
        raise AssertionError(message)


def boolean(name: str, value: Any) -> bool:
    """``value``, which is True or False, for the method ``name``."""
    require(isinstance(value, bool), f"{name} must be True or False, not {value!r}.")
    return value


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """``value``, a whole number of ``least`` or more, for the method ``name``."""
    fits = isinstance(value, int) and not isinstance(value, bool) and value >= least
    require(fits, f"{name} takes a whole number of {least} or more, not {value!r}.")
    return value


def texts(name: str, values: Any) -> list[str]:
    """``values``, several strings, for the method ``name``; one string is not several letters."""
    several = isinstance(values, Iterable) and not isinstance(values, str)
    found = list(values) if several else []
    require(several and all(isinstance(v, str) for v in found), f"{name} takes a list of strings, not {values!r}.")
    return found


def folder(name: str, value: Any) -> str:
    """``value``, the path of a folder, for the method ``name``."""
    require(isinstance(value, str | os.PathLike), f"{name} takes the path of a folder, not {value!r}.")
    return os.fspath(value)


def member(name: str, value: Any, kind: type[Kind]) -> Kind:
    """``value``, which is of a class of this package, for the method ``name``."""
    require(isinstance(value, kind), f"{name} takes a poptorch.{kind.__name__}, not {value!r}.")
    return value

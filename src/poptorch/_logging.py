"""The ``poptorch`` logger: levels by the vendor's names, one line per record on standard error."""

from __future__ import annotations

import logging
import os
import sys
from typing import TextIO

from abele import events

logger = logging.getLogger("poptorch::python")

TRACE = 5
_LEVELS = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERR": logging.ERROR,
    "OFF": logging.CRITICAL + 1,
}
# Accepted, but not advertised in error messages: they raise the detail of the vendor's own compiler.
_INTERNAL_LEVELS = {"TRACE_ALL": TRACE, "DEBUG_IR": logging.DEBUG}
_BY_NUMBER = ("TRACE", "DEBUG", "INFO", "WARN", "ERR")
_NAMES = {
    TRACE: "trace",
    logging.DEBUG: "debug",
    logging.INFO: "info",
    logging.WARNING: "warning",
    logging.ERROR: "error",
}
_seen: set[str] = set()


class _CurrentStderr(logging.StreamHandler):
    """A handler that looks standard error up at each record, so that later redirection is honoured."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        return sys.stderr


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        clock = f"{self.formatTime(record, '%H:%M:%S')}.{int(record.msecs):03d}"
        level = _NAMES.get(record.levelno, record.levelname.lower())
        return f"[{clock}] [poptorch::python] [{level}] {record.getMessage()}"


def setLogLevel(level: str | int) -> None:
    """Choose what is logged.

    Args:
        level: ``"TRACE"``, ``"DEBUG"``, ``"INFO"``, ``"WARN"``, ``"ERR"`` or ``"OFF"``, or 0 to 4 for the
            first five of them.

    Raises:
        ValueError: when the level is not known.
    """
    if isinstance(level, int):
        if not 0 <= level < len(_BY_NUMBER):
            raise ValueError(f"Invalid log level integer: {level}. Valid values are 0 to {len(_BY_NUMBER) - 1}.")
        level = _BY_NUMBER[level]
    number = _LEVELS.get(level, _INTERNAL_LEVELS.get(level))
    if number is None:
        names = sorted(_LEVELS)
        raise ValueError(f"Unknown log level: {level}. Valid values are {', '.join(names[:-1])} and {names[-1]}")
    logger.setLevel(number)


def setPopartLogLevel(level: str) -> None:
    """Accepted, with a level of :func:`setLogLevel` by name: the vendor's compiler, whose log it is, does not run."""
    if not isinstance(level, str) or level not in _LEVELS:
        raise ValueError(f"Level must be one of {', '.join(_LEVELS)}, not {level!r}.")


def log_once(level: int, message: str) -> None:
    """Log ``message`` the first time it is given in this process and never again."""
    if message not in _seen:
        _seen.add(message)
        logger.log(level, message)


def trace(message: str) -> None:
    """Log at the level below debug."""
    logger.log(TRACE, message)


class _ToFollowers(logging.Handler):
    """What is logged also stands in the log of whoever follows the run."""

    def emit(self, record: logging.LogRecord) -> None:
        events.message(record.getMessage(), _NAMES.get(record.levelno, record.levelname.lower()))


def _install() -> None:
    if not any(isinstance(h, _CurrentStderr) for h in logger.handlers):
        handler = _CurrentStderr()
        handler.setFormatter(_Formatter())
        logger.addHandler(handler)
        logger.addHandler(_ToFollowers())
    setLogLevel(os.environ.get("POPTORCH_LOG_LEVEL", "WARN"))


_install()

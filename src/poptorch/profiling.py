"""Marks in the user's own code that show how long its parts take.

A :class:`Channel` records spans when the environment variable ``PVTI_OPTIONS`` holds ``{"enable": "true"}``;
else its marks cost nothing. :func:`events` gives what was recorded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import time
from collections.abc import Iterator
from typing import Any


@dataclasses.dataclass(frozen=True)
class Event:
    """One recorded span: nanoseconds of the monotonic clock."""

    channel: str
    name: str
    start_ns: int
    end_ns: int


_events: list[Event] = []


def enabled() -> bool:
    """Whether spans are recorded."""
    try:
        options = json.loads(os.environ.get("PVTI_OPTIONS", "{}"))
    except json.JSONDecodeError:
        return False
    return str(options.get("enable", "false")).lower() == "true"


def events() -> list[Event]:
    """All spans recorded in this process, in the order in which they ended."""
    return list(_events)


class Channel:
    """A named source of marks."""

    def __init__(self, name: str) -> None:
        self._name = name

    def instrument(self, obj: Any, *methods: str) -> None:
        """Record every call of these methods of ``obj``, which is changed."""
        for name in methods:
            setattr(obj, name, self._recorded(getattr(obj, name), f"{type(obj).__name__}.{name}"))

    def _recorded(self, method: Any, label: str) -> Any:
        @functools.wraps(method)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            with self.tracepoint(label):
                return method(*args, **kwargs)

        return recorded

    @contextlib.contextmanager
    def tracepoint(self, name: str) -> Iterator[None]:
        """Record the time that the ``with`` block takes."""
        if not enabled():
            yield
            return
        start = time.monotonic_ns()
        try:
            yield
        finally:
            _events.append(Event(self._name, name, start, time.monotonic_ns()))

"""Events of a file that grows, is folded (``abele.events``), cut short, replaced by another run's, or not there yet."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

MOST = 64 << 20
"""Bytes that are read of a file at most; one that a recorder writes stays far below."""


class Tail:
    """Reads a file from where it stopped before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: tuple[int, int] | None = None
        self._at = 0

    def poll(self) -> tuple[bool, list[dict[str, Any]]]:
        """Whether all starts anew, since this is another file than before or a shorter one; and the events since then.

        What is not an event is left out, and half a line read when its other half has come.
        """
        try:
            if not self.path.is_file():  # a pipe would be waited for
                return False, []
            with self.path.open("rb") as file:
                about = self.path.stat()
                anew = (about.st_dev, about.st_ino) != self._file or about.st_size < self._at
                if anew:
                    self._file, self._at = (about.st_dev, about.st_ino), 0
                file.seek(self._at)
                data = file.read(MOST)
        except OSError:
            return False, []
        whole = data.rfind(b"\n") + 1
        self._at += whole
        rows = (_event(line) for line in data[:whole].splitlines())
        return anew, [row for row in rows if row is not None]


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line, parse_constant=_refused, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    good = isinstance(row, dict) and isinstance(row.get("event"), str) and isinstance(row.get("n"), int)
    return row if good else None


def _refused(constant: str) -> float:
    """No event holds an infinity, which a browser could not read."""
    raise ValueError(constant)


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refused(text)

"""What the server shows of a run: nothing but the run until its report is there, and then that too."""

from __future__ import annotations

import contextlib
import json
import threading
import zlib
from pathlib import Path
from typing import Any

from abele import __version__
from abele.errors import AbeleError, InvalidOption
from abele.report.live.run import FollowedRun
from abele.report.shown import Shown
from abele.report.store.read import JSON, as_json
from abele.report.store.schema import SCHEMA


class ShownRun:
    """A run that is followed, as ``report.server.Source``, with the reports ``others`` beside it."""

    def __init__(self, run: FollowedRun, *others: Path) -> None:
        self.run = run
        self._others, self._own = others, False
        self._shown = Shown(*others) if others else None
        self._lock = threading.Lock()

    @property
    def version(self) -> str:
        shown = self._now()
        return "live" if shown is None else f"live.{int(self._own)}.{shown.version}"

    def resource(self, name: str) -> tuple[bytes, str]:
        """As ``Shown.resource``; the index says that there is a run to follow."""
        if name != "index":
            return self._report(name).resource(name)
        shown = self._now()
        index = _EMPTY if shown is None else json.loads(shown.resource(name)[0])
        return as_json(index | {"live": True}), JSON

    def compressed(self, name: str) -> tuple[bytes, str]:
        """The same, compressed by zlib."""
        if name != "index":
            return self._report(name).compressed(name)
        content, kind = self.resource(name)
        return zlib.compress(content), kind

    def _report(self, name: str) -> Shown:
        shown = self._now()
        if shown is None:
            raise InvalidOption(f"There is no {name!r} yet", remedy="A run has its report when it has ended.")
        return shown

    def _now(self) -> Shown | None:
        with self._lock:
            path = None if self._own else self.run.look() and self.run.report
            if path is not None:
                with contextlib.suppress(AbeleError):  # it is being written
                    self._shown, self._own = Shown(path, *self._others), True
            return self._shown


_EMPTY: dict[str, Any] = {
    "schema": SCHEMA,
    "abele": __version__,
    "title": "",
    "redacted": False,
    "programs": [],
    "sources": [],
}

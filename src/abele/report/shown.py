"""The report that is shown: a file that may be replaced meanwhile, alone or with another one beside it."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

from abele.errors import AbeleError, InvalidOption
from abele.report.store import Report
from abele.report.store.read import JSON, as_json

NAME = "profile.pop"
"""The report's file in a folder that ``--report`` names."""


def report_file(path: Path) -> Path:
    """The report's file: ``path`` itself, or the one in this folder."""
    if path.is_dir():
        path = path / NAME
        if not path.is_file():
            raise InvalidOption(f"There is no report in {str(path.parent)!r}: it has no {NAME}", remedy=_MAKE)
    if path.suffix in (".html", ".htm"):
        raise InvalidOption(
            f"{str(path)!r} is a page that was saved", remedy="A browser opens it as it is; `abele view` opens reports."
        )
    return path


_MAKE = "Write one with `abele profile MODEL --report DIR` or `abele run SCRIPT --report DIR`."

MOST_PAIRED = 4
"""Of so many programs, each is compared with each other one in a saved page."""


class Shown:
    """One report, or several as one, each held against those after it: programs are counted on from file to file.

    A file that was replaced is opened again when it is asked next; while that fails (it is being written in place, say)
    the one that was open goes on. Threads may share it.

    Raises:
        InvalidOption, BadReport: a file is missing or no report, see ``Report``.
    """

    def __init__(self, *paths: Path) -> None:
        self._files = [_File(report_file(path)) for path in paths]
        self._lock = threading.Lock()

    @property
    def version(self) -> str:
        """Another one after a file was replaced."""
        return ".".join(str(file.opened) for file in self._files)

    def resource(self, name: str) -> tuple[bytes, str]:
        """What a page asks for, by the names of ``docs/report_store.md``, and its content type."""
        found = self._find(name)
        return found[0].resource(found[1]) if isinstance(found, tuple) else (as_json(found), JSON)

    def compressed(self, name: str) -> tuple[bytes, str]:
        """The same, compressed by zlib."""
        found = self._find(name)
        return found[0].compressed(found[1]) if isinstance(found, tuple) else (zlib.compress(as_json(found)), JSON)

    def names(self) -> list[str]:
        """Names that are answered: all, but where there are many programs only comparisons from the first one to others
        of its report, and to it from those of other reports."""
        found, programs, sources, own = ["index"], 0, 0, 0
        for report in self._now():
            for name in report.names():
                match name.split("/"):
                    case ["p", number, *rest]:
                        found.append("/".join(("p", str(programs + int(number)), *rest)))
                    case ["source", number]:
                        found.append(f"source/{sources + int(number)}")
            index = report.index()
            programs += len(index["programs"])
            sources += len(index["sources"])
            own = own or programs
        few = permutations(range(programs), 2)
        pairs = few if programs <= MOST_PAIRED else [(0, n) if n < own else (n, 0) for n in range(1, programs)]
        return [*found, *(f"compare/{a}/{b}" for a, b in pairs)]

    def summaries(self) -> list[dict[str, Any]]:
        """What is shown first of each program."""
        return [report.summary(program["id"]) for report in self._now() for program in report.index()["programs"]]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What a notebook shows: a verdict, a picture, and the viewer in a frame."""
        from abele.report.notebook import bundle

        files = " --compare ".join(str(file.path) for file in self._files)
        return bundle(self, self.summaries(), f"All of it: abele view {files}")

    def __repr__(self) -> str:
        """The verdicts in words, where no notebook draws them."""
        from abele.report.notebook import verdict

        return "\n".join(verdict(summary) for summary in self.summaries())

    def _now(self) -> list[Report]:
        with self._lock:
            return [file.now() for file in self._files]

    def _find(self, name: str) -> tuple[Report, str] | dict[str, Any]:
        """The report that answers and the name there, or the answer of all of them together."""
        reports = self._now()
        if len(reports) == 1:
            return reports[0], name
        indices = [report.index() for report in reports]
        match name.split("/"):
            case ["index"]:
                return _joined(indices)
            case ["compare", a, b] if a.isdecimal() and b.isdecimal():
                (one, a_there), (other, b_there) = (_place(int(n), indices, "programs", name) for n in (a, b))
                return reports[one].compare(a_there, b_there, reports[other])
            case ["p", number, *rest] if number.isdecimal():
                at, there = _place(int(number), indices, "programs", name)
                return reports[at], "/".join(("p", str(there), *rest))
            case ["source", number] if number.isdecimal():
                at, there = _place(int(number), indices, "sources", name)
                return reports[at], f"source/{there}"
        return reports[0], name


class _File:
    """A report's file and what it was when it was opened."""

    def __init__(self, path: Path) -> None:
        self.path, self.opened = path, 0
        self._stamp = self._seen = self._look()  # before it is opened: it may be replaced meanwhile
        self._report = Report(path)

    def _look(self) -> tuple[int, ...]:
        try:
            found = self.path.stat()
        except OSError:
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns

    def now(self) -> Report:
        """The report as it is now, or as it was last."""
        seen = self._look()
        if seen not in (self._stamp, self._seen, ()):
            try:
                # The one before is closed when nobody reads it any more.
                self._report, self._stamp = Report(self.path), seen
                self.opened += 1
            except AbeleError:
                self._seen = seen
        return self._report


def _place(number: int, indices: Sequence[dict[str, Any]], what: str, name: str) -> tuple[int, int]:
    """The report of a program or source, and its number there."""
    left = number
    for at, index in enumerate(indices):
        if left < len(index[what]):
            return at, left
        left -= len(index[what])
    raise InvalidOption(f"The reports have no {name!r}", remedy=f"They have {number - left} {what}, counted from 0.")


def _joined(indices: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The index of several reports; names of programs say which report they are of: A is the base, the last one."""
    programs, sources = [], []
    for place, index in enumerate(indices):
        letter = chr(ord("A") + len(indices) - 1 - place)
        programs += [p | {"name": f"{letter}: {p['name']}", "report": place} for p in index["programs"]]
        sources += index["sources"]
    programs = [program | {"id": i} for i, program in enumerate(programs)]
    titles = " | ".join(index["title"] for index in indices)
    redacted = any(index["redacted"] for index in indices)
    return indices[0] | {"title": titles, "redacted": redacted, "programs": programs, "sources": sources}

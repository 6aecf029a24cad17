"""``abele run --live``: the run's events beside its report, and a viewer in a process of its own."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from abele import events
from abele.errors import AbeleError
from abele.report.shown import NAME as REPORT

NAME = "live.jsonl"
"""The file of events in the folder of a report."""
LINGER = 60
"""Seconds that the viewer stays when the run is over and nobody looks."""


@contextlib.contextmanager
def recorded(live: bool, report: Path | None, script: Path) -> Iterator[Path | None]:
    """Record what runs, when it is to be followed, and open a viewer; yields the folder of the report.

    Without a folder for the report a new one of the system's folder for temporary files is taken.
    """
    if not live:
        yield report
        return
    folder = report or Path(tempfile.mkdtemp(prefix=f"abele-{script.stem}-"))
    with events.opened(events.Recorder(folder / NAME)) as recorder:
        _view(recorder.path)
        yield folder
        if (folder / REPORT).is_file():
            recorder.report()


def tell_end(error: BaseException | None) -> None:
    """Tell whoever follows how the program ended."""
    recorder = events.current()
    if recorder is None:
        return
    if error is None:
        recorder.end()
    elif isinstance(error, KeyboardInterrupt):
        recorder.end("interrupted")
    elif isinstance(error, AbeleError):
        recorder.end("failed", str(error))
    else:
        recorder.end("failed", f"exit status {getattr(error, 'exit_code', 1)}")


def _view(path: Path) -> None:
    """Start a viewer that outlives this process; its address goes to the standard error. A browser is opened where a
    person seems to look."""
    command = [sys.executable, "-m", "abele", "view", "--live", str(path), "--linger", str(LINGER)]
    try:
        command += [] if sys.stderr.isatty() else ["--no-browser"]
        out = sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):  # a standard error that is no file
        command += ["--no-browser"]
        out = subprocess.DEVNULL
    try:
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
    except OSError as error:
        sys.stderr.write(f"The viewer cannot be started: {error}. The run goes on; see {path}\n")

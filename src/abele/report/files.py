"""Writing a file whole or not at all."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

from abele.errors import InvalidOption

STALE = 3600.0
"""Seconds after which a file that nobody has written to meanwhile was left by a process that was killed."""


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write what takes the place of ``path`` at the end, and is gone if that is not reached.

    What is there and is no file (a device, a folder) is written to, or refuses it, itself.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    _clear(path)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")  # another process may write the same file
    try:
        yield fresh
        fresh.replace(path)
    except BaseException:
        with suppress(OSError):
            fresh.unlink()
        raise


def _clear(path: Path) -> None:
    """Take away what processes that were killed have left of this file; none writes for so long."""
    with suppress(OSError):
        for left in path.parent.glob(f".{escape(path.name)}.*"):
            if left.suffix[1:].isdecimal() and time.time() - left.lstat().st_mtime > STALE:
                left.unlink()


def write_file(path: Path, contents: str | bytes, option: str = "--report", made_of: Sequence[Path] = ()) -> Path:
    """Write a file whole or not at all; a full disk or a bad path is an error that names the command's ``option``.

    So is the name of one of the files that the contents are made of, which would be lost.
    """
    try:
        if path.exists() and any(path.samefile(each) for each in made_of):
            raise InvalidOption(
                f"{option} {str(path)!r} is the report itself, which would be lost", remedy="Choose another place."
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as fresh:
            fresh.write_bytes(contents.encode() if isinstance(contents, str) else contents)
    except OSError as error:
        raise InvalidOption(
            f"{str(path)!r} could not be written: {error.strerror or error}",
            remedy=f"Choose another place with {option}, or make room on the disk; nothing was left half-written.",
        ) from error
    return path

"""Writing a file whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from abele.errors import InvalidOption


def write_file(path: Path, contents: str | bytes, option: str = "--report") -> Path:
    """Write a file whole or not at all; a full disk or a bad path is an error that names the command's ``option``."""
    try:
        if not path.name:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        fresh = path.with_name(f".{path.name}.{os.getpid()}")  # another process may write the same file
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            fresh.write_bytes(contents.encode() if isinstance(contents, str) else contents)
            fresh.replace(path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InvalidOption(
            f"{str(path)!r} could not be written: {error.strerror or error}",
            remedy=f"Choose another place with {option}, or make room on the disk; nothing was left half-written.",
        ) from error
    return path

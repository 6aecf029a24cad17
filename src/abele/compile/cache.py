"""The cache of executables on disk: content-addressed, written whole or not at all, checked when read.

An entry is a file named by its key: a line with the digest of what follows, then the compressed text. An entry
that does not fit its digest is moved aside and said once; the program is then compiled again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import zlib
from pathlib import Path

logger = logging.getLogger("abele")

_MAGIC = b"abele-1 "


def default_directory() -> Path:
    """``$ABELE_CACHE_DIR``, or ``abele`` in the user's cache directory."""
    if chosen := os.environ.get("ABELE_CACHE_DIR"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "abele"


class Cache:
    """Texts by key in one directory. Reading and writing never raise: without a cache one only waits longer."""

    def __init__(self, directory: Path | str | None = None) -> None:
        self.directory = Path(directory) if directory is not None else default_directory()

    def path(self, key: str) -> Path:
        return self.directory / key[:2] / f"{key}.abele"

    def get(self, key: str) -> str | None:
        """The text stored under ``key``, or ``None``."""
        path = self.path(key)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        head, _, body = content.partition(b"\n")
        if head == _MAGIC + hashlib.sha256(body).hexdigest().encode():
            try:
                return zlib.decompress(body).decode()
            except (zlib.error, UnicodeDecodeError):
                pass
        self.set_aside(key)
        return None

    def set_aside(self, key: str) -> None:
        """Move a damaged entry out of the way, and say so."""
        path = self.path(key)
        aside = path.with_suffix(".bad")
        try:
            os.replace(path, aside)
            logger.warning("The cache entry %s is damaged; it was moved to %s and is compiled again.", path.name, aside)
        except OSError:
            logger.warning("The cache entry %s is damaged and is compiled again.", path)

    def put(self, key: str, text: str) -> bool:
        """Store ``text``; False when the disk did not take it (said once, nothing half-written remains)."""
        path = self.path(key)
        body = zlib.compress(text.encode(), 6)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
                os.replace(name, path)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        except OSError as error:
            logger.warning("The executable was not cached in %s: %s.", self.directory, error.strerror or error)
            return False
        return True

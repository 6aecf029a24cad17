"""The cache on disk: compiled programs by what they were made from, and beside them the native code of the engine."""

from __future__ import annotations

import os
import zlib
from contextlib import AbstractContextManager
from pathlib import Path

from abele.codegen.store import Store


def default_directory() -> Path:
    """``$ABELE_CACHE_DIR``, or ``abele`` in the user's cache directory."""
    if chosen := os.environ.get("ABELE_CACHE_DIR"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "abele"


class Cache:
    """Texts by key in one directory. Reading and writing never raise: without a cache one only waits longer."""

    def __init__(self, directory: Path | str | None = None) -> None:
        self.directory = Path(directory) if directory is not None else default_directory()
        self._store = Store(self.directory, ".abele")

    @property
    def native(self) -> Path:
        """The directory that an ``Engine`` is given for native code."""
        return self.directory / "native"

    @property
    def profiles(self) -> Cache:
        """Where what executables were charged is kept."""
        return Cache(self.directory / "profiles")

    def path(self, key: str) -> Path:
        """The file of an entry."""
        return self._store.path(key)

    def get(self, key: str) -> str | None:
        """The text stored under ``key``, or ``None``."""
        body = self._store.get(key)
        if body is None:
            return None
        try:
            return zlib.decompress(body).decode()
        except (zlib.error, UnicodeDecodeError):
            self.set_aside(key)
            return None

    def set_aside(self, key: str) -> None:
        """Move an entry that cannot be used out of the way, and say so."""
        self._store.set_aside(key)

    def alone(self, key: str) -> AbstractContextManager[None]:
        """Keep other processes out that compile the same program: one does, and the others find what it made."""
        return self._store.alone(key)

    def put(self, key: str, text: str) -> bool:
        """Store ``text``; False when the disk did not take it."""
        return self._store.put(key, zlib.compress(text.encode(), 6))

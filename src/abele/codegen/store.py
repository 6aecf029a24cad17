"""A store of bytes on disk by key: entries written whole or not at all, and checked when read.

An entry is a file named by its key: a line with the digest of what follows, then the bytes. One that does not fit its
digest is moved aside and said once. Reading and writing never raise: without a store one only waits longer.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from abele.errors import BadCache

try:
    import fcntl
except ImportError:  # not a Unix system
    fcntl = None

logger = logging.getLogger("abele")

_MAGIC = b"abele-1 "


class Store:
    """Bytes by key in one directory, which is made when first written to.

    Args:
        directory: where.
        suffix: of the names of its files, with the dot.
    """

    def __init__(self, directory: Path | str | os.PathLike[str], suffix: str) -> None:
        self.directory, self.suffix = Path(directory), suffix

    def path(self, key: str) -> Path:
        """The file of an entry."""
        return self.directory / key[:2] / f"{key}{self.suffix}"

    def get(self, key: str) -> bytes | None:
        """The bytes stored under ``key``, or ``None``."""
        try:
            content = self.path(key).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            logger.warning("%s", BadCache(f"The cache entry {self.path(key)} cannot be read ({error.strerror})"))
            return None
        head, _, body = content.partition(b"\n")
        if head == _MAGIC + hashlib.sha256(body).hexdigest().encode():
            return body
        self.set_aside(key)
        return None

    def set_aside(self, key: str) -> None:
        """Move a damaged entry out of the way, and say so."""
        path = self.path(key)
        aside = path.with_suffix(".bad")
        try:
            os.replace(path, aside)
            fate = f"it was moved to {aside}"
        except OSError:
            fate = "it was left there"
        logger.warning("%s", BadCache(f"The cache entry {path} is damaged; {fate} and is compiled again"))

    @contextmanager
    def alone(self, key: str) -> Iterator[None]:
        """Keep other processes out that make the same entry, and wait for one that does; where files can be locked.

        A process that dies in it lets the next one in: the system gives its lock back, and who is last in removes
        the file.
        """
        with ExitStack() as stack:
            if fcntl is not None:
                with contextlib.suppress(OSError):  # a folder that cannot be written to, or cannot lock
                    path = self.path(key).with_suffix(".lock")
                    path.parent.mkdir(parents=True, exist_ok=True)
                    stack.enter_context(_locked(path))
            yield

    def put(self, key: str, body: bytes) -> bool:
        """Store ``body``; False, said once, when the disk did not take it."""
        path = self.path(key)
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
            logger.warning("Nothing was cached in %s: %s.", self.directory, error.strerror or error)
            return False
        return True


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is made for it and removed before others are let in.

    Who waited for a file that is removed by then holds a lock that nobody else asks for, and takes the next one.
    """
    assert fcntl is not None
    while True:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_at(file.fileno(), path):
                continue
            try:
                yield
            finally:
                with contextlib.suppress(OSError):
                    path.unlink()
            return


def _is_at(handle: int, path: Path) -> bool:
    """Whether an open file is the one that has this path."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False

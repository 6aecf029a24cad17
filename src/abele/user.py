"""The user's own files: loading one that a command names, and finding the line in it where an error came up."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from pathlib import Path
from types import ModuleType

from abele.errors import AbeleError, InvalidOption, UserProgramError

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The folder in which Abele's packages lie; ``OURS`` are those that a user's program runs."""
OURS = tuple(os.path.join(SOURCE, package, "") for package in ("abele", "popdist", "poptorch", "poptorch_geometric"))
_LIBRARIES = (*OURS, sysconfig.get_paths()["stdlib"] + os.sep, "<frozen ")
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


_LOADED: dict[str, tuple[int, ModuleType]] = {}


def load_file(path: Path | str, remedy: str = "") -> ModuleType:
    """Run a user's Python file and return it as a module; one that has not changed since is not run again.

    Raises:
        InvalidOption: there is no such file; ``remedy`` says what to write instead.
        UserProgramError: it raised; the message names the line.
    """
    file = Path(path)
    if not file.is_file():
        raise InvalidOption(f"There is no file {str(path)!r}", remedy=remedy)
    name = f"abele_user_{hashlib.sha256(os.fsencode(file.resolve())).hexdigest()[:12]}"
    written = file.stat().st_mtime_ns
    if name in _LOADED and _LOADED[name][0] == written:
        return _LOADED[name][1]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up by name
    folder = str(file.resolve().parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except AbeleError:
        raise
    except Exception as error:
        del sys.modules[name]
        raise UserProgramError(f"{path} raised {said(error)}", where=line_of(error)) from error
    finally:
        sys.path.remove(folder)
    _LOADED[name] = written, module
    return module


def said(error: BaseException) -> str:
    """The kind of an error and its message, without the frames of C++ that torch may append."""
    return f"{type(error).__name__}: {error}".partition("\nException raised from ")[0]


def line_of(error: BaseException) -> str:
    """``file:line`` of the innermost line of the user's where an error came up, or an empty string."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    lines = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    own = [f"{f}:{n}" for f, n in lines if is_own(f)]
    return own[-1] if own else ""


def is_own(file: str) -> bool:
    """Whether a source file is the user's: neither Abele's, nor the standard library's, nor an installed package's."""
    return not file.startswith(_LIBRARIES) and not any(p in file for p in _PACKAGES)


def find_source(shown: str) -> Path | None:
    """The file that an operation's origin shows: as it is, from the folder of now, or in an installed package."""
    if shown.startswith("<"):
        return None
    for folder in ("", *sys.path):
        path = Path(folder, shown)
        if path.is_file():
            return path
    return None


def raised_by_us(error: BaseException) -> bool:
    """Whether the innermost line of an error's traceback is in Abele."""
    return traceback.extract_tb(error.__traceback__)[-1].filename.startswith(OURS)

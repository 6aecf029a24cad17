"""Where a captured operation comes from: the user's line, and the module that was running."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import FrameType

import torch

from abele.ir import Origin
from abele.user import OURS, SOURCE

_LIBRARIES = (os.path.dirname(os.path.abspath(torch.__file__)) + os.sep, *OURS)
_STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
# Models of the zoo live inside the package but read like a user's program. So does all that is installed beside
# the standard library, whose folder holds it.
_USER = (os.path.join(SOURCE, "abele", "zoo") + os.sep,)
_COMMAND = os.path.join(SOURCE, "abele", "programs.py")
_PACKAGES = f"{os.sep}site-packages{os.sep}"
_MEANS_GRADIENTS = (os.path.join("torch", "utils", "checkpoint.py"), os.path.join("torch", "_library", "autograd.py"))
_FUNCTION = os.path.join("torch", "autograd", "function.py")

Placement = Callable[[str], tuple[int, int]]
"""Pipeline stage and IPU of an operation, given its name in ATen (empty where it has none)."""


class Origins:
    """Says for the operation being captured where it comes from.

    While entered, it follows the modules of ``root`` through global forward hooks, in its own thread only; the
    modules themselves are not touched.
    """

    def __init__(self, root: torch.nn.Module | None, placement: Placement | None) -> None:
        self.names: dict[int, str] = {}
        for name, module in root.named_modules() if root is not None else ():
            self.names.setdefault(id(module), name)
        self.placement = placement
        self.modules: list[str] = []
        self.phase = "forward"
        self.target = ""
        self._files: dict[str, str | None] = {}
        self._thread = threading.get_ident()
        self._hooks = ExitStack()
        self._last = (0, 0)

    def __enter__(self) -> Origins:
        hooks = torch.nn.modules.module
        for handle in (
            hooks.register_module_forward_pre_hook(self._enter),
            hooks.register_module_forward_hook(self._leave, always_call=True),
        ):
            self._hooks.callback(handle.remove)
        return self

    def __exit__(self, *_) -> None:
        self._hooks.close()

    def _enter(self, module: torch.nn.Module, _args) -> None:
        if threading.get_ident() == self._thread and id(module) in self.names:
            self.modules.append(self.names[id(module)])

    def _leave(self, module: torch.nn.Module, _args, _result) -> None:
        if threading.get_ident() == self._thread and id(module) in self.names and self.modules:
            self.modules.pop()

    def here(self) -> Origin:
        """Origin of an operation that the running code calls now."""
        file, line, _ = next(self._lines(sys._getframe(1)), ("", 0, False))
        stage, ipu = self._last = self.placement(self.target) if self.placement else (0, 0)
        return Origin(file, line, self.modules[-1] if self.modules else "", stage, ipu, self.phase)

    def where(self) -> str:
        """The line that runs now, for messages; from inside an installed package also the program's that led there."""
        place = self.here().where
        lines = self._lines(sys._getframe(1))
        if not next(lines, ("", 0, False))[2]:
            return place
        caller = next((f"{file}:{line}" for file, line, packaged in lines if not packaged), "")
        return f"{place}, called from {caller}" if caller else place

    def _lines(self, frame: FrameType | None) -> Iterator[tuple[str, int, bool]]:
        """Lines that are a user's, from the innermost outwards, and whether each is in an installed package."""
        while frame is not None and frame.f_code.co_filename != _COMMAND:  # beyond it the command line begins
            name = self._shown(frame.f_code.co_filename)
            if name is not None:
                yield name, frame.f_lineno, _PACKAGES in frame.f_code.co_filename
            frame = frame.f_back

    def settle(self) -> None:
        """The program has returned: what is still to be captured is placed with its last operation."""
        last = self._last
        self.placement = lambda target: last

    def who_stops_gradients(self) -> str:
        """Why gradients are off now.

        ``function``: a user's ``torch.autograd.Function`` runs. ``torch``: torch turned them off for itself and means
        them (checkpointing, operators of a library). ``program``: the program did.
        """
        frame = sys._getframe(1)
        while frame is not None:
            name = frame.f_code.co_filename
            if name.endswith(_MEANS_GRADIENTS):
                return "torch"
            if name.endswith(_FUNCTION):
                return "function"
            frame = frame.f_back
        return "program"

    def _shown(self, file: str) -> str | None:
        """How a user's file is shown (``None`` for files that are not the user's)."""
        if file in self._files:
            return self._files[file]
        shown: str | None = None
        if not file.startswith("<") or file.startswith("<ipython"):
            library = file.startswith(_LIBRARIES) or (file.startswith(_STANDARD) and _PACKAGES not in file)
            if file.startswith(_USER) or not library:
                shown = _short(file)
        elif file == "<stdin>" or file == "<string>":
            shown = file
        self._files[file] = shown
        return shown


def _short(file: str) -> str:
    """A file without the parts that differ from one computer to the next."""
    if _PACKAGES in file:
        return file.rpartition(_PACKAGES)[2]
    try:
        relative = os.path.relpath(file)
    except ValueError:
        return file
    return file if relative.startswith("..") else relative

"""Libraries of compiled operations: a program that loads one is told how to register its twin in Python.

Such a library is linked against the vendor's, which nobody has: loading it fails with the name of a file that cannot be
found. Python announces every library before it is loaded (``sys.audit``, "ctypes.dlopen"), also those of
``torch.ops.load_library`` and ``torch.classes.load_library``; one that speaks of the vendor's is stopped here.
"""

from __future__ import annotations

import mmap
import os
import sys
from typing import Any

from ._errors import Error

_MARKS = (b"libpopart", b"libpoplar", b"popart::", b"6popart", b"6poplar")
"""Names in a library that was built against the vendor's: of files, and of C++ namespaces."""

HELP = (
    "Operations compiled for the vendor's library cannot be loaded. Register a twin of each in Python under the name "
    "that poptorch.custom_op is given (domain.name): abele.ir.register(abele.ir.Composite('domain.name', attributes, "
    "forward, samples, gradient)), with a plan (plan_for) and its cycles (VertexKind) where the time matters. "
    "docs/custom_operations.md and examples/custom_operation.py show all of it. Then leave the loading away."
)


def refuse(event: str, args: tuple[Any, ...]) -> None:
    """The audit hook.

    Raises:
        Error: the library about to be loaded was built against the vendor's.
    """
    if event == "ctypes.dlopen" and args and isinstance(args[0], str | bytes | os.PathLike):
        path = os.fsdecode(args[0])
        if os.path.isfile(path) and _of_the_vendor(path):
            raise Error(f"{path} holds operations of the vendor's library. {HELP}")


def _of_the_vendor(path: str) -> bool:
    if os.path.getsize(path) == 0:
        return False
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return any(content.find(mark) >= 0 for mark in _MARKS)


sys.addaudithook(refuse)

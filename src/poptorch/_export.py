"""Compiled programs in files: what ``save`` and ``compileAndExport`` write and ``load`` reads.

A file holds the arguments that the model was compiled for (their shapes and types alone), the schedule under its key,
and when asked the model, its options and its optimizer. Reading captures the model again and finds the schedule by the
key; another model, option or machine makes another key, and is compiled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import pickle
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from abele.compile.cache import Cache
from abele.importers.torch import structure as tree
from abele.report.files import whole
from abele.schedule.text import print_schedule

from ._errors import Error
from ._program import Program
from ._replica_groups import Grouping
from .options import Options

_FORMAT = "abele-poptorch-3"
_NAME = "model.poptorch"


@dataclasses.dataclass
class Contents:
    """What a file holds.

    Attributes:
        modes: whether each module, by name, was in training mode; a module that is not named is as it is.
        groupings: weights that differ among replicas.
    """

    model: torch.nn.Module | None
    options: Options
    training: bool
    optimizer: torch.optim.Optimizer | None
    rng_state: list[int] | None
    args: tuple
    kwargs: dict[str, Any]
    key: str
    schedule: str
    modes: dict[str, bool]
    groupings: dict[str, Grouping]

    @contextlib.contextmanager
    def same_modes(self, model: torch.nn.Module) -> Iterator[None]:
        """The modules in the modes in which the program was compiled."""
        before = {name: module.training for name, module in model.named_modules()}
        try:
            for name, module in model.named_modules():
                module.training = self.modes.get(name, module.training)
            yield
        finally:
            for name, module in model.named_modules():
                module.training = before[name]

    @contextlib.contextmanager
    def cached(self, options: Options) -> Iterator[Options]:
        """Options for compiling with the file's schedule at hand."""
        with tempfile.TemporaryDirectory() as folder:
            Cache(folder).put(self.key, self.schedule)
            own = options.clone()
            own.enableExecutableCaching(folder)
            own._set_frozen(True)
            yield own


def write(
    filename: str,
    *,
    model: torch.nn.Module | None,
    options: Options,
    training: bool,
    optimizer: torch.optim.Optimizer | None,
    rng_state: list[int] | None,
    program: Program,
    modes: dict[str, bool],
    groupings: dict[str, Grouping],
) -> None:
    """Write a program to a file, or into a folder that exists; a file of that name stays as it is until all is written.

    Raises:
        Error: when the disk does not take it, or something in it cannot be pickled.
    """
    path = os.path.join(filename, _NAME) if os.path.isdir(filename) else filename
    expected = program.expected
    examples = [torch.zeros(s, dtype=d) for s, d in zip(expected.shapes, expected.dtypes, strict=True)]
    args, kwargs = tree.unflatten(expected.spelled, examples)
    executable = program.compiled.executable
    contents = {
        "format": _FORMAT,
        "model": model,
        "options": options.clone(),
        "training": training,
        "optimizer": optimizer,
        "rng_state": rng_state,
        "args": args,
        "kwargs": kwargs,
        "key": executable.key,
        "schedule": print_schedule(executable.schedule),
        "modes": modes,
        "groupings": groupings,
    }
    packed = io.BytesIO()
    try:
        torch.save(contents, packed)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise Error(
            f"The model cannot be saved: {error}. Give it only what pickle takes, or leave it out with "
            "export_model=False."
        ) from error
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with whole(Path(path)) as fresh:
            fresh.write_bytes(packed.getbuffer())
    except OSError as error:
        raise Error(f"{path!r} cannot be written: {error.strerror or error}.") from error


def read(filename: str) -> Contents:
    """Read a file. It is a pickle: read only files from those whom you trust.

    Raises:
        Error: when the file cannot be read or is none of these.
    """
    path = os.path.join(filename, _NAME) if os.path.isdir(filename) else filename
    not_one = f"{path!r} is not a file that PoplarExecutor.save or compileAndExport wrote"
    try:
        with open(path, "rb") as file:
            packed = zipfile.is_zipfile(file)
            file.seek(0)
            found = torch.load(file, weights_only=False) if packed else None
    except OSError as error:
        raise Error(f"{path!r} cannot be read: {error.strerror or error}.") from error
    except (ImportError, AttributeError) as error:
        raise Error(f"The model in {path!r} needs its own module to be imported first: {error}.") from error
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise Error(f"{path!r} is damaged: {str(error).splitlines()[0]}.") from error
    if not packed:
        raise Error(f"{not_one}, or it is damaged.")
    if not isinstance(found, dict) or found.pop("format", None) != _FORMAT:
        raise Error(f"{not_one}, or one of another version wrote it.")
    return Contents(**found)

"""Options from text: a file of commands, or a JSON object.

Neither runs arbitrary code. A command of a file is one call on the options, whose arguments are literals,
members of ``poptorch`` or ``torch``, and calls of those.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from abele.tune.options_file import OWN, evaluate_call, own_call

from . import enums
from ._errors import require


class ConfigFileError(Exception):
    """A configuration file could not be read; the message names the line and shows it."""


def load_file(options: Any, path: str) -> None:
    """Apply each command of the file at ``path`` to ``options``.

    A command is what one would write after ``options.`` in a program. Blank lines and comments are skipped, but for
    those that ``abele tune`` writes for what the vendor's options have no word for: ``# abele: stages(4)``.

    Raises:
        ConfigFileError: at the first line that is not a valid command.
    """
    with open(path, encoding="utf-8-sig") as file:
        lines = file.read().splitlines()
    load_lines(options, lines, os.path.basename(path))


def load_lines(options: Any, lines: Iterable[str], name: str) -> None:
    """Apply commands that came from elsewhere, as ``name`` says."""
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        own = text.startswith(OWN)
        if not own and (not text or text.startswith("#")):
            continue
        command = text if own else f"options.{text}"
        try:
            if own:
                options._own.update([own_call(text)])
            else:
                _run_command(options, command)
        except Exception as error:
            message = error.msg if isinstance(error, SyntaxError) else error
            raise ConfigFileError(
                f"{type(error).__name__} at line {number} of {name}: {message}\n> {command}"
            ) from error


def load_json(options: Any, text: str) -> None:
    """Apply a JSON object to ``options``: method names as keys, the argument or list of arguments as values.

    A key may reach into a group (``"Precision.enableStochasticRounding"``); a string that names a member of
    an enumeration (``"ConnectionType.OnDemand"``) stands for that member.
    """
    values = json.loads(text)
    require(isinstance(values, dict), "The options must be a JSON object.")
    for key, value in values.items():
        target: Any = options
        *groups, method = key.split(".")
        for group in groups:
            target = getattr(target, group)
        call = getattr(target, method)
        require(callable(call), f"The option {key!r} cannot be set: name the method that sets it.")
        arguments = value if isinstance(value, list) else [value]
        call(*[_enum_member(a) for a in arguments])


def _enum_member(value: Any) -> Any:
    """The member of an enumeration that a string such as ``"OutputMode.All"`` names, or the value itself."""
    if not isinstance(value, str):
        return value
    kind, _, member = value.removeprefix("poptorch.").partition(".")
    found = getattr(enums, kind, None) if kind.isidentifier() else None
    return getattr(found, member) if isinstance(found, type) and hasattr(found, member) else value


def _run_command(options: Any, command: str) -> None:
    import torch

    import poptorch

    evaluate_call(command, {"options": options, "poptorch": poptorch, "torch": torch})

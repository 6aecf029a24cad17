"""The machine as the vendor's API sees it: is there one, which version, is it waited for.

Abele runs every program on a modelled machine. Programs ask for hardware to choose between paths, so the
answer can be set: the environment variable ``ABELE_IPU_HARDWARE`` holds the number of IPUs that the computer
claims to have, optionally followed by ``@mk2`` or ``@bow``. Unset or 0 means none, as on a computer without the
vendor's hardware.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ._errors import Error, require

if TYPE_CHECKING:
    from .options import Options

HARDWARE_VARIABLE = "ABELE_IPU_HARDWARE"
_VERSIONS = {"mk1": 1, "mk2": 2, "bow": 21}


def _hardware() -> tuple[int, int]:
    """``(number of IPUs, version)`` that the environment claims."""
    text = os.environ.get(HARDWARE_VARIABLE, "0").strip()
    count, _, version = text.partition("@")
    if not count.isdecimal() or (version and version not in _VERSIONS):
        raise Error(f"{HARDWARE_VARIABLE}={text!r} is not understood: give the number of IPUs, as in 4 or 4@bow.")
    return int(count), _VERSIONS[version or "mk2"]


def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:
    """Whether there are at least ``num_ipus`` IPUs, as ``ABELE_IPU_HARDWARE`` says (default: none)."""
    require(isinstance(num_ipus, int) and num_ipus > 0, f"The number of IPUs is 1 or more, not {num_ipus!r}.")
    return _hardware()[0] >= num_ipus


def ipuHardwareVersion() -> int:
    """The version of the IPUs: 2 for Mk2, 21 for Bow.

    Raises:
        Error: when there are none.
    """
    count, version = _hardware()
    if count == 0:
        raise Error(f"There are no IPUs. Set {HARDWARE_VARIABLE}, for example to 4, to claim some.")
    return version


def _flag(name: str) -> bool | None:
    value = os.environ.get(name)
    return None if value is None else value.strip().lower() in ("1", "true", "yes", "on")


def ipu_model_chosen(options: Options) -> bool:
    """Whether the program asks for the IPU model: by its options, else by ``POPTORCH_IPU_MODEL``."""
    chosen = options.use_model
    if chosen is None:
        chosen = _flag("POPTORCH_IPU_MODEL") or _flag("POPTORCH_SMALL_IPU_MODEL")
    return bool(chosen)


def waits_for_ipu() -> bool:
    """Whether attaching waits for a free device (``POPTORCH_WAIT_FOR_IPU``); the modelled one is always free."""
    return bool(_flag("POPTORCH_WAIT_FOR_IPU"))

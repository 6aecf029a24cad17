"""The machine as the vendor's API sees it: is there one, and which version.

Abele runs every program on a modelled machine. Programs ask for hardware to choose between paths, so the
answer can be set: the environment variable ``ABELE_IPU_HARDWARE`` holds the number of IPUs that the computer
claims to have, optionally followed by ``@mk2`` or ``@bow``. Unset or 0 means none, as on a computer without the
vendor's hardware.
"""

from __future__ import annotations

import os

from ._errors import Error, whole_number

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
    return _hardware()[0] >= whole_number("ipuHardwareIsAvailable", num_ipus)


def ipuHardwareVersion() -> int:
    """The version of the IPUs: 2 for Mk2, 21 for Bow.

    Raises:
        Error: when there are none.
    """
    count, version = _hardware()
    if count == 0:
        raise Error(f"There are no IPUs. Set {HARDWARE_VARIABLE}, for example to 4, to claim some.")
    return version

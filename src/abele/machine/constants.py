"""A number with its unit, its source and how far to trust it: what descriptions of machines are made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from numbers import Integral, Real
from typing import Any, Literal, get_args

from abele.errors import InvalidOption, suggest

Confidence = Literal["measured", "published", "derived", "assumed"]
"""``measured`` on a real machine, ``published`` by the maker or in its libraries, ``derived`` from such
numbers by arithmetic, ``assumed`` where no public source gives the number."""

CONFIDENCES: tuple[str, ...] = get_args(Confidence)


@dataclass(frozen=True, slots=True)
class Constant:
    """One number of a machine: ``value`` in ``unit``, with ``source`` (public) and ``confidence``."""

    value: float | int
    unit: str
    source: str
    confidence: Confidence

    def __post_init__(self) -> None:
        if self.confidence not in CONFIDENCES:
            raise ValueError(f"confidence {self.confidence!r} is none of {', '.join(CONFIDENCES)}")
        if not self.source:
            raise ValueError("a constant needs a source; say 'assumed, because …' where there is none")


DTYPE_BYTES: dict[str, int] = {
    "f64": 8,
    "f32": 4,
    "f16": 2,
    "bf16": 2,
    "f8": 1,
    "f143": 1,
    "f152": 1,
    "i64": 8,
    "u64": 8,
    "i32": 4,
    "u32": 4,
    "i16": 2,
    "u16": 2,
    "i8": 1,
    "u8": 1,
    "bool": 1,
}
"""Bytes of one element in tile memory, by the short name of its dtype; ``f8`` stands for either 8-bit float."""

FLOAT8 = ("f8", "f143", "f152")
"""Names of 8-bit floats."""


def dtype_bytes(dtype: str) -> int:
    """Bytes of one element of ``dtype``; a name outside `DTYPE_BYTES` raises ``InvalidOption``."""
    try:
        return DTYPE_BYTES[dtype]
    except KeyError:
        raise InvalidOption(f"No dtype '{dtype}'", remedy=suggest(dtype, DTYPE_BYTES)) from None


def number(unit: str, default: float | None = None) -> Any:
    """A dataclass field that holds a plain number in ``unit`` and has a `Constant` behind it."""
    return field(metadata={"unit": unit}) if default is None else field(default=default, metadata={"unit": unit})


def number_fields(record: Any) -> dict[str, str]:
    """Unit by name of every numeric field of a description (a class or one of its objects)."""
    return {f.name: f.metadata["unit"] for f in dataclasses.fields(record) if "unit" in f.metadata}


def complete(record: Any, constants: Mapping[str, Constant]) -> dict[str, Constant]:
    """The `Constant` of every numeric field; one that ``constants`` lacks, or contradicts, is the user's."""
    found: dict[str, Constant] = {}
    for name, unit in number_fields(record).items():
        value = getattr(record, name)
        known = constants.get(name)
        if known is None or known.value != value:
            known = Constant(value, unit, f"the description of '{record.name}'", "assumed")
        found[name] = known
    return found


def changed(record: Any, changes: Mapping[str, float | Constant], constants: dict[str, Constant]) -> dict[str, Any]:
    """Field values for ``changes``, the names checked; sources given with them go into ``constants``."""
    known = number_fields(record)
    values: dict[str, Any] = {}
    for name, change in changes.items():
        if name not in known:
            kind = type(record).__name__.lower()
            raise InvalidOption(f"A {kind} has no numeric field '{name}'", remedy=suggest(name, known))
        if isinstance(change, Constant):
            constants[name] = change
            values[name] = change.value
        else:
            values[name] = change
    return values


def checked(record: Any, whole: tuple[str, ...]) -> None:
    """Refuse values that are no finite, non-negative numbers, and fractions in the fields ``whole``."""
    for name in dict.fromkeys((*number_fields(record), *whole)):
        value = getattr(record, name)
        counts = name in whole
        if isinstance(value, Integral if counts else Real) and 0 <= float(value) < inf:
            continue
        kind, wanted = type(record).__name__.lower(), "a whole number" if counts else "a finite number"
        raise InvalidOption(
            f"The {kind} '{record.name}' has {value!r} as {name}", remedy=f"Give {wanted}, not negative."
        )

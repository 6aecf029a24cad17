"""What a sweep varies: numeric fields of the chip and the system, and options of the program, by name."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from abele import programs
from abele.errors import InvalidOption, suggest
from abele.machine.chip import Chip
from abele.machine.constants import number_fields
from abele.machine.system import System

Point = Mapping[str, Any]
"""One combination: value by field name."""


def _numbers(record: type) -> dict[str, type]:
    """The numeric fields of a description with their kinds."""
    types = {f.name: {"int": int, "float": float}.get(str(f.type), float) for f in fields(record)}
    return {name: types[name] for name in number_fields(record)}


def _kind(annotation: Any) -> type:
    return next(kind for kind in (get_args(annotation) or (annotation,)) if kind in (bool, int, float, str))


def _options() -> dict[str, type]:
    """Options of the program with their kinds: what ``programs`` takes to capture and to compile."""
    signature = inspect.signature(programs.compile_options, eval_str=True)
    found = {p.name: _kind(p.annotation) for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY}
    del found["system"]
    return {"batch": int, "half": bool} | found


CHIP = _numbers(Chip)
SYSTEM = _numbers(System) | {"ipus": int}
PROGRAM = _options()
FIELDS: Mapping[str, type] = PROGRAM | SYSTEM | CHIP
"""Everything that can be varied, with the kind of its values."""
UNITS: Mapping[str, str] = number_fields(System) | number_fields(Chip)
"""Units of the fields of chip and system."""
SYNONYMS = {"micro_batch": "batch", "accumulation": "accumulate"}


def parse(settings: Iterable[str]) -> dict[str, list[Any]]:
    """The values of every field, from texts ``name=value,value``.

    Raises:
        InvalidOption: no such field (near names are suggested), one that is given twice, or a value of another kind.
    """
    found: dict[str, list[Any]] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        name = name.strip().removeprefix("chip.")  # as `abele systems` lists them
        name = SYNONYMS.get(name, name)
        if name not in FIELDS:
            raise InvalidOption(
                f"There is no field {name!r} of chip, system or program",
                remedy=suggest(name, FIELDS) or "`abele systems NAME` lists those of chip and system.",
            )
        if name in found:
            raise InvalidOption(f"{name} is set twice", remedy=f"Give all its values at once: {name}=VALUE,VALUE.")
        texts = [part.strip() for part in text.split(",") if part.strip()]
        if not equals or not texts:
            raise InvalidOption(f"{setting!r} gives {name} no value", remedy=f"Write {name}=VALUE,VALUE.")
        found[name] = list(dict.fromkeys(programs.setting_value(name, FIELDS[name], part) for part in texts))
    return found


def combinations(values: Mapping[str, Sequence[Any]]) -> list[Point]:
    """Every combination, the last field fastest."""
    return [dict(zip(values, choice, strict=True)) for choice in itertools.product(*values.values())]


def varied(points: Sequence[Point]) -> list[str]:
    """The fields that have more than one value among the points."""
    names = dict.fromkeys(name for point in points for name in point)
    return [name for name in names if len({point.get(name) for point in points}) > 1]


def fixed(points: Sequence[Point]) -> str:
    """The fields that have one value in all points, with it; empty where there are none."""
    names = [name for name in points[0] if name not in varied(points)] if points else []
    return ", ".join(f"{name} {shown(points[0][name])}" for name in names)


def shown(value: object) -> str:
    """A value for people."""
    if isinstance(value, bool | str):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def heading(points: Sequence[Point], row: Mapping[str, Any]) -> str:
    """What a sweep is of: model and machine, files by their last name, the mode, and what is the same in all points."""
    names = [Path(row["model"]).name, row["mode"], Path(row["system"]).name]
    return ", ".join([*names, *([fixed(points)] if fixed(points) else [])])


def machine(system: System, point: Point) -> System:
    """The system with the point's fields of chip and system; what a machine cannot be raises ``InvalidOption``."""
    chip = {name: point[name] for name in CHIP if name in point}
    own = {name: point[name] for name in SYSTEM if name in point and name != "ipus"}
    if chip or own:
        changed = system.chip.derive(system.chip.name, **chip) if chip else None
        system = system.derive(system.name, chip=changed, **own)
    return system.with_ipus(point["ipus"], system.name) if "ipus" in point else system

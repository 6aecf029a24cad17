"""Cases: published measurements as records, read from CSV files of one documented schema (``docs/validation.md``)."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any

from abele.errors import InvalidOption, suggest

METRICS = ("cycles", "time", "latency", "throughput", "bandwidth", "flops", "rate")
"""What was measured. ``rate`` is cycles for one more row or element, the slope of a family of measurements."""

UNITS: Mapping[str, tuple[str, float]] = {
    "cycles": ("cycles", 1.0),
    "cycles/row": ("rate", 1.0),
    "cycles/element": ("rate", 1.0),
    "s": ("seconds", 1.0),
    "ms": ("seconds", 1e3),
    "us": ("seconds", 1e6),
    "min": ("seconds", 1 / 60),
    "samples/s": ("samples", 1.0),
    "TFLOPS": ("flops", 1e-12),
    "GFLOPS": ("flops", 1e-9),
    "TB/s": ("bytes", 1e-12),
    "GB/s": ("bytes", 1e-9),
    "GPts/s": ("points", 1e-9),
    "x": ("factor", 1.0),
}
"""Units of a value: the quantity behind it and how many units one of it is. Where the quantity is samples, flops,
bytes or points, the value is that quantity a second."""

CONFIGURATIONS = ("known", "guessed")
BOUNDS = ("device", "host", "unstated")
FITS = ("calibration", "validation")
MODES = ("", "infer", "train")


@dataclass(frozen=True)
class Case:
    """One published measurement and the configuration that it was made with.

    Attributes:
        id: of its own among the cases of a file.
        family: which runner takes it, and the line of the summary that it counts in.
        model: a model (``resnet50``), a vertex (``AmpNx1``), an operation (``matmul``) or a constant
            (``chip.sync_cycles``), by family.
        system, ipus: the machine by name, and how many of its IPUs were used.
        mode: ``train``, ``infer`` or empty.
        dtype, partials: ``f16``, ``f32`` (``f8``); partials empty where they do not matter.
        micro_batch, replicas, accumulation: samples of a micro-batch on a replica; micro-batches of a weight update.
        sequence_length: tokens of a sample, 0 where there are none.
        layers: layers of each pipeline stage; empty without a pipeline.
        recompute: one of ``passes.recompute.HOW``.
        options: everything else that the runner of the family takes, by name.
        metric, value, unit: what was measured; a unit of ``UNITS``.
        source: where the value is published.
        noise: relative scatter of the source in percent, 0 where it states none.
        configuration, guessed: ``known`` or ``guessed``, and what was guessed.
        bound: ``device``, ``host`` (the host's work or its link decides), or ``unstated``.
        fit: ``calibration`` rows may set constants, ``validation`` rows never.
    """

    id: str
    family: str
    model: str
    system: str
    metric: str
    value: float
    unit: str
    source: str
    ipus: int = 1
    mode: str = ""
    dtype: str = "f16"
    partials: str = ""
    micro_batch: int = 1
    replicas: int = 1
    accumulation: int = 1
    sequence_length: int = 0
    layers: tuple[int, ...] = ()
    recompute: str = "none"
    options: Mapping[str, Any] = field(default_factory=dict)
    noise: float = 0.0
    configuration: str = "known"
    guessed: str = ""
    bound: str = "device"
    fit: str = "validation"

    @property
    def headline(self) -> bool:
        """Whether it counts in the figures of known configuration and device-bound time."""
        return self.configuration == "known" and self.bound == "device"

    @property
    def is_rate(self) -> bool:
        """Whether more is faster: samples, flops, bytes or points a second."""
        return UNITS[self.unit][0] in ("samples", "flops", "bytes", "points")

    def option(self, name: str, default: Any = None) -> Any:
        """An option, or ``default``; without a default a missing one raises ``InvalidOption``."""
        if name not in self.options and default is None:
            raise InvalidOption(
                f"The case {self.id!r} of family {self.family!r} has no option {name!r}",
                remedy=f"Add {name}=… to its options.",
            )
        return self.options.get(name, default)


COLUMNS = tuple(f.name for f in fields(Case))
"""Names of the columns, in any order in a file."""

REQUIRED = ("id", "family", "model", "system", "metric", "value", "unit", "source")
_CHOICES = {
    "metric": METRICS,
    "unit": tuple(UNITS),
    "mode": MODES,
    "configuration": CONFIGURATIONS,
    "bound": BOUNDS,
    "fit": FITS,
}
_WHOLE = ("ipus", "micro_batch", "replicas", "accumulation", "sequence_length")


def read_cases(path: Path | str) -> list[Case]:
    """The cases of one CSV file.

    Raises:
        InvalidOption: the file cannot be read, lacks a column, or a line does not fit the schema; names file and line.
    """
    path = Path(path)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return parse_cases(file, str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOption(f"The cases {str(path)!r} cannot be read: {error}") from error


def parse_cases(lines: Iterable[str], name: str) -> list[Case]:
    """As ``read_cases``, from lines of text; ``name`` is for messages."""
    reader = csv.DictReader(lines)
    columns = reader.fieldnames or ()
    missing = [c for c in REQUIRED if c not in columns]
    if missing:
        raise InvalidOption(
            f"{name} has no column {missing[0]!r}", remedy=f"The first line names the columns; needed: {REQUIRED}."
        )
    unknown = [c for c in columns if c not in COLUMNS]
    if unknown:
        raise InvalidOption(f"{name} has a column {unknown[0]!r}", remedy=suggest(unknown[0], COLUMNS))
    cases, seen = [], set()
    for row in reader:
        where = f"{name}, line {reader.line_num}"
        case = _case(row, where)
        if case.id in seen:
            raise InvalidOption(f"{where}: the id {case.id!r} stands there twice", remedy="Give each case its own.")
        seen.add(case.id)
        cases.append(case)
    return cases


def builtin_cases() -> list[Case]:
    """The cases that come with Abele: vertices, operations and models."""
    found = []
    folder = resources.files("abele.cost") / "data"
    for name in ("vertices.csv", "operations.csv", "models.csv"):
        found += parse_cases((folder / name).read_text(encoding="utf-8").splitlines(keepends=True), name)
    return found


def _case(row: Mapping[str, Any], where: str) -> Case:
    if None in row or None in row.values():
        raise InvalidOption(f"{where}: more or fewer fields than columns", remedy='Quote fields with commas in ".."')
    given = {k: v.strip() for k, v in row.items() if v.strip()}
    for name in REQUIRED:
        if name not in given:
            raise InvalidOption(f"{where}: {name} is empty")
    for name, choices in _CHOICES.items():
        if name in given and given[name] not in choices:
            raise InvalidOption(f"{where}: {name} is {given[name]!r}", remedy=suggest(given[name], choices))
    try:
        values: dict[str, Any] = dict(given)
        values |= {name: int(given[name]) for name in _WHOLE if name in given}
        values |= {name: float(given[name]) for name in ("value", "noise") if name in given}
        if "layers" in given:
            values["layers"] = numbers(given["layers"])
        values["options"] = _options(given.get("options", ""))
        if values["value"] < 0:
            raise ValueError(f"the value {values['value']} is negative")
    except ValueError as error:
        raise InvalidOption(f"{where}: {error}", remedy="See docs/validation.md for the schema.") from None
    return Case(**values)


def numbers(text: Any) -> tuple[int, ...]:
    """Whole numbers between slashes: ``3/7/7/7``."""
    return tuple(int(part) for part in str(text).split("/"))


def _options(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in text.split(";"))):
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"the option {part!r} is not name=value")
        found[name.strip()] = _value(value.strip())
    return found


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text

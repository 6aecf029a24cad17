"""One point of a sweep: compiled for its machine and charged; a row of plain values comes back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from abele import programs, user
from abele.charge.records import PARTS
from abele.compile.cache import Cache
from abele.compile.executable import compile_graph, key_of, source_digest
from abele.compile.pipelines import CompileOptions
from abele.cost import cost
from abele.errors import AbeleError
from abele.ir.operation import OPERATIONS
from abele.machine.system import System, find_system
from abele.programs import Loaded
from abele.sweep.points import PROGRAM, Point, machine

Row = dict[str, Any]
"""The point's fields, ``model``, ``system``, ``mode``, and the results: see ``RESULTS``."""

RESULTS: Mapping[str, str] = {
    "fits": "bool",
    "bound": "string",  # the kind of cycles that takes most of the time
    "seconds": "float64",  # of one device iteration
    "throughput": "float64",  # samples/s
    "samples": "int64",  # in one device iteration
    "cycles": "float64",
    **{f"cycles_{part}": "float64" for part in PARTS},
    "energy_joules": "float64",  # of one device iteration
    "joules_per_sample": "float64",
    "memory_max": "int64",  # bytes on the fullest tile
    "memory_limit": "int64",  # bytes that it has
    "ipus_used": "int64",
    "peak_fraction": "float64",
    "error": "string",  # why there are no results, or empty
    "key": "string",  # digest of all that decides the results, empty where there are none
}
"""Columns of the results with their types, by Arrow's names."""

CAPTURED = ("batch", "half")
"""Program options that the model is captured with."""


@dataclass
class Sweep:
    """A model and a machine; called with a point it gives its row. It travels to other processes and machines.

    Attributes:
        model, train, small, output: as ``programs.load`` takes them.
        system: the machine that points change, by name or as ``file.py:name``, which every process loads for itself.
        cache: directory of the cache of executables, ``None`` to compile afresh.
        captured: the model as it was captured for each value of ``CAPTURED``, or why it could not be.
    """

    model: str
    system: str
    train: bool = False
    small: bool = False
    cache: str | None = None
    output: str = "loss"
    captured: dict[tuple[Any, ...], Loaded | str] = field(default_factory=dict)
    _digests: dict[tuple[Any, ...], str] = field(default_factory=dict)

    def capture(self, points: Sequence[Point], tell: Callable[[str, str], None] = lambda program, step: None) -> None:
        """Capture the model for all points, here and now: who maps the sweep over them needs no torch.

        Raises:
            AbeleError: it can be captured for none of them.
        """
        refused: AbeleError | None = None
        for point in points:
            key = _captured_as(point)
            if key in self.captured:
                continue
            batch, half = key
            tell(self.model, f"capture, batch {batch}")
            try:
                found = programs.load(
                    self.model, batch=batch, train=self.train, half=half, small=self.small, output=self.output
                )
            except AbeleError as error:
                self.captured[key] = f"{type(error).__name__}: {error}"
                refused = refused or error
                continue
            self.captured[key] = found
            self._digests[key] = key_of(found.graph, CompileOptions(find_system("bow")))
        if refused is not None and not self._digests:
            raise refused

    def key(self, point: Point) -> str:
        """A digest of all that decides the point's results: program, machine, options, Abele's own source."""
        loaded = self.captured[_captured_as(point)]
        if isinstance(loaded, str):
            return ""
        try:
            system, options = self._asked(point, loaded)
        except AbeleError:
            return ""
        program = self._digests[_captured_as(point)]
        charging = source_digest("cost")
        text = f"{program}{options.describe()}{self._samples(loaded, options)}{charging}{system.name}"
        return hashlib.sha256(text.encode()).hexdigest()

    def __call__(self, point: Point) -> Row:
        mode = "training" if self.train else "inference"
        row: Row = {"model": self.model, "system": self.system, "mode": mode, **point}
        row |= dict.fromkeys(RESULTS) | {"error": "", "key": ""}
        loaded = self.captured[_captured_as(point)]
        if isinstance(loaded, str):
            return row | {"error": loaded}
        try:
            return row | self._results(point, loaded) | {"key": self.key(point)}
        except Exception as error:  # a user's chip may raise anything; one point must not end the others
            return row | {"error": f"{type(error).__name__}: {error}"}

    def _results(self, point: Point, loaded: Loaded) -> Row:
        system, options = self._asked(point, loaded)
        if any(op.name not in OPERATIONS for g in loaded.graph.all_graphs() for op in g.operations):
            user.load_file(self.model.rpartition(":")[0])  # the user's file registers operations of its own
        cache = Cache(self.cache) if self.cache is not None else None
        executable = compile_graph(loaded.graph, options, cache=cache)
        samples = self._samples(loaded, options)
        profile = cost(executable.schedule, system, samples=samples)
        cycles, memory = profile.cycles.as_dict(), profile.memory
        return {
            "fits": memory.fits,
            "bound": max(cycles, key=lambda part: cycles[part]),
            "seconds": profile.seconds,
            "throughput": profile.throughput,
            "samples": samples,
            "cycles": profile.cycles.total,
            **{f"cycles_{part}": float(cycles[part]) for part in PARTS},
            "energy_joules": profile.energy.joules,
            "joules_per_sample": profile.energy.joules / samples,
            "memory_max": int(memory.max),
            "memory_limit": int(memory.limit),
            "ipus_used": profile.ipus * profile.replicas,
            "peak_fraction": profile.peak_fraction,
        }

    def _asked(self, point: Point, loaded: Loaded) -> tuple[System, CompileOptions]:
        system = machine(find_system(self.system), point)
        settings = {name: point[name] for name in PROGRAM if name in point and name not in CAPTURED}
        usual = programs.usual_accumulation(settings.get("stages", 1), settings.get("phased", ""))
        settings.setdefault("accumulate", usual)
        return system, programs.compile_options(loaded, system=system, **settings)

    def _samples(self, loaded: Loaded, options: CompileOptions) -> int:
        return loaded.batch * options.accumulation * options.replicas


def _captured_as(point: Point) -> tuple[int, bool]:
    return point.get("batch", 1), point.get("half", False)


def default_cache() -> str:
    """The directory of the cache of executables of this user."""
    return str(Path(Cache().directory).resolve())

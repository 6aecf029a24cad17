"""One point tried: compiled, charged, and kept as the few figures that a search compares."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from abele import programs
from abele.compile.cache import Cache
from abele.compile.executable import compile_graph, key_of, source_digest
from abele.compile.pipelines import CompileOptions
from abele.cost.profile import Profile, cost
from abele.errors import AbeleError
from abele.programs import Loaded
from abele.tune.space import Point, Wanted

VERSION = 1
"""Of what is kept of a trial in the cache."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What a point costs.

    Attributes:
        max: bytes on the fullest tile; ``limit`` what a tile has.
        seconds, joules: of one device iteration of ``point.samples`` samples, over all replicas.
        cycles: share of the time by kind.
        error: why it could not be compiled, or empty.
    """

    point: Point
    max: int = 0
    limit: int = 0
    seconds: float = 0.0
    joules: float = 0.0
    cycles: Mapping[str, float] = field(default_factory=dict)
    error: str = ""

    @property
    def fits(self) -> bool:
        return not self.error and self.max <= self.limit

    @property
    def throughput(self) -> float:
        """Samples a second."""
        return self.point.samples / self.seconds if self.seconds else 0.0

    def objective(self, goal: str) -> float:
        """Seconds a sample, seconds, or joules a sample: the less the better."""
        if goal == "latency":
            return self.seconds
        return (self.joules if goal == "energy" else self.seconds) / self.point.samples

    def to_json(self) -> dict[str, Any]:
        if self.error:
            return {"settings": self.point.settings(), "fits": False, "error": self.error}
        return {
            "settings": self.point.settings(),
            "samples": self.point.samples,
            "ipus": self.point.ipus,
            "fits": self.fits,
            "max": self.max,
            "limit": self.limit,
            "throughput": self.throughput,
            "seconds": self.seconds,
            "joules_per_sample": self.joules / self.point.samples,
            "cycles": dict(self.cycles),
        }


def died(point: Point, status: int | None) -> Trial:
    """The trial of a point whose process ended by itself."""
    return Trial(point, error=f"The process that tried it ended with {status}.")


class Trials:
    """Tries points of one request. Each micro-batch is captured once; figures are kept in the cache of profiles."""

    def __init__(self, wanted: Wanted, loaded: Loaded, cache: Cache | None) -> None:
        self.wanted, self.cache = wanted, cache
        self._loaded = {loaded.batch: loaded}

    def loaded(self, batch: int) -> Loaded:
        if batch not in self._loaded:
            self._loaded[batch] = self.wanted.load(batch)
        return self._loaded[batch]

    def options(self, point: Point) -> CompileOptions:
        """The compiler's options of a point."""
        settings = {name: value for name, value in point.settings().items() if name != "batch"}
        loaded = self.loaded(point.batch)
        w = self.wanted
        options = programs.compile_options(
            loaded, system=w.system, optimizer=w.optimizer, planner=w.planner, **settings
        )
        placed = any(op.origin.stage for op in loaded.graph.operations)
        # beside compute, transfers give more samples a second, and one sample its answer no sooner
        return replace(options, split=options.split and not placed, beside=w.goal != "latency")

    def profile(self, point: Point, **changes: Any) -> Profile:
        """The whole profile of a point, with ``changes`` to its compiler's options."""
        options = replace(self.options(point), **changes)
        executable = compile_graph(self.loaded(point.batch).graph, options)
        return cost(executable.schedule, options.system, samples=point.samples)

    def __call__(self, point: Point) -> Trial:
        try:
            key = self._key(point)
            known = self.cache.profiles.get(key) if self.cache is not None else None
            if known is not None:
                return Trial(point, **json.loads(known))
            trial = self._tried(point)
        except AbeleError as error:
            return Trial(point, error=str(error))
        if self.cache is not None:
            figures = {name: value for name, value in asdict(trial).items() if name != "point"}
            self.cache.profiles.put(key, json.dumps(figures))
        return trial

    def _key(self, point: Point) -> str:
        executable = key_of(self.loaded(point.batch).graph, self.options(point))
        return f"{executable}-{source_digest('cost')[:16]}-{point.samples}-trial{VERSION}"

    def _tried(self, point: Point) -> Trial:
        found = self.profile(point)
        total = found.cycles.total or 1.0
        shares = {kind: part / total for kind, part in found.cycles.as_dict().items() if part}
        memory = found.memory
        return Trial(point, memory.max, memory.limit, found.seconds, found.energy.joules, shares)

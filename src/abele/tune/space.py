"""The space that is searched: which settings there are, which of them go together, and bounds known without compiling.

A point is one choice of all settings. The accumulation follows from the others where the user does not choose it: the
time of a step is a constant and a multiple of the accumulation, so that the largest one gives the highest throughput
and the smallest the lowest latency, whatever the rest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, get_type_hints

from abele import programs
from abele.compile.passes.sharding import USUAL
from abele.compile.passes.split import bottleneck, shares
from abele.compile.passes.update import STATES
from abele.compile.pipelines import CompileOptions
from abele.errors import InvalidOption, suggest
from abele.ir.operation import flops, has
from abele.ir.rules import CONTROL
from abele.machine.system import System
from abele.ops.plans.planning import PlanOptions
from abele.programs import OPTIMISERS, Loaded
from abele.schedule.records import PIPELINES

GOALS = ("throughput", "latency", "energy")
LARGEST_BATCH = 1024
"""Samples in a step, at most, where the user names no number."""

TRAINING = ("checkpoints", "layers", "standard", "recompute_all")
"""Recomputations that are searched: without ``pipeline``, which keeps the last stage's values alone, ``none``, which
undoes what the model's author asked for, and ``norm_only``, which saves least."""

PROPORTIONS = (0.1, 0.2, 0.4, 0.6, 0.9)
MOST_STAGES = 64


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """One choice of all settings; the names are those of ``abele profile``."""

    batch: int
    stages: int
    pipeline: str
    replicas: int
    accumulate: int
    recompute: str
    offload: bool
    shard: int
    partials: str
    memory_proportion: float

    @property
    def samples(self) -> int:
        """Samples of one step, over all replicas: the global batch."""
        return self.batch * self.replicas * self.accumulate

    @property
    def ipus(self) -> int:
        return self.stages * self.replicas

    def settings(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


SETTINGS = tuple(f.name for f in fields(Point))


@dataclass(frozen=True)
class Wanted:
    """What is asked for.

    Attributes:
        model: as ``programs.load`` takes it, with ``train``, ``half``, ``small``, ``output`` and ``optimizer``.
        system: the machine.
        goal: one of ``GOALS``: samples a second, seconds of a device iteration, or joules a sample.
        global_batch: samples in a step, exactly; or ``None``, when ``largest_batch`` bounds them.
        only: values to which settings are restricted, by name.
        planner: that of all points, see ``PlanOptions``.
    """

    model: str
    system: System
    train: bool = False
    half: bool = False
    small: bool = False
    optimizer: str = "sgd"
    goal: str = "throughput"
    global_batch: int | None = None
    largest_batch: int = LARGEST_BATCH
    only: Mapping[str, tuple] = field(default_factory=dict)
    planner: str = "best"
    output: str = "loss"

    def __post_init__(self) -> None:
        if self.goal not in GOALS:
            raise InvalidOption(f"There is no goal {self.goal!r}", remedy=suggest(self.goal, GOALS))
        if self.optimizer not in programs.OPTIMISERS:
            raise InvalidOption(
                f"There is no optimizer {self.optimizer!r}", remedy=suggest(self.optimizer, programs.OPTIMISERS)
            )
        for name, values in self.only.items():
            _check(name, values, self.system)

    def load(self, batch: int) -> Loaded:
        """The model, captured with this micro-batch."""
        return programs.load(
            self.model, batch=batch, train=self.train, half=self.half, small=self.small, output=self.output
        )


def _check(name: str, values: tuple[Any, ...], system: System) -> None:
    """Refuse a restriction to values that the compiler does not take, or for which the system has too few IPUs."""
    if name not in SETTINGS:
        raise InvalidOption(f"There is no setting {name!r} to restrict", remedy=suggest(name, SETTINGS))
    for value in values:
        if name == "batch":
            if value < 1:
                raise InvalidOption(f"batch is {value}", remedy="It must be at least 1.")
        elif name == "memory_proportion":
            PlanOptions(value)
        else:
            CompileOptions(system, **{"accumulation" if name == "accumulate" else name: value})
        if name in ("stages", "replicas") and value > system.ipus:
            raise InvalidOption(
                f"{name}={value} needs {value} IPUs, the system {system.name!r} has {system.ipus}: "
                f"{value - system.ipus} too few",
                remedy="Choose a larger system (`abele systems` lists them), or a smaller number.",
            )


def parse_only(text: str) -> tuple[str, tuple]:
    """A restriction as the command takes it: ``stages=2,4``."""
    name, equals, listed = text.partition("=")
    if not equals or name not in SETTINGS:
        raise InvalidOption(
            f"{text!r} restricts no setting", remedy=f"Write NAME=VALUE[,VALUE…]; the names are {', '.join(SETTINGS)}."
        )
    kind = get_type_hints(Point)[name]
    return name, tuple(dict.fromkeys(programs.setting_value(name, kind, value.strip()) for value in listed.split(",")))


@dataclass(frozen=True)
class Space:
    """All points for a request; ``loaded`` is the model with the smallest micro-batch."""

    wanted: Wanted
    loaded: Loaded

    # what the model says ----------------------------------------------------------------------------------

    @cached_property
    def placed(self) -> int:
        """Stages into which the model's own annotations cut it, or 0 where the compiler may choose."""
        stages = 1 + max((op.origin.stage for op in self.loaded.graph.operations), default=0)
        return stages if stages > 1 else 0

    @cached_property
    def weights(self) -> int:
        """Bytes of the model's state."""
        return sum(v.type.bytes for v in self.loaded.graph.inputs_of("state").values())

    @cached_property
    def optimiser(self) -> int:
        """Bytes of the optimiser's tensors (float, see ``Optimiser.state_dtype``); 0 for inference."""
        if not self.loaded.train:
            return 0
        states = self.loaded.graph.inputs_of("state")
        elements = sum(states[name].type.size for name in self.loaded.parameters if name in states)
        return 4 * elements * len(STATES[OPTIMISERS[self.wanted.optimizer][0]])

    @cached_property
    def work(self) -> int:
        """Flops of a sample, forward."""
        operations = self.loaded.graph.operations
        return sum(flops(op) for op in operations if op.name not in CONTROL) // self.loaded.batch

    @cached_property
    def data(self) -> int:
        """Bytes of a sample."""
        return sum(v.type.bytes for v in self.loaded.graph.inputs_of("data").values()) // self.loaded.batch

    @cached_property
    def shares(self) -> dict[int, float]:
        """For each useful number of stages, the share of the work that falls to the largest.

        Useful are powers of two, and numbers of which no smaller one has a largest stage as small.
        """
        if self.placed:
            return {self.placed: 1 / self.placed}
        only = self.wanted.only.get("stages")
        if only is not None:
            return {n: bottleneck(self.loaded.graph, n) for n in sorted(only)}
        most = min(self.wanted.system.ipus, MOST_STAGES, len(self.loaded.graph.operations))
        twos = (2**i for i in range(most.bit_length()) if 2**i <= most)
        found = {n: bottleneck(self.loaded.graph, n) for n in twos} | shares(self.loaded.graph, most)
        return dict(sorted(found.items()))

    # values -----------------------------------------------------------------------------------------------

    @cached_property
    def values(self) -> dict[str, tuple]:
        """The values of each setting that is chosen freely, in the order in which neighbours follow one another."""
        train, system, optimizer = self.loaded.train, self.wanted.system, OPTIMISERS[self.wanted.optimizer][0]
        free = {
            "batch": self._batches(),
            "stages": tuple(self.shares),
            "pipeline": PIPELINES,
            "replicas": tuple(range(1, system.ipus + 1)),
            "recompute": TRAINING if train else ("checkpoints",),
            "offload": (False, True) if train and STATES[optimizer] else (False,),
            "shard": (0, USUAL) if train and STATES[optimizer] else (0,),
            "partials": ("", "f16") if self.wanted.half else ("",),
            "memory_proportion": PROPORTIONS,
        }
        return {name: self.wanted.only.get(name, values) for name, values in free.items()}

    def _batches(self) -> tuple[int, ...]:
        """Divisors of the global batch, or powers of two, as long as the data of a micro-batch fits the tiles."""
        if self.loaded.fixed_batch:
            return (self.loaded.batch,)
        room = max(1, self.wanted.system.chip.memory() // max(1, self.data))
        exact = self.wanted.global_batch
        if exact is None:
            return tuple(2**i for i in range(min(room, self.wanted.largest_batch).bit_length()))
        low = [n for n in range(1, math.isqrt(exact) + 1) if exact % n == 0]
        return tuple(n for n in sorted({*low, *(exact // n for n in low)}) if n <= room)

    def _replicas(self, stages: int) -> tuple[int, ...]:
        """Powers of two, divisors of the global batch, and as many as the system has room for."""
        most = self.wanted.system.ipus // stages
        exact = self.wanted.global_batch
        if "replicas" in self.wanted.only:
            return tuple(n for n in self.wanted.only["replicas"] if n <= most)
        chosen = {
            n for n in range(1, most + 1) if (exact is not None and exact % n == 0) or n & (n - 1) == 0 or n == most
        }
        return tuple(sorted(chosen))

    def _pipelines(self, stages: int) -> tuple[str, ...]:
        return self.values["pipeline"] if stages > 1 else ("grouped",)

    def least_turns(self, stages: int, pipeline: str) -> int:
        """Micro-batches that a pipeline needs in a step, as the vendor's framework asks for."""
        if stages == 1 or pipeline == "sequential":
            return 1
        return 2 * stages - 1 if self.loaded.train else stages

    def turns(self, batch: int, stages: int, pipeline: str, replicas: int) -> tuple[int, ...]:
        """The accumulations with which these go together; empty when there is none."""
        wanted, side, least = self.wanted, batch * replicas, self.least_turns(stages, pipeline)
        if wanted.global_batch is not None:
            found = (wanted.global_batch // side,) if wanted.global_batch % side == 0 else ()
            found = tuple(n for n in found if n in wanted.only.get("accumulate", found))
        elif "accumulate" in wanted.only:
            found = wanted.only["accumulate"]
        elif wanted.goal == "latency" or (not self.loaded.train and stages == 1):
            found = (least,)
        else:
            found = (wanted.largest_batch // side,)
        return tuple(n for n in found if n >= least)

    @cached_property
    def points(self) -> tuple[Point, ...]:
        """Every point; raises ``InvalidOption`` when there is none, saying why."""
        found = tuple(self._all())
        if not found:
            raise self._nothing()
        return found

    @cached_property
    def _known(self) -> frozenset[Point]:
        return frozenset(self.points)

    def _all(self) -> Iterator[Point]:
        v = self.values
        rest = list(itertools.product(*(v[name] for name in SETTINGS[SETTINGS.index("recompute") :])))
        for batch, stages in itertools.product(v["batch"], v["stages"]):
            for pipeline, replicas in itertools.product(self._pipelines(stages), self._replicas(stages)):
                for accumulate in self.turns(batch, stages, pipeline, replicas):
                    found = (Point(batch, stages, pipeline, replicas, accumulate, *others) for others in rest)
                    yield from dict.fromkeys(map(self._settled, found))

    def _nothing(self) -> InvalidOption:
        """Why no point exists."""
        wanted, v, system = self.wanted, self.values, self.wanted.system
        pairs = [(s, r) for s in v["stages"] for r in self._replicas(s)]
        if not pairs:
            stages, replicas = min(v["stages"]), min(wanted.only.get("replicas", (1,)))
            return InvalidOption(
                f"{replicas} replicas of {stages} stages need {replicas * stages} IPUs, the system {system.name!r} has "
                f"{system.ipus}: {replicas * stages - system.ipus} too few",
                remedy="Allow fewer stages or replicas, or choose a larger system (`abele systems` lists them).",
            )
        least = [r * min(self.least_turns(s, p) for p in self._pipelines(s)) for s, r in pairs]
        sides = sorted({b * n for b in v["batch"] for n in least})
        if wanted.global_batch is None:
            return InvalidOption(
                f"The smallest step that is allowed takes {sides[0] if sides else 1} samples, and at most "
                f"{wanted.largest_batch} are asked for",
                remedy="Raise --largest-batch, or allow smaller micro-batches, fewer stages or fewer replicas.",
            )
        exact = wanted.global_batch
        if not sides:  # a step holds one micro-batch at least, whose data does not fit
            what = f"no micro-batch that divides {exact} has data that fits the tiles"
        elif sides[0] > exact:
            what = f"the smallest step that is allowed takes {sides[0]} samples"
        else:
            steps = sorted({b * r for b in v["batch"] for _, r in pairs})
            near = sorted({n for side in steps for n in (exact // side * side, -(-exact // side) * side) if n})
            below, above = [n for n in near if n < exact], [n for n in near if n > exact]
            nearest = " and ".join(str(n) for n in (*below[-1:], *above[:1]))
            what = (
                f"micro-batches of {_listed(v['batch'])} on {_listed(sorted({r for _, r in pairs}))} replicas do not "
            )
            what += f"divide it with enough micro-batches for the pipeline; the nearest that can be made are {nearest}"
        return InvalidOption(
            f"A global batch of {exact} cannot be made of micro-batch times accumulation times replicas: {what}",
            remedy="Choose another --global-batch, or allow other micro-batches, stages or replicas.",
        )

    # one point --------------------------------------------------------------------------------------------

    def neighbours(self, point: Point) -> dict[str, list[Point]]:
        """The points next to one along each setting. Replicas and accumulation follow stages and micro-batch."""
        found: dict[str, list[Point]] = {}
        for name, values in self.values.items():
            now = getattr(point, name)
            listed: Sequence[Any] = self._replicas(point.stages) if name == "replicas" else values
            if now not in listed:
                continue
            at = listed.index(now)
            beside = (*listed[max(0, at - 1) : at], *listed[at + 1 : at + 2])
            for value in beside if _is_number(now) else [other for other in listed if other != now]:
                other = self._moved(point, name, value)
                if other != point and other in self._known:
                    found.setdefault(name, []).append(other)
        return found

    @staticmethod
    def _settled(point: Point) -> Point:
        """The point without what means nothing for it: one replica shares no state with others."""
        return point if point.replicas > 1 or not point.shard else replace(point, shard=0)

    def _moved(self, point: Point, name: str, value: Any) -> Point:
        changed = replace(point, **{name: value})
        if name == "stages":
            room = self._replicas(value)
            full = point.replicas == max(self._replicas(point.stages))
            fitting = [n for n in room if n <= point.replicas]
            kinds = self._pipelines(value)
            changed = replace(
                changed,
                replicas=max(room if full or not fitting else fitting, default=1),
                pipeline=point.pipeline if point.pipeline in kinds else kinds[0],
            )
        changed = self._settled(changed)
        turns = self.turns(changed.batch, changed.stages, changed.pipeline, changed.replicas)
        if not turns and name != "batch":  # a smaller micro-batch makes room in the global batch
            for batch in reversed([b for b in self.values["batch"] if b < point.batch]):
                if turns := self.turns(batch, changed.stages, changed.pipeline, changed.replicas):
                    changed = replace(changed, batch=batch)
                    break
        nearest = min(turns, key=lambda n: abs(n - point.accumulate), default=changed.accumulate)
        return replace(changed, accumulate=nearest)

    def floor(self, point: Point) -> int:
        """Bytes that the fullest tile holds at least: weights and optimiser's state, were they spread evenly."""
        parts = point.replicas if point.shard else 1
        always = self.weights + (0 if point.offload else self.optimiser // parts)
        return always // (point.stages * self.wanted.system.chip.tiles)

    @cached_property
    def results(self) -> tuple[int, int]:
        """Bytes that the forward operations make of a sample, and those of the largest."""
        made = [
            sum(v.type.bytes for v in op.results)
            for op in self.loaded.graph.operations
            if op.name not in CONTROL and not has(op.name, "view")
        ]
        return sum(made) // self.loaded.batch, max(made, default=0) // self.loaded.batch

    def estimate(self, point: Point) -> int:
        """Bytes of a tile that a point should take: state, gradients, and what waits for the backward pass.

        It is no bound, and decides only what is tried first. In training every forward value is taken to lie beside
        its gradient, or, where it is computed again, either of them; the first stage of a grouped pipeline keeps the
        values of ``2 * stages - 1`` micro-batches, that of an interleaved one of as many as stages.
        """
        p, train = point, self.loaded.train
        gradients = self.weights if train else 0
        parts = p.replicas if p.shard else 1
        state = self.weights + gradients + (0 if p.offload else self.optimiser // parts)
        made, largest = self.results
        again = p.recompute not in ("checkpoints", "none")
        waiting = {"grouped": 2 * p.stages - 1, "interleaved": p.stages}.get(p.pipeline, 1)
        kept = min(p.accumulate, waiting) * made + (0 if again else made) if train else self.data + largest
        return (state + p.batch * kept) // (p.stages * self.wanted.system.chip.tiles)

    def prior(self, point: Point) -> float:
        """What the objective grows with, up to a factor: the work of the largest stage, ramp included."""
        p = point
        again = 1.0 if p.recompute in ("checkpoints", "none") else 4 / 3
        ramp = p.stages - 1  # a grouped pipeline fills forward and drains backward: together a slot for each
        slots = p.accumulate if p.pipeline == "sequential" else self.shares[p.stages] * (p.accumulate + ramp)
        if self.wanted.goal == "latency":
            return slots * p.batch * again
        return slots * p.batch * again / p.samples * (p.ipus if self.wanted.goal == "energy" else 1)

    def least_seconds(self, point: Point) -> float:
        """Seconds of a step, at least: the products alone, spread evenly over the stages, at the chip's peak.

        Training costs two forward passes and more: the gradient of each weight takes as many flops as its use.
        """
        chip = self.wanted.system.chip
        peak = chip.peak_flops("f16", "f16") if self.wanted.half else chip.peak_flops("f32")
        if not peak:
            return 0.0
        whole = self.work * point.batch * (2 if self.loaded.train else 1) / peak
        if point.pipeline == "sequential":
            return whole * point.accumulate
        return whole / point.stages * (point.accumulate + point.stages - 1)

    def reaches(self, point: Point, objective: float) -> bool:
        """Whether a point may do better than ``objective`` (seconds or joules, see ``Trial.objective``)."""
        seconds = self.least_seconds(point)
        if self.wanted.goal == "latency":
            return seconds < objective
        return self.wanted.goal == "energy" or seconds / point.samples < objective


def _listed(values: Sequence[int]) -> str:
    shown = [str(v) for v in values]
    return ", ".join(shown if len(shown) <= 6 else [*shown[:3], "…", shown[-1]])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

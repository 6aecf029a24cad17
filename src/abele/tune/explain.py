"""Why the best is the best, or why nothing fits: figures and sentences about the outcome of a search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from abele.advice.records import Advice, tried
from abele.cost import Profile, explain
from abele.cost.fit import size
from abele.tune.search import COMPLETE, Outcome
from abele.tune.space import Point, Space
from abele.tune.trial import Trial, Trials

NOT_TRIED = "not tried"

WORDS = {"throughput": "throughput", "latency": "latency", "energy": "energy a sample"}


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A point beside the best: which setting differs, and what that does.

    Attributes:
        change: in words, ``micro-batch 8``.
        point: all its settings.
        trial: what it costs, or ``None`` when it was not tried.
        verdict: in words.
    """

    change: str
    point: Point
    trial: Trial | None
    verdict: str

    def to_json(self) -> dict[str, Any]:
        document = {"change": self.change, "verdict": self.verdict, "settings": self.point.settings()}
        return document | ({"trial": self.trial.to_json()} if self.trial else {})


def worded(name: str, value: Any) -> str:
    """A setting's value in words."""
    if name == "batch":
        return f"micro-batch {value}"
    if name == "stages":
        return f"{value} stages" if value > 1 else "1 stage"
    if name == "replicas":
        return f"{value} replicas" if value > 1 else "1 replica"
    if name == "accumulate":
        return f"accumulation {value}"
    if name == "recompute":
        return f"recomputation: {value}"
    if name == "pipeline":
        return f"{value} pipeline"
    if name == "offload":
        return "optimizer state in streaming memory" if value else "optimizer state on the tiles"
    if name == "shard":
        return "optimizer state sharded over the replicas" if value else "optimizer state whole on each replica"
    if name == "partials":
        return {"": "the model's partials", "f16": "half partials", "f32": "float partials"}[value]
    if name == "memory_proportion":
        return f"memory proportion {value:g}"
    return f"{name} {value}"


def neighbours(outcome: Outcome) -> list[Neighbour]:
    """The points beside the best, and what each would lose."""
    best, space = outcome.best, outcome.space
    if best is None:
        return []
    found = []
    for name, points in space.neighbours(best.point).items():
        for point in points:
            trial = outcome.trials.get(point)
            change = worded(name, getattr(point, name))
            follows = [
                worded(other, getattr(point, other))
                for other in ("batch", "replicas", "accumulate")
                if other != name and getattr(point, other) != getattr(best.point, other)
            ]
            change += f" (with {', '.join(follows)})" if follows else ""
            found.append(Neighbour(change, point, trial, _verdict(space, best, point, trial)))
    return found


def _verdict(space: Space, best: Trial, point: Point, trial: Trial | None) -> str:
    goal = space.wanted.goal
    if trial is None:
        over = space.floor(point) - best.limit
        if over > 0:
            return f"does not fit by {size(over)} a tile at least: weights and optimizer state alone"
        return NOT_TRIED if space.reaches(point, best.objective(goal)) else "cannot be better, at the chip's peak even"
    if trial.error:
        return f"cannot be compiled: {trial.error}"
    if not trial.fits:
        return f"does not fit by {size(trial.max - trial.limit)} a tile"
    if goal == "throughput":
        change = trial.throughput / best.throughput - 1
    else:
        change = trial.objective(goal) / best.objective(goal) - 1
    return f"{100 * change:+.1f} % {WORDS[goal]}" if abs(change) >= 0.0005 else f"the same {WORDS[goal]}"


def reasons(outcome: Outcome) -> list[str]:
    """What bounds the best, in sentences."""
    best, wanted = outcome.best, outcome.space.wanted
    if best is None:
        return []
    point = best.point
    lines = [
        f"Tile memory: the fullest tile holds {size(best.max)} of {size(best.limit)} "
        f"({100 * best.max / best.limit:.0f} %)."
    ]
    kinds = sorted(best.cycles.items(), key=lambda kv: -kv[1])
    lines.append("Time: " + ", ".join(f"{name} {100 * share:.0f} %" for name, share in kinds if share >= 0.005) + ".")
    idle = wanted.system.ipus - point.ipus
    fastest = max((t for t in outcome.trials.values() if t.fits), key=lambda t: t.throughput)
    if wanted.goal == "throughput" and fastest.point.ipus < point.ipus:
        faster = 100 * (fastest.throughput / best.throughput - 1)
        lines.append(
            f"Replicas: {worded('replicas', fastest.point.replicas)} on {fastest.point.ipus} IPUs would be "
            f"{faster:.1f} % faster, with a global batch of {fastest.point.samples:,}."
        )
    lines.append(f"IPUs: all {point.ipus} work." if not idle else f"IPUs: {point.ipus} of {wanted.system.ipus} work.")
    if wanted.global_batch is not None:
        lines.append(f"Global batch: {point.samples:,} samples a step, as asked.")
    elif point.accumulate > outcome.space.least_turns(point.stages, point.pipeline):
        lines.append(
            f"Global batch: {point.samples:,} samples a step, of at most {wanted.largest_batch:,}; "
            "more would spread the fixed costs of a step further (--largest-batch)."
        )
    if point.partials == "f16":
        lines.append("Numbers: products are summed in half, which rounds more (--only partials= keeps the model's).")
    return lines


def coverage(outcome: Outcome) -> str:
    """How much of the space was seen, and why the search ended."""
    whole, tried = len(outcome.space.points), len(outcome.trials)
    text = f"{tried:,} of {whole:,} points tried"
    if outcome.excluded:
        text += f", {outcome.excluded:,} excluded by bounds"
    if outcome.ended == COMPLETE:
        return f"{text}: the whole space is known"
    return f"{text}; {outcome.ended} after {outcome.seconds:.0f} s"


@dataclass(frozen=True, slots=True)
class Nothing:
    """Nothing fits: the point that comes nearest.

    Attributes:
        demand, bound, gap: bytes on its fullest tile, of a tile, and the difference.
        point: its settings.
        text: all of it in sentences, with what takes the room.
        advice: changes outside the space, each compiled.
    """

    point: Point
    demand: int
    bound: int
    text: str
    advice: tuple[Advice, ...]

    @property
    def gap(self) -> int:
        return self.demand - self.bound

    def to_json(self) -> dict[str, Any]:
        return {
            "demand": self.demand,
            "bound": self.bound,
            "gap": self.gap,
            "settings": self.point.settings(),
            "text": self.text,
            "advice": [advice.to_json() for advice in self.advice],
        }


def nothing_fits(outcome: Outcome, trials: Trials) -> Nothing | None:
    """What is missing, when nothing fits; ``None`` when something does or nothing could be compiled."""
    space = outcome.space
    limit = space.wanted.system.chip.tile_memory
    tried = [t for t in outcome.trials.values() if not t.error]
    if outcome.best is not None or (outcome.trials and not tried):
        return None
    if tried:
        point = min(tried, key=lambda t: (t.max, t.point)).point
    else:
        point = min(space.points, key=lambda p: (space.floor(p), p))
    profile = trials.profile(point)
    demand, floor, text = profile.memory.max, space.floor(point), explain(profile).text
    if floor > limit:
        what = "Weights" if point.offload else "Weights and optimizer state"
        text += f" {what} alone take {size(floor)} of every tile, spread evenly."
    shown = ", ".join(worded(name, value) for name, value in point.settings().items())
    head = (
        f"Nothing that was tried fits. The least takes {size(demand)} of a tile, which has "
        f"{size(limit)}: {size(demand - limit)} too much. It is {shown}. "
    )
    return Nothing(point, demand, limit, head + text, tuple(_advice(space, trials, point, profile)))


def _advice(space: Space, trials: Trials, point: Point, before: Profile) -> Iterator[Advice]:
    """Half precision, and systems of the same chip with more IPUs, where the model has work for more stages."""
    wanted = space.wanted
    if not wanted.half:
        other = replace(wanted, half=True)

        def halved() -> Profile:
            return Trials(other, other.load(point.batch), trials.cache).profile(point)

        yield tried("half precision", {"half": True}, "", "fit", before, halved)
    off = {"offload_weights": True, "offload_activations": wanted.train}
    text = f"weights{' and activations' if wanted.train else ''} in streaming memory"
    yield tried(text, off, "", "fit", before, partial(trials.profile, point, **off))
    widest = point.stages
    for factor in (2, 4, 8) if not space.placed else ():
        wider = replace(wanted, system=wanted.system.with_ipus(wanted.system.ipus * factor), only={})
        shares = Space(wider, space.loaded).shares
        stages = max((n for n in shares if shares[n] < space.shares[point.stages]), default=widest)
        if stages <= widest:
            break
        widest = stages
        turns = max(point.accumulate, space.least_turns(stages, point.pipeline))
        moved = replace(point, stages=stages, replicas=1, accumulate=turns)
        text = f"{wider.system.ipus} IPUs, {worded('stages', stages)}"
        settings = {"system": wider.system.name, "stages": stages}
        compiled = partial(Trials(wider, trials.loaded(point.batch), trials.cache).profile, moved)
        yield tried(text, settings, "", "fit", before, compiled)

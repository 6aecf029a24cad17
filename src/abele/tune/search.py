"""The search: from what should be best by plain reckoning to the neighbours of the best, in rounds.

Each round tries ``ROUND`` points, whatever the number of processes, so that the result does not depend on it. Points
that provably hold too much, or provably cannot beat the best, are never compiled. The first round takes the obvious
(fewest stages, most replicas, largest micro-batches), the second spreads over the space, later ones take untried
neighbours of the best and the points that the surrogate thinks best; the search ends when the best's neighbours are all
known and a few rounds brought nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from abele.ops.plans.planning import PlanOptions
from abele.tune.space import Point, Space
from abele.tune.surrogate import Surrogate
from abele.tune.trial import Trial
from abele.workers import Workers

ROUND = 8
PATIENCE = 3
"""Rounds without a better point after which the search ends."""

OVERFULL = 4.0
"""By how much more a point is put off for each unit of the logarithm by which it is thought not to fit."""

NEAR = 0.01
"""Share of the throughput that is given up for a step that all IPUs share in."""

CONVERGED, COMPLETE, OUT_OF_TIME, INTERRUPTED = "converged", "complete", "out of time", "interrupted"


@dataclass
class Outcome:
    """What a search found.

    Attributes:
        space: what was searched.
        trials: every point that was tried, by point.
        best: the best that fits, or ``None``.
        ended: ``converged`` (the best's neighbours are known and nothing better turned up), ``complete`` (every point
            was tried or provably excluded), ``out of time`` or ``interrupted``.
        excluded: points that bounds excluded without compiling.
        seconds: wall time.
    """

    space: Space
    trials: dict[Point, Trial] = field(default_factory=dict)
    best: Trial | None = None
    ended: str = INTERRUPTED
    excluded: int = 0
    seconds: float = 0.0

    def add(self, trial: Trial) -> None:
        """Keep a trial; of equal ones the first point in order is the best."""
        self.trials[trial.point] = trial
        goal = self.space.wanted.goal
        if trial.fits and (self.best is None or self._rank(trial, goal) < self._rank(self.best, goal)):
            self.best = trial

    def settle(self) -> None:
        """Prefer a step that all IPUs share in to one that is hardly faster on fewer.

        An odd number of replicas makes an odd global batch; nothing changes where the user chose the global batch.
        """
        wanted, best = self.space.wanted, self.best
        ipus = wanted.system.ipus
        if best is None or wanted.goal != "throughput" or wanted.global_batch is not None or best.point.ipus == ipus:
            return
        near = [t for t in self.trials.values() if t.fits and t.throughput >= (1 - NEAR) * best.throughput]
        self.best = min(
            (t for t in near if t.point.ipus == ipus), key=lambda t: self._rank(t, wanted.goal), default=best
        )

    @staticmethod
    def _rank(trial: Trial, goal: str) -> tuple:
        usual = abs(trial.point.memory_proportion - PlanOptions().memory_proportion)
        return trial.objective(goal), trial.max, usual, trial.point

    def frontier(self) -> list[Trial]:
        """Trials that fit and that none beats in both goal and memory (for throughput and energy) or in both latency
        and throughput (for latency); the best by the goal first."""
        goal = self.space.wanted.goal

        def other(trial: Trial) -> float:
            return -trial.throughput if goal == "latency" else trial.max

        found: list[Trial] = []
        fitting = (t for t in self.trials.values() if t.fits)
        for trial in sorted(fitting, key=lambda t: (t is not self.best, self._rank(t, goal))):
            if not found or other(trial) < other(found[-1]):
                found.append(trial)
        return found


def search(
    space: Space,
    workers: Workers[Point, Trial],
    *,
    minutes: float | None = None,
    exhaustive: bool = False,
    tell: Callable[[Outcome, Trial], None] | None = None,
) -> Outcome:
    """Search a space. Ctrl-C (``KeyboardInterrupt``) and ``minutes`` end it with the best so far.

    Args:
        exhaustive: try every point that bounds do not exclude.
        tell: called after each trial.
    """
    outcome, started = Outcome(space), time.monotonic()
    deadline = math.inf if minutes is None else started + 60 * minutes
    try:
        outcome.ended = _rounds(outcome, workers, deadline, exhaustive, tell)
    except KeyboardInterrupt:
        outcome.ended = INTERRUPTED
    outcome.settle()
    outcome.seconds = time.monotonic() - started
    return outcome


def _rounds(
    outcome: Outcome,
    workers: Workers[Point, Trial],
    deadline: float,
    exhaustive: bool,
    tell: Callable[[Outcome, Trial], None] | None,
) -> str:
    space, idle, standing = outcome.space, 0, _standing(outcome)
    limit = space.wanted.system.chip.tile_memory
    possible = [p for p in space.points if space.floor(p) <= limit]
    outcome.excluded = len(space.points) - len(possible)
    while True:
        before = outcome.best
        left = [p for p in possible if p not in outcome.trials]
        if before is not None:
            bound = before.objective(space.wanted.goal)
            reaching = [p for p in left if space.reaches(p, bound)]
            outcome.excluded = len(space.points) - len(outcome.trials) - len(reaching)
            left = reaching
        if not left:
            return COMPLETE
        around = _around(outcome, set(left))
        if not exhaustive and not around and idle >= PATIENCE:
            return CONVERGED
        for _, trial in workers.run(_next(outcome, left, around, ROUND), deadline):
            outcome.add(trial)
            if tell is not None:
                tell(outcome, trial)
        if time.monotonic() >= deadline:
            return OUT_OF_TIME
        now = _standing(outcome)
        standing, idle = min(standing, now), 0 if now < standing else idle + 1


def _standing(outcome: Outcome) -> tuple[float, float]:
    """How far the search is: the best's objective, or before anything fits the least memory; it only sinks."""
    if outcome.best is not None:
        return 0.0, outcome.best.objective(outcome.space.wanted.goal)
    return 1.0, min((t.max for t in outcome.trials.values() if not t.error), default=math.inf)


def _around(outcome: Outcome, left: set[Point]) -> list[Point]:
    """Untried neighbours of the best."""
    if outcome.best is None:
        return []
    return [p for near in outcome.space.neighbours(outcome.best.point).values() for p in near if p in left]


def _next(outcome: Outcome, left: Sequence[Point], around: Sequence[Point], count: int) -> list[Point]:
    """The points of a round, best guess first."""
    if not outcome.trials:
        seeds = _obvious(outcome.space, left, count)
        return [*seeds, *_spread(outcome, [p for p in left if p not in set(seeds)], count - len(seeds))]
    known = [t for t in outcome.trials.values() if not t.error]
    if len(outcome.trials) < 2 * count or len(known) < count:
        near = sorted(around, key=lambda p: (outcome.space.prior(p), -p.batch, p))[: count // 2]
        if outcome.best is None and known:  # the least by which reckoning was wrong so far
            over = min(t.max / max(1, outcome.space.estimate(t.point)) for t in known)
            near = _obvious(outcome.space, left, count - 2, over)
        return [*near, *_spread(outcome, [p for p in left if p not in set(near)], count - len(near))]
    surrogate = Surrogate(outcome.space, sorted(known, key=lambda t: t.point))
    objective, size = surrogate.guess(left)
    over = np.maximum(0.0, size - math.log(outcome.space.wanted.system.chip.tile_memory))
    score = objective + OVERFULL * over if outcome.best is not None else np.where(over > 0, 100 + over, objective)
    ranked = [left[i] for i in np.argsort(score, kind="stable")]
    beside = set(around)
    near = [p for p in ranked if p in beside][: count // 2]
    # The memory proportion often changes nothing: one of its values is enough for a round.
    different = {replace(p, memory_proportion=0.0): p for p in reversed(ranked[: 64 * count])}
    first = set(different.values())
    return list(dict.fromkeys([*near, *(p for p in ranked if p in first), *ranked]))[:count]


def _obvious(space: Space, left: Sequence[Point], count: int, over: float = 1.0) -> list[Point]:
    """What one would try first: few stages on all IPUs with the largest micro-batches that should fit, best first.

    Of each number of stages a few micro-batches, one point each: with the usual memory proportion, and with what
    saves memory only where nothing else should fit. A point should fit where ``over`` times its estimate does.
    """
    limit = space.wanted.system.chip.tile_memory
    usual = PlanOptions().memory_proportion

    def plain(p: Point) -> tuple:
        saving = (p.recompute != space.values["recompute"][0], p.offload, bool(p.shard), bool(p.partials))
        return space.prior(p), *saving, p.pipeline != "grouped", abs(p.memory_proportion - usual), p

    most = {s: max((p.replicas for p in left if p.stages == s), default=1) for s in {p.stages for p in left}}
    chosen: dict[tuple[int, int], Point] = {}
    for p in left:
        key = p.stages, p.batch
        if p.replicas == most[p.stages] and over * space.estimate(p) <= limit:
            chosen[key] = min(chosen.get(key, p), p, key=plain)
    # Turn by turn the largest micro-batch left of each number of stages, the number that should be fastest first.
    queues: dict[int, list[Point]] = {}
    for p in sorted(chosen.values(), key=lambda p: -p.batch):
        queues.setdefault(p.stages, []).append(p)
    order = sorted(queues.values(), key=lambda queue: min(map(space.prior, queue)))[: max(1, count // 3)]
    longest = max(map(len, order), default=0)
    return [queue[i] for i in range(longest) for queue in order if i < len(queue)][:count]


def _spread(outcome: Outcome, left: Sequence[Point], count: int) -> list[Point]:
    """First points: every number of stages on as many IPUs as can work, with small and larger micro-batches, once
    with what saves most memory and once with what is fastest when it fits."""
    space = outcome.space
    chosen: list[Point] = []
    stages, batches = space.values["stages"], space.values["batch"]
    for turn in range(4 * max(len(stages), count)):
        if len(chosen) == count:
            break
        wanted = stages[turn % len(stages)]
        batch = batches[min(len(batches) - 1, (turn // len(stages) + turn) % min(4, len(batches)))]
        saving = turn % 2 == 0
        proportion = 0.6 if turn % 3 else 0.2

        def distance(p: Point, wanted=wanted, batch=batch, saving=saving, proportion=proportion) -> tuple:
            lean = (p.recompute == "recompute_all") + p.offload + (p.partials == "f16")
            return (
                abs(math.log(p.stages / wanted)),
                p.pipeline == "sequential",
                -p.replicas,
                abs(math.log(p.batch / batch)),
                -lean if saving else lean,
                abs(p.memory_proportion - proportion),
                p,
            )

        rest = [p for p in left if p not in chosen]
        if not rest:
            break
        chosen.append(min(rest, key=distance))
    return chosen

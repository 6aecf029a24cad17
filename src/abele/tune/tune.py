"""Tuning as one function: a request in, the outcome of a search and its explanation out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from abele.compile.cache import Cache
from abele.engine.threads import available
from abele.tune.explain import Neighbour, Nothing, coverage, neighbours, nothing_fits, reasons
from abele.tune.search import INTERRUPTED, Outcome, search
from abele.tune.space import Space, Wanted
from abele.tune.trial import Trial, Trials, died
from abele.workers import Workers


@dataclass(frozen=True)
class Tuned:
    """What tuning found.

    Attributes:
        outcome: the search.
        neighbours: what lies beside the best.
        reasons: what bounds it, in sentences.
        nothing: what is missing, when nothing fits.
    """

    outcome: Outcome
    neighbours: tuple[Neighbour, ...]
    reasons: tuple[str, ...]
    nothing: Nothing | None

    @property
    def best(self) -> Trial | None:
        return self.outcome.best

    @property
    def interrupted(self) -> bool:
        return self.outcome.ended == INTERRUPTED

    def to_json(self) -> dict[str, Any]:
        o, wanted = self.outcome, self.outcome.space.wanted
        return {
            "model": wanted.model,
            "mode": "training" if wanted.train else "inference",
            "system": wanted.system.name,
            "goal": wanted.goal,
            "half": wanted.half,
            "points": len(o.space.points),
            "tried": len(o.trials),
            "excluded": o.excluded,
            "ended": o.ended,
            "coverage": coverage(o),
            "best": self.best.to_json() if self.best else None,
            "reasons": list(self.reasons),
            "neighbours": [n.to_json() for n in self.neighbours],
            "frontier": [t.to_json() for t in o.frontier()],
        } | ({"nothing_fits": self.nothing.to_json()} if self.nothing else {})


def tune(
    wanted: Wanted,
    *,
    cache: Cache | None = None,
    jobs: int | None = None,
    minutes: float | None = None,
    exhaustive: bool = False,
    tell: Callable[[Outcome, Trial], None] | None = None,
) -> Tuned:
    """Search for the best settings; see ``search`` for how it ends.

    Raises:
        InvalidOption: no point exists for the request; or the model cannot be captured or compiled at all.
    """
    loaded = wanted.load(min(wanted.only.get("batch", (1,))))
    space, trials = Space(wanted, loaded), Trials(wanted, loaded, cache)
    _ = space.points  # an impossible request is refused before anything starts
    with Workers(trials, jobs or available(), died) as workers:
        outcome = search(space, workers, minutes=minutes, exhaustive=exhaustive, tell=tell)
    if outcome.trials and all(t.error for t in outcome.trials.values()):
        trials.profile(min(outcome.trials))  # the reason, as the compiler gives it
    nothing = None if outcome.ended == INTERRUPTED else nothing_fits(outcome, trials)
    return Tuned(outcome, tuple(neighbours(outcome)), tuple(reasons(outcome)), nothing)

"""The search: as good as brute force, bounds that hold, how it ends, and what it says when nothing is possible."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from abele import programs
from abele.errors import InvalidOption
from abele.machine.system import find_system
from abele.tune.explain import reasons
from abele.tune.search import COMPLETE, CONVERGED, INTERRUPTED, OUT_OF_TIME, Outcome
from abele.tune.space import Point, Space, Wanted, parse_only
from abele.tune.trial import Trial, Trials, died
from abele.tune.tune import tune
from abele.workers import Workers

MODELS = Path(__file__).parent / "models.py"
SMALL = {
    "memory_proportion": (0.2, 0.6),
    "offload": (False,),
    "shard": (0,),
    "recompute": ("checkpoints", "layers"),
    "pipeline": ("grouped",),
}


def wanted(model: str = "deep", system: str = "small", **given) -> Wanted:
    return Wanted(f"{MODELS}:{model}", find_system(f"{MODELS}:{system}"), **({"train": True, "only": SMALL} | given))


def space_of(asked: Wanted) -> tuple[Space, Trials]:
    batch = min(asked.only.get("batch", (1,)))
    loaded = programs.load(asked.model, batch=batch, train=asked.train, half=asked.half)
    return Space(asked, loaded), Trials(asked, loaded, None)


@pytest.mark.parametrize("goal", ["throughput", "latency", "energy"])
def test_the_best_is_that_of_brute_force(goal: str) -> None:
    only = SMALL | {"batch": (2, 4), "memory_proportion": (0.6,), "stages": (1, 2), "replicas": (1, 2)}
    asked = wanted(goal=goal, global_batch=16 if goal != "latency" else None, only=only)
    space, trials = space_of(asked)
    everything = [trials(p) for p in space.points]
    best = min((t.objective(goal), t.max, t.point) for t in everything if t.fits)
    found = tune(asked, jobs=1)
    assert found.best is not None
    assert (found.best.objective(goal), found.best.max, found.best.point) == best
    assert len(found.outcome.trials) <= len(everything)


def test_bounds_hold_for_every_point() -> None:
    for asked in (wanted(global_batch=16), wanted("inference", train=False, half=True, only={"batch": (1, 8)})):
        space, trials = space_of(asked)
        for point in space.points[:: max(1, len(space.points) // 8)]:
            trial = trials(point)
            assert not trial.error
            assert space.floor(point) <= trial.max
            assert space.least_seconds(point) <= trial.seconds
            assert point.samples == point.batch * point.accumulate * point.replicas
            assert point.ipus <= asked.system.ipus


def test_processes_change_nothing() -> None:
    asked = wanted(global_batch=16, only=SMALL | {"batch": (2, 4), "stages": (1, 2), "replicas": (2,)})
    alone, together = (tune(asked, jobs=jobs) for jobs in (1, 2))
    assert set(alone.outcome.trials) == set(together.outcome.trials)
    documents = [{k: v for k, v in found.to_json().items() if k != "coverage"} for found in (alone, together)]
    assert documents[0] == documents[1]


def test_a_trial_is_what_the_profile_says() -> None:
    space, trials = space_of(wanted(global_batch=16))
    point = space.points[-1]
    profile, trial = trials.profile(point), trials(point)
    assert trial.max == profile.memory.max and trial.seconds == profile.seconds
    assert trial.throughput == pytest.approx(profile.throughput)


def test_all_is_kept_when_interrupted() -> None:
    asked = wanted(global_batch=16)
    seen: list[Trial] = []

    def stop(outcome: Outcome, trial: Trial) -> None:
        seen.append(trial)
        if len(seen) == 5:
            raise KeyboardInterrupt

    found = tune(asked, jobs=1, tell=stop)
    assert found.interrupted and found.outcome.ended == INTERRUPTED
    assert list(found.outcome.trials.values()) == seen
    assert found.best == min((t for t in seen if t.fits), key=lambda t: t.objective("throughput"))


def test_time_ends_the_search() -> None:
    assert tune(wanted(global_batch=16), jobs=1, minutes=1e-9).outcome.ended == OUT_OF_TIME


def test_the_obvious_comes_first() -> None:
    seen: list[Trial] = []

    def stop(outcome: Outcome, trial: Trial) -> None:
        seen.append(trial)
        raise KeyboardInterrupt

    tune(wanted(largest_batch=64, only={}), jobs=1, tell=stop)
    (first,) = seen
    assert (first.point.stages, first.point.replicas) == (1, 4) and first.fits
    assert first.point.batch * 4 * first.point.accumulate == 64 and first.point.batch >= 8


def test_all_ipus_are_preferred_among_near_equals() -> None:
    space, _ = space_of(wanted(largest_batch=64, only={}))
    shared = {"pipeline": "grouped", "recompute": "checkpoints", "offload": False, "shard": 0, "partials": ""}
    three, four = (Point(batch=1, stages=1, replicas=r, accumulate=1, memory_proportion=0.6, **shared) for r in (3, 4))
    for share, best in ((0.995, four), (0.98, three)):
        outcome = Outcome(space)
        outcome.add(Trial(three, max=1, limit=2, seconds=3.0))
        outcome.add(Trial(four, max=1, limit=2, seconds=4.0 / share))
        outcome.settle()
        assert outcome.best is not None and outcome.best.point == best
        assert outcome.frontier()[0] is outcome.best
        assert any("Replicas: 3" in line for line in reasons(outcome)) == (best is four)


def test_neighbours_say_what_they_lose() -> None:
    found = tune(wanted(global_batch=16), jobs=1)
    assert found.best is not None and found.outcome.ended in (COMPLETE, CONVERGED)
    assert found.reasons and found.neighbours
    assert all("not tried" not in n.verdict for n in found.neighbours)
    assert not any(n.trial and n.trial.fits and n.trial.throughput > found.best.throughput for n in found.neighbours)
    frontier = found.outcome.frontier()
    assert frontier[0] == found.best
    assert all(a.throughput >= b.throughput and a.max > b.max for a, b in itertools.pairwise(frontier))


def test_a_dead_process_is_an_answer_about_its_point() -> None:
    def attempt(point: Point) -> Trial:
        if point.batch == 2:
            os._exit(3)
        return Trial(point, max=1, limit=2, seconds=1.0)

    points = [Point(b, 1, "grouped", 1, 1, "checkpoints", False, 0, "", 0.6) for b in (1, 2, 3, 4)]
    with Workers(attempt, 2, died) as workers:
        found = {t.point.batch: t for _, t in workers.run(points)}
    assert set(found) == {1, 2, 3, 4}
    assert "ended with 3" in found[2].error and not found[2].fits and found[3].fits


def test_a_model_of_one_size_keeps_it() -> None:
    space, _ = space_of(wanted("of_one_size", train=False))
    assert space.values["batch"] == (1,)


# what is impossible -------------------------------------------------------------------------------------------


def test_nothing_fits_names_demand_bound_gap_and_advice() -> None:
    asked = wanted("large", "tiny", largest_batch=4, only={"memory_proportion": (0.6,)})
    found = tune(asked, jobs=1)
    assert found.best is None and found.nothing is not None
    n = found.nothing
    assert n.bound == 18 * 1024 and n.gap == n.demand - n.bound > 0
    assert "half precision" in {advice.text for advice in n.advice}
    assert any("IPUs" in advice.text for advice in n.advice)
    assert any(not advice.error and advice.bytes < n.demand for advice in n.advice)
    assert "more than it has" in n.text and "Nothing that was tried fits" in n.text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"only": {"stages": (8,)}}, ("8", "4", "IPUs")),
        ({"only": {"stages": (2,), "replicas": (4,)}}, ("8 IPUs", "has 4", "4 too few")),
        ({"global_batch": 7, "only": {"replicas": (2,)}}, ("7", "6 and 8")),
        ({"global_batch": 2, "only": {"stages": (2,), "pipeline": ("grouped",)}}, ("2", "3 samples")),
        ({"largest_batch": 2, "only": {"stages": (2,), "pipeline": ("grouped",)}}, ("3 samples", "2 are asked")),
        ({"goal": "speed"}, ("speed",)),
        ({"optimizer": "adamm"}, ("adamm", "'adam'")),
        ({"only": {"recompute": ("some",)}}, ("some",)),
    ],
)
def test_what_cannot_be_is_refused_with_numbers(given: dict, words: tuple[str, ...]) -> None:
    with pytest.raises(InvalidOption) as error:
        tune(wanted(**given), jobs=1)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_more_stages_than_operations_is_refused() -> None:
    system = find_system(f"{MODELS}:small").with_ipus(64)
    with pytest.raises(InvalidOption, match="cannot be split into 64 stages"):
        tune(Wanted(f"{MODELS}:inference", system, only={"stages": (64,)}), jobs=1)


@pytest.mark.parametrize("text", ["stages", "stages=", "stages=two", "depth=3"])
def test_a_restriction_that_is_none(text: str) -> None:
    with pytest.raises(InvalidOption):
        parse_only(text)


def test_restrictions_as_the_command_takes_them() -> None:
    assert parse_only("stages=2, 4") == ("stages", (2, 4))
    assert parse_only("offload=false") == ("offload", (False,))
    assert parse_only("partials=") == ("partials", ("",))

"""Trying changes: which are compiled, how many, and which of them are given."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from abele.advice import fit, speed
from abele.advice.records import MOVED, Advice, Change, Program, tried
from abele.programs import CAPTURED

BUDGET = 12
"""Programs compiled, at most, in search of what makes one fit or faster."""

SECONDS = 120.0
"""Seconds of wall time after which none is compiled any more."""

LEAST_PROMISE = 0.03
"""Share of a sample's time that a change could save, for it to be worth a compile."""

LEAST_GAIN = 0.01
"""Share of a sample's time that a change saves, for it to be given."""

LEAST_NEARER = 0.1
"""Share of what a program is over that a change takes away, for it to be given though it does not fit."""

ENOUGH, NEAREST = 3, 3
"""Changes that fit after which no others are looked for, and how many are given of those that do not fit."""

OF_THE_STEP = re.compile(r" \((global batch|[\d,]+ samples a call)[^)]*\)$")
"""What ``_Attempts`` adds to a change's words."""

FURTHER = 1.05
"""A larger value of a setting must give so many times the throughput of the one before."""


def advise(program: Program, tell: Callable[[str], None] = lambda step: None, budget: int = BUDGET) -> list[Advice]:
    """What would make a program fit, or what would make it faster, the largest gain first.

    Args:
        tell: called with what is about to be compiled, in words.
        budget: changes compiled at most. None is begun after ``SECONDS``.
    """
    fits = program.profile.memory.fits
    attempts = _Attempts(program, "speed" if fits else "fit", tell, budget)
    return _faster(program, attempts) if fits else _fitting(program, attempts)


class _Attempts:
    """Compiles changes and counts them."""

    def __init__(self, program: Program, kind: str, tell: Callable[[str], None], budget: int) -> None:
        self.program, self.kind, self.tell, self.budget = program, kind, tell, budget
        self.made, self.until = 0, time.monotonic() + SECONDS

    @property
    def left(self) -> int:
        return self.budget - self.made if time.monotonic() < self.until else 0

    def __call__(self, change: Change, rung: int = 0) -> Advice:
        changed = change.rungs[rung]
        text = change.worded(changed) + self._of_the_step(changed)
        self.made += 1
        self.tell(f"advice {self.made}: {text}")
        command, compiled = self.program.command(changed), partial(self.program.compiled, changed)
        return tried(text, changed, command, self.kind, self.program.profile, compiled)

    def _of_the_step(self, changed: Mapping[str, Any]) -> str:
        """That a training step takes other samples together than before, which training may notice; and how many a
        call then takes, where it is of several steps, since a data set may have fewer."""
        s, program = self.program.settings, self.program
        before, after = (t["batch"] * t["accumulate"] * t["replicas"] for t in (s, {**s, **changed}))
        if before == after:
            return ""
        said = [f"global batch {after:,} instead of {before:,}"] if program.train else []
        if program.iterations > 1 and (program.train or "accumulate" not in changed):
            said.append(f"{after * program.iterations:,} samples a call")
        return f" ({', '.join(said)})" if said else ""


def _fitting(program: Program, attempts: _Attempts) -> list[Advice]:
    memory, found = program.profile.memory, list[Advice]()
    for each in fit.candidates(program):
        # What comes from streaming memory for every step fits nearly always, and is slow.
        enough = [a for a in found if a.fits and not MOVED.keys() & a.settings.keys()]
        if attempts.left <= 0 or len(enough) >= ENOUGH or (enough and each.need > memory.limit):
            break
        changed = each.change.rungs[0]
        if not any(a.fits and a.settings.items() <= changed.items() for a in found):
            found.append(attempts(each.change))
    fitting = [a for a in found if a.fits]
    nearer = [a for a in found if not (a.fits or a.error) and a.gain_bytes >= LEAST_NEARER * memory.gap]
    errors = {a.error: a for a in reversed(found) if a.error}
    fitting.sort(key=lambda a: -a.throughput)
    return [*fitting, *sorted(nearer, key=lambda a: a.bytes)[:NEAREST], *errors.values()]


def _faster(program: Program, attempts: _Attempts) -> list[Advice]:
    worth = [change for change in speed.changes(program) if change.promise >= LEAST_PROMISE]
    # What needs no other capture of the model is cheap to try.
    worth = sorted(worth[: attempts.budget - 2], key=lambda c: any(name in CAPTURED for name in c.rungs[0]))
    found = [_climbed(change, attempts) for change in worth if attempts.left > 0]
    before = program.profile.cycles.total / program.profile.samples
    gaining = sorted(
        (a for a in found if a.fits and a.gain_cycles >= LEAST_GAIN * before), key=lambda a: -a.gain_cycles
    )
    best = _combined(program, gaining, attempts)
    if best is not None and (not gaining or best.gain_cycles > gaining[0].gain_cycles):
        gaining.insert(0, best)
    return gaining + [a for a in found if a.error]


def _climbed(change: Change, attempts: _Attempts) -> Advice:
    """The best of a change's rungs: upwards while each gives clearly more, downwards until one fits."""
    rung = change.start
    best = attempts(change, rung)
    while not best.fits and rung > 0 and attempts.left > 0:
        rung -= 1
        best = attempts(change, rung)
    if rung < change.start:
        return best
    while best.fits and rung + 1 < len(change.rungs) and attempts.left > 0:
        rung += 1
        further = attempts(change, rung)
        if not further.fits or further.throughput < FURTHER * best.throughput:
            break
        best = further
    return best


def _combined(program: Program, gaining: list[Advice], attempts: _Attempts) -> Advice | None:
    """All that gain together; while that does not fit, without the one that takes the most memory."""
    chosen: list[Advice] = []
    for advice in gaining:
        if not any(set(advice.settings) & set(other.settings) for other in chosen):
            chosen.append(advice)
    while len(chosen) > 1 and attempts.left > 0:
        merged = {name: value for advice in chosen for name, value in advice.settings.items()}
        found = attempts(Change(_joined(chosen), (merged,)))
        if found.fits:
            return found
        chosen.remove(min(chosen, key=lambda advice: advice.gain_bytes))
    return None


def _joined(chosen: list[Advice]) -> str:
    texts = [OF_THE_STEP.sub("", advice.text) for advice in chosen]
    return f"{', '.join(texts[:-1])} and {texts[-1]}, together"

"""Every plan, on 1, 3 and 16 tiles: writes each element once, where its home says, and gives the right numbers."""

from __future__ import annotations

import pytest

from abele.ops.plans.layouts import even, flat, single
from abele.ops.plans.planning import PLANS
from tests.ops import gaps
from tests.ops.harness import Case, cases, machine, plan_and_run
from tests.ops.test_reference import parameters

HOMES = {
    "undecided": lambda type, chip: None,
    "flat": lambda type, chip: flat(type, chip, 2 % chip.tiles),
    "even": lambda type, chip: even(type, chip, 1 % chip.tiles),
    "single": lambda type, chip: single(type.shape, chip.tiles, chip.tiles - 1),
}


RUNS = {1: ("undecided",), 3: ("flat",), 16: ("undecided", "even", "single")}
"""Tiles -> where the operands lie."""


def planned() -> list[tuple[Case, bool]]:
    """Cases with a plan; the second says whether the same planner has had the same question before."""
    seen: set = set()
    done = []
    for case in cases():
        if case.name in PLANS:
            key = (PLANS[case.name], case.operands, case.results, repr(case.attributes))
            done.append((case, key in seen))
            seen.add(key)
    return done


REPEATED = {case.id for case, again in planned() if again}


@pytest.mark.parametrize("case", parameters([case for case, _ in planned()], gaps.PLAN))
def test_plan_gives_the_reference(case):
    for tiles, homes in ({3: ("undecided",)} if case.id in REPEATED else RUNS).items():
        chip = machine(tiles)
        for name in homes if case.operands else homes[:1]:
            plan_and_run(case, chip, [HOMES[name](t, chip) for t in case.operands], first=tiles // 2)

"""Every plan, on 1, 3 and 16 tiles: writes each element once, where its home says, and gives the reference's numbers."""

from __future__ import annotations

import pytest

from abele.ops.layouts import even, flat, single
from abele.ops.planning import PLANS
from tests.ops import gaps
from tests.ops.harness import cases, machine, plan_and_run
from tests.ops.test_reference import parameters

HOMES = {
    "undecided": lambda type, chip: None,
    "flat": lambda type, chip: flat(type, chip, 2 % chip.tiles),
    "even": lambda type, chip: even(type, chip, 1 % chip.tiles),
    "single": lambda type, chip: single(type.shape, chip.tiles, chip.tiles - 1),
}


@pytest.mark.parametrize("case", parameters([c for c in cases() if c.name in PLANS], gaps.PLAN))
def test_plan_gives_the_reference(case):
    for tiles in (1, 3, 16):
        chip = machine(tiles)
        for home in HOMES.values():
            plan_and_run(case, chip, [home(t, chip) for t in case.operands], first=tiles // 2)
            if not case.operands:
                break

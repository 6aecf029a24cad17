"""What a sweep varies: every numeric field by its name, and mistakes in them."""

from __future__ import annotations

import pytest

from abele.errors import InvalidOption
from abele.machine import find_system
from abele.machine.chip import Chip
from abele.machine.constants import number_fields
from abele.machine.system import System
from abele.sweep import combinations, parse
from abele.sweep.points import FIELDS, machine, varied


def test_every_numeric_field_can_be_varied() -> None:
    assert {*number_fields(Chip), *number_fields(System), "ipus", "batch", "half", "stages"} <= FIELDS.keys()
    system = find_system("bow-2000")
    for name in {*number_fields(Chip), *number_fields(System)}:
        (values,) = parse([f"{name}=7"]).values()
        changed = machine(system, {name: values[0]})
        assert 7 in (getattr(changed, name, None), getattr(changed.chip, name, None)), name
        assert changed.key() != system.key(), name
    assert machine(system, {"ipus": 7}).ipus == 7
    assert machine(system, {"batch": 4}) is system


def test_values_have_the_kind_of_their_field() -> None:
    found = parse(["chip.tiles=1472, 1e3", "clock_hz=1e9,2", "half=true,no", "optimizer=adam", "micro_batch=4,4"])
    assert found == {
        "tiles": [1472, 1000],
        "clock_hz": [1e9, 2.0],
        "half": [True, False],
        "optimizer": ["adam"],
        "batch": [4],
    }
    assert [type(v) for v in (*found["tiles"], *found["clock_hz"])] == [int, int, float, float]


def test_combinations_run_the_last_field_fastest() -> None:
    points = combinations(parse(["tiles=1,2", "workers=3,4", "batch=5"]))
    assert [tuple(p.values()) for p in points] == [(1, 3, 5), (1, 4, 5), (2, 3, 5), (2, 4, 5)]
    assert varied(points) == ["tiles", "workers"]


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("tile=3", "'tiles'"),
        ("exchange_bytes=3", "exchange_bytes_per_cycle"),
        ("tiles", "Write tiles=VALUE"),
        ("tiles=", "Write tiles=VALUE"),
        ("tiles=many", "a whole number"),
        ("tiles=1.5", "a whole number"),
        ("tiles=inf", "a whole number"),
        ("clock_hz=fast", "a number"),
        ("half=maybe", "true or false"),
    ],
)
def test_mistakes_say_what_to_write(setting: str, says: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        parse([setting])
    assert says in str(caught.value)


def test_a_field_that_is_set_twice() -> None:
    with pytest.raises(InvalidOption, match="twice"):
        parse(["batch=1", "micro_batch=2"])

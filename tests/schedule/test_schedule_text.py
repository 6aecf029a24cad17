"""The text form: exact round trip, a golden page, and errors that name what is missing."""

import dataclasses
from pathlib import Path

import pytest
from handmade import dense, loop
from hypothesis import given, settings
from hypothesis import strategies as st

from abele.errors import InvalidOperand
from abele.ir.graph import Origin, Port
from abele.schedule import Span, parse_schedule, print_schedule

GOLDEN = Path(__file__).with_name("dense.schedule")


def round_trip(schedule):
    text = print_schedule(schedule)
    back = parse_schedule(text)
    assert back == schedule
    assert list(back.tensors) == list(schedule.tensors)
    assert print_schedule(back) == text
    return text


def test_golden():
    assert print_schedule(dense()) == GOLDEN.read_text()


@settings(max_examples=30)
@given(*(st.integers(1, 9) for _ in range(3)), st.sampled_from([(1, 1, 1), (2, 1, 1), (1, 2, 2)]))
def test_round_trip_of_products(m, k, n, parts):
    parts = tuple(min(p, size) for p, size in zip(parts, (m, k, n), strict=True))
    round_trip(dense(m, k, n, parts))


def test_round_trip_of_functions_and_shared_entries():
    text = round_trip(loop())
    assert text.count("\n  plan ") == len({id(s.plan) for _, s in loop().steps()})
    assert text.count("\n  layout ") == 3


def test_steps_that_start_together():
    schedule = dense()
    first, second, *others = schedule.main.nodes
    nodes = (first, dataclasses.replace(second, beside=True), *others)
    text = round_trip(dataclasses.replace(schedule, main=dataclasses.replace(schedule.main, nodes=nodes)))
    assert text.count(" beside") == 1


def test_names_that_are_not_words():
    schedule = loop()
    schedule = dataclasses.replace(
        schedule,
        name='a "b" -> c',
        tensors=schedule.tensors | {"s": dataclasses.replace(schedule.tensors["s"], source="x/y {1}")},
        input_ports=(Port("state", "nan"),),
        output_ports=(Port("state", "nan"),),
    )
    round_trip(schedule)


def test_views_origins_attributes_and_odd_spans():
    schedule = dense()
    x = schedule.tensors["x"]
    home = dataclasses.replace(x.home, spans=(Span(0, 2, -1, 3, 2),))
    step = schedule.main.nodes[0]
    flat = dataclasses.replace(step.operands[0], type=step.operands[0].type.with_shape((24,)))
    step = dataclasses.replace(
        step,
        operands=(flat, step.operands[1]),
        attributes={"a": (1, (2.5, -1e-7)), "b": None, "c": "x)", "d": float("inf"), "e": ()},
        origin=Origin("dir/a b.py", 3, "m.0", 2, 1, "backward"),
    )
    round_trip(
        dataclasses.replace(
            schedule,
            tensors=schedule.tensors | {"x": dataclasses.replace(x, home=home)},
            main=dataclasses.replace(schedule.main, nodes=(step, *schedule.main.nodes[1:])),
        )
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("add(xw", "add(nowhere", "'nowhere'"),
        (" p1 @", " p9 @", "plan 'p9'"),
        ("main main", "other main", "Expected 'main'"),
        ("\n}\n", "\n} more\n", "goes on"),
    ],
)
def test_errors(old, new, message):
    text = print_schedule(dense())
    assert old in text
    with pytest.raises(InvalidOperand, match=message):
        parse_schedule(text.replace(old, new))


def test_cut_text():
    text = print_schedule(dense())
    for end in range(1, len(text) - 3, 97):
        with pytest.raises(InvalidOperand):
            parse_schedule(text[:end])

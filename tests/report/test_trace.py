"""The trace: events of a thread nest, none ends before it begins, and totals are those of the report."""

import json

import pytest

from abele.report.store import Report, write
from abele.report.trace import PHASES, chrome_trace
from tests.report.synthetic import HOSTILE, Shape, program

SHAPES = {
    "pipeline": Shape(3, 16, 200),
    "one": Shape(1, 16, 80, training=False),
    "hostile": Shape(2, 16, 60, hostile=True, fill=1.7),
    "empty": Shape(1, 16, 0),
}


@pytest.fixture(scope="module", params=SHAPES)
def loaded(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("trace") / "profile.pop"
    write(path, [program(SHAPES[request.param])])
    with Report(path) as report:
        return json.loads("".join(chrome_trace(report))), report.summary(0), report.table("operations"), request.param


def test_events_nest(loaded):
    trace, *_ = loaded
    open_, last = {}, {}
    for event in trace["traceEvents"]:
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int) and event["name"]
        thread = event["pid"], event["tid"]
        if event["ph"] not in "BE":
            assert event["ph"] in "MC"
            continue
        assert event["ts"] >= last.get(thread, 0.0)
        last[thread] = event["ts"]
        stack = open_.setdefault(thread, [])
        if event["ph"] == "B":
            stack.append(event)
        else:
            begun = stack.pop()
            assert begun["name"] == event["name"] and begun["ts"] < event["ts"]
    assert not any(open_.values())


def test_threads_and_processes_have_names(loaded):
    trace, *_ = loaded
    events = trace["traceEvents"]
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] in "BE"} <= named
    assert {e["pid"] for e in events} == {e["pid"] for e in events if e["name"] == "process_name"}


def test_times_are_the_report_s(loaded):
    trace, summary, table, which = loaded
    events = [e for e in trace["traceEvents"] if e["ph"] in "BE" and (e["pid"], e["tid"]) == (1, 1)]
    if which == "empty":
        assert [e["name"] for e in events if e["name"] not in PHASES] == ["begin", "begin", "end", "end"]
    assert events[-1]["ts"] * 1e-6 == pytest.approx(summary["seconds"], abs=2e-9)
    spent, begun = 0.0, []
    for event in events:
        if event["ph"] == "B":
            begun.append(event)
        elif (start := begun.pop())["name"] == "compute" and len(begun) == (3 + (which != "empty")) - 1:
            spent += event["ts"] - start["ts"]
    steps = [i for i, kind in enumerate(table.words("kind")) if kind == "step"]
    expected = table.numbers("compute")[steps].sum() / summary["clock_hz"] * 1e6
    assert spent == pytest.approx(expected, rel=1e-2, abs=1e-9)


def test_names_are_kept(loaded):
    trace, *_, which = loaded
    if which == "hostile":
        assert {name for name in HOSTILE if name} <= {event["name"] for event in trace["traceEvents"]}

"""The trace: events of a thread nest, none ends before it begins, and totals are those of the report."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from abele.report.store import Report, write
from abele.report.trace import PHASES, chrome_trace
from tests.report.synthetic import HOSTILE, Shape, program
from tests.report.trace_rules import broken, slices

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
        text = "".join(chrome_trace(report))
        assert broken(text) == []
        return json.loads(text), report.summary(0), report.table("operations"), request.param


def test_every_slice_takes_time_and_lies_in_the_one_around_it(loaded):
    trace, *_ = loaded
    text = json.dumps(trace, ensure_ascii=False)
    last: dict[tuple[int, int], float] = {}
    for event in trace["traceEvents"]:  # of a thread in the order of time, as speedscope wants them
        if event["ph"] in "BE":
            thread = event["pid"], event["tid"]
            assert event["ts"] >= last.get(thread, 0.0)
            last[thread] = event["ts"]
    found = slices(text)
    assert len(found) == sum(event["ph"] == "B" for event in trace["traceEvents"]) > 0
    around: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for each in found:
        assert each.length > 0
        around.setdefault((each.pid, each.tid, each.depth), []).append((each.start, each.start + each.length))
    for (pid, tid, depth), spans in around.items():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
        if depth:
            outer = around[pid, tid, depth - 1]
            assert all(any(a <= start and stop <= b for a, b in outer) for start, stop in spans[:40])


def test_the_first_thread_of_a_process_is_its_main_thread(loaded):
    events = loaded[0]["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {name for (pid, tid), name in names.items() if pid == tid} <= {"program", "operations", "first turn"}
    assert all(name == "pipeline" for (pid, tid), name in names.items() if pid != tid)
    order = [e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"]
    assert order == sorted(set(order)) == sorted({e["pid"] for e in events})


GOOD = [
    {"ph": "M", "name": "process_name", "pid": 1, "tid": 1, "args": {"name": "a"}},
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "b"}},
    {"ph": "B", "name": "x", "pid": 1, "tid": 1, "ts": 1.5},
    {"ph": "C", "name": "bytes", "pid": 1, "tid": 1, "ts": 2, "args": {"bytes": 7}},
    {"ph": "E", "name": "x", "pid": 1, "tid": 1, "ts": 2.5},
]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, None),
        ({2: {"pid": "1"}}, "pid is no number"),
        ({2: {"tid": 0}}, "tid is no number"),
        ({2: {"ts": 1.50004}}, "nanoseconds"),
        ({2: {"ts": None}}, "no time"),
        ({2: {"name": ""}}, "no name"),
        ({2: {"name": "\U0001f600"}, 4: {"name": "\U0001f600"}}, "surrogate"),
        ({3: {"args": {"bytes": "7"}}}, "no number"),
        ({3: {"args": {}}}, "no args"),
        ({0: {"args": {"name": ""}}}, "without name"),
        ({0: {"name": "process_labels"}}, "nothing reads"),
        ({4: {"name": "y"}}, "not innermost"),
        ({4: {"ph": "B"}}, "never ends"),
        ({2: {"ph": "E"}}, "without a begin"),
        ({2: {"ph": "Z"}}, "phase"),
        ({2: {"tid": 2}, 4: {"tid": 2}}, "have no names"),
        ({2: {"cat": ""}}, "category"),
    ],
)
def test_the_rules_are_seen_to_be_broken(change, said):
    events = [event | change.get(i, {}) for i, event in enumerate(GOOD)]
    found = broken(json.dumps({"traceEvents": events}))
    assert (said is None and not found) or any(said in each for each in found)


@pytest.mark.parametrize("name", ["\U0001f600\U0001d56c", "a\x7fb\x00\x1f", "\u2028\u202e", "\\ud83d\\", '"\\"'])
def test_any_name_is_taken(tmp_path, name):
    """Perfetto refuses a file with an escaped pair of surrogates, or with U+007F as it is."""
    one = program(Shape(1, 8, 12), name)
    operations = one.tables["operations"]
    texts = [name if text == "map" else text for text in operations["name"].tolist()]
    write(tmp_path / "p.pop", [replace(one, tables={**one.tables, "operations": {**operations, "name": texts}})])
    with Report(tmp_path / "p.pop") as report:
        text = "".join(chrome_trace(report))
    assert broken(text) == [] and text.encode()
    assert {name} <= {each.name for each in slices(text)}


def test_a_name_that_is_no_text_is_shown_as_far_as_it_goes(tmp_path):
    write(tmp_path / "p.pop", [program(Shape(1, 8, 12), "file-\udcff")])
    with Report(tmp_path / "p.pop") as report:
        text = "".join(chrome_trace(report))
    assert broken(text) == [] and "file-?" in text


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

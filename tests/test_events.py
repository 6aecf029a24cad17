"""Events of a run: what is written comes back, sums survive folding and failures, and nothing stops the run."""

import itertools
import json
import math
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abele import events
from abele.errors import InvalidOption

FIGURES = {"name": "net", "system": "bow-2000", "samples": 4}
TOTALS = ("count", "wall", "gap", "samples", "losses", "loss_sum", "loss_bad")


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def sums(rows):
    """Totals of the steps of each program, and the extremes."""
    found = {}
    for row in rows:
        if row["event"] == "steps":
            total = found.setdefault(row["program"], dict.fromkeys(TOTALS, 0))
            for name in TOTALS:
                total[name] += row.get(name, 0)
            total["wall_max"] = max(row["wall_max"], total.get("wall_max", 0))
            total["loss_min"] = min(row.get("loss_min", math.inf), total.get("loss_min", math.inf))
    return found


def test_what_happens_is_read_back(tmp_path):
    path = tmp_path / "deep" / "live.jsonl"
    recorder = events.Recorder(path)
    assert events.running(path)
    program = recorder.program(FIGURES)
    losses = [np.float32(2.0), np.array([[1.0], [3.0]], np.float32), np.float32(np.nan), None]
    for number, loss in enumerate(losses):
        at = 100.0 + number
        recorder.step(program, number, at, at + 0.25, loss)
    recorder.message("a\nb" + "x" * 5000, "warning")
    recorder.end("failed", "ValueError: no")
    recorder.report()
    recorder.close()
    rows = read(path)
    assert [row["event"] for row in rows if row["event"] != "steps"] == ["run", "program", "message", "end", "report"]
    assert [row["n"] for row in rows] == list(range(len(rows)))
    (steps,) = [row for row in rows if row["event"] == "steps"]
    assert steps["first"] == 0 and steps["count"] == 4 and steps["samples"] == 16
    assert steps["wall"] == pytest.approx(1.0) and steps["gap"] == pytest.approx(2.25)
    assert (steps["losses"], steps["loss_sum"], steps["loss_min"], steps["loss_bad"]) == (2, 4.0, 2.0, 1)
    message = next(row for row in rows if row["event"] == "message")
    assert len(message["text"]) == events.LONGEST and message["level"] == "warning"
    assert not events.running(path)


def test_a_later_run_takes_the_place_of_an_earlier_and_of_nothing_else(tmp_path):
    path = tmp_path / "live.jsonl"
    first = events.Recorder(path)
    with pytest.raises(InvalidOption, match="Another process records"):
        events.Recorder(path)
    first.close()
    events.Recorder(path).close()
    assert len(read(path)) == 1
    precious = tmp_path / "model.py"
    precious.write_text("import torch\n")
    with pytest.raises(InvalidOption, match="something else than events"):
        events.Recorder(precious)
    assert precious.read_text() == "import torch\n"
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for a reader
    with pytest.raises(InvalidOption, match="no file that events"):
        events.Recorder(tmp_path / "pipe")
    with pytest.raises(InvalidOption, match="cannot be written"):
        events.Recorder(precious / "live.jsonl")


row = st.fixed_dictionaries(
    {
        "event": st.just("steps"),
        "program": st.integers(0, 2),
        "count": st.integers(1, 9),
        "wall": st.integers(0, 64).map(lambda n: n / 64),
        "gap": st.integers(0, 64).map(lambda n: n / 64),
        "wall_max": st.integers(0, 64).map(lambda n: n / 64),
        "samples": st.integers(0, 9),
    },
    optional={"loss_bad": st.integers(1, 3)},
)


@settings(max_examples=40)
@given(st.lists(st.tuples(row, st.booleans()), max_size=30))
def test_folding_keeps_every_sum(given):
    rows, starts = [], {}
    for number, (steps, loses) in enumerate(given):
        first = starts.get(steps["program"], 0)
        starts[steps["program"]] = first + steps["count"]
        steps = {"n": number, "t": float(number), "first": first, **steps}
        if loses:
            steps |= {"losses": 1, "loss_sum": number / 4, "loss_min": number / 4, "loss_max": number / 4}
        rows.append(steps)
    folded = events.folded(rows)
    assert sums(folded) == sums(rows)
    numbers = [steps["n"] for steps in folded]
    assert numbers == sorted(numbers)
    for program in starts:
        own = [steps for steps in folded if steps["program"] == program]
        assert len(own) == -(-sum(steps["program"] == program for steps in rows) // 2)
        assert own[0]["first"] == 0  # and each begins where the one before ends
        assert all(b["first"] == a["first"] + a["count"] for a, b in itertools.pairwise(own))


def test_a_long_run_stays_within_its_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "LIMIT", 8000)
    monkeypatch.setattr(events, "PERIOD", 0.002)
    monkeypatch.setattr(events, "MESSAGES", 5)
    path = tmp_path / "live.jsonl"
    recorder = events.Recorder(path)
    recorder._next_fold = events.LIMIT
    program, deadline = recorder.program(FIGURES), time.monotonic() + 20
    inodes, number = set(), 0
    while len(inodes) < 4 and time.monotonic() < deadline:
        recorder.step(program, number, float(number), number + 0.5, np.float32(1))
        recorder.message(f"message {number}")
        number += 1
        inodes.add(path.stat().st_ino)
        time.sleep(0.001)
    recorder.end()
    recorder.close()
    assert len(inodes) >= 4, "it was never folded"
    assert path.stat().st_size < 16_000
    rows = read(path)
    assert rows[0]["event"] == "run" and rows[-1]["event"] == "end"
    assert sums(rows)[program]["count"] == number
    assert not path.with_name("live.jsonl.new").exists()


def test_a_full_disk_is_said_once_and_nothing_is_lost(tmp_path, monkeypatch, capfd):
    full, write = threading.Event(), os.write
    monkeypatch.setattr(events, "PERIOD", 0.005)
    path = tmp_path / "live.jsonl"
    recorder = events.Recorder(path)
    program = recorder.program(FIGURES)
    time.sleep(0.05)
    monkeypatch.setattr(events.os, "write", lambda file, data: _refuse(full, write, file, data))
    full.set()
    for number in range(50):
        recorder.step(program, number, float(number), number + 0.5)
        recorder.message("all is well")
        time.sleep(0.002)
    assert len(path.read_bytes().splitlines()) == 2 and path.read_bytes().endswith(b"\n")
    full.clear()
    recorder.end()
    recorder.close()
    rows = read(path)
    assert sums(rows)[program]["count"] == 50 and rows[-1]["event"] == "end"
    said = capfd.readouterr().err
    assert said.count("No space left") == 1 and "The run goes on" in said


def _refuse(full, write, file, data):
    if not full.is_set():
        return write(file, data)
    _refuse.turn = not getattr(_refuse, "turn", False)
    if _refuse.turn:
        return write(file, data[:20])  # half a line
    raise OSError(28, "No space left on device")


PROGRAM = """
import os, resource, signal, sys
from abele import events
events.message("begins")
for action in sys.argv[1:]:
    if action == "limit":
        resource.setrlimit(resource.RLIMIT_FSIZE, (400, 400))
        for n in range(40): events.message("x" * 40)
    elif action == "raise":
        raise ValueError("no luck")
    elif action == "kill":
        import time; time.sleep(0.5); os.kill(os.getpid(), signal.SIGKILL)
    elif action == "fork":
        child = os.fork()
        if not child:
            events.message("of the child")
            os._exit(0)
        os.waitpid(child, 0)
print("done")
"""


def process(tmp_path, *actions, **variables):
    environment = {**os.environ, "ABELE_LIVE": str(tmp_path / "live.jsonl"), **variables}
    command = [sys.executable, "-c", PROGRAM, *actions]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_a_variable_records_any_program(tmp_path):
    done = process(tmp_path, "fork")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    rows = read(tmp_path / "live.jsonl")
    assert [row["event"] for row in rows] == ["run", "message", "end"]
    assert rows[-1]["status"] == "ended"


def test_how_it_ends_is_told(tmp_path):
    assert process(tmp_path, "raise").returncode == 1
    end = read(tmp_path / "live.jsonl")[-1]
    assert (end["status"], end["error"]) == ("failed", "ValueError: no luck")
    process(tmp_path, "kill")
    assert [row["event"] for row in read(tmp_path / "live.jsonl")] == ["run", "message"]
    assert not events.running(tmp_path / "live.jsonl")


def test_a_disk_that_is_really_full_does_not_stop_it(tmp_path):
    done = process(tmp_path, "limit")
    assert done.returncode == 0 and done.stdout == "done\n"
    assert done.stderr.count("cannot be written") == 1
    read(tmp_path / "live.jsonl")  # whole lines


@pytest.mark.parametrize("variables", [{"RANK": "1"}, {"ABELE_LIVE": ""}])
def test_others_of_several_processes_say_nothing(tmp_path, variables):
    done = process(tmp_path, **variables)
    assert (done.returncode, done.stderr) == (0, "") and not list(tmp_path.iterdir())


def test_a_bad_name_is_said_and_the_program_runs(tmp_path):
    done = process(tmp_path, ABELE_LIVE=str(tmp_path))
    assert done.returncode == 0 and done.stdout == "done\n"
    assert "ABELE_LIVE" in done.stderr and "Nothing is recorded" in done.stderr

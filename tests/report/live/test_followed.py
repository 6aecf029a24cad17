"""A run followed through its file: files that grow, are cut, replaced and folded; the stream; the metrics; advice."""

import json
import os
import re

import numpy as np
import pytest

from abele import events
from abele.report.live import FollowedRun
from abele.report.live import run as live_run
from abele.report.live.advice import advice
from abele.report.live.tail import Tail


def figures(**changes):
    """A program that trains, a third of whose time is the host's way back."""
    parts = {"compute": 6e4, "exchange": 0.0, "links": 0.0, "sync": 0.0, "host": 0.0, "bubble": 0.0, "overhead": 3e4}
    whole = {"name": 'a "b"\\\n', "system": "bow-2000", "samples": 4, "train": True, "seconds": 1e-4, "cycles": 9e4}
    whole |= {"cycles_by": parts, "ipus": 1, "replicas": 1, "host_in": 100, "host_out": 10, "busy": 0.9, "loop": None}
    whole |= {"memory": {"max": 1000, "limit": 4000, "fits": True}, "once": parts["overhead"]}
    whole |= {"waits": {"data": {"cycles": parts["host"], "moved": 0, "tile": 0}}}
    whole |= {"stages": [{"ipu": 0, "stages": [0], "compute": 0.5, "host": 0.1}]}
    return whole | changes


def line(n, kind="message", **more):
    return json.dumps({"n": n, "t": 0.1 * n, "event": kind, **more}) + "\n"


def steps(n, first, count, **more):
    more = {"wall": 0.5 * count, "gap": 0.1, "wall_max": 0.5, "samples": 4 * count} | more
    return line(n, "steps", program=0, first=first, count=count, **more)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "live.jsonl"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(live_run, "PERIOD", 0.002)
    monkeypatch.setattr(live_run, "GONE", 0.0)


def seen(tail):
    anew, rows = tail.poll()
    return anew, [row["n"] for row in rows]


def test_a_file_that_grows_is_read_line_by_line(path):
    tail = Tail(path)
    assert seen(tail) == (False, [])
    path.write_text(line(0) + line(1)[:10])
    assert seen(tail) == (True, [0])
    assert seen(tail) == (False, [])
    with path.open("a") as file:
        file.write(line(1)[10:] + "nonsense\n[1]\n" + '{"event": 3, "n": 1}\n' + "[" * 100_000 + "\n" + line(2))
        file.write(
            '{"event": "steps", "n": 3, "loss_sum": NaN}\n'
            + "\udcff".encode("utf-8", "surrogateescape").decode("latin1")
        )
    assert seen(tail) == (False, [1, 2])


def test_a_file_that_is_cut_or_replaced_is_read_anew(path):
    path.write_text(line(0) + line(1))
    tail = Tail(path)
    assert seen(tail) == (True, [0, 1])
    os.truncate(path, len(line(0)))
    assert seen(tail) == (True, [0])
    fresh = path.with_name("other")
    fresh.write_text(line(5) + line(6) + line(7))
    fresh.replace(path)
    assert seen(tail) == (True, [5, 6, 7])
    path.unlink()
    assert seen(tail) == (False, [])
    path.write_text(line(8))
    assert seen(tail)[1] == [8]


def test_a_pipe_in_the_place_of_the_file_is_not_waited_for(path):
    os.mkfifo(path)
    assert Tail(path).poll() == (False, [])


def messages(run, after="", count=1):
    """The next messages with events: their id, whether all began anew, and the events."""
    found, anew = [], False
    stream = run.events(after)
    for chunk in stream:
        text = chunk.decode()
        assert text.endswith("\n\n")
        anew |= "event: anew" in text
        if (id := re.match(r"id: (.*)\ndata: (.*)\n\n$", text)) and own(rows := json.loads(id[2])):
            found.append((id[1], anew, rows))
        if len(found) == count:
            stream.close()
            break
    return found if count > 1 else found[0]


def own(rows):
    """Numbers of the events that are the recorder's."""
    return [row["n"] for row in rows if "n" in row]


def test_a_reader_resumes_where_it_stopped(path):
    path.write_text(line(0, "run", id="abc") + line(1, "program", program=0, **figures()) + steps(2, 0, 5))
    run = FollowedRun(path)
    id, anew, rows = messages(run)
    assert (id, anew, own(rows)) == ("abc.2", True, [0, 1, 2])
    with path.open("a") as file:
        file.write(steps(3, 5, 5) + line(4))
    id, anew, rows = messages(run, after="abc.2")
    assert (id, anew, own(rows)) == ("abc.4", False, [3, 4])
    # folded meanwhile: what the reader has had does not come again
    rows = events.folded([json.loads(text) for text in path.read_text().splitlines()])
    fresh = path.with_name("other")
    fresh.write_text("".join(json.dumps(row) + "\n" for row in rows) + line(5))
    fresh.replace(path)
    _, anew, rows = messages(run, after="abc.4")
    assert (anew, own(rows)) == (False, [5])
    # of another run, of none, or of nonsense: everything
    for after in ("other.4", "", "..", "abc", "abc.x"):
        assert messages(run, after=after)[1] and own(messages(run, after=after)[2])[0] == 0
    assert run.readers == 0


def test_another_run_in_the_same_file_begins_anew(path):
    path.write_text(line(0, "run", id="one") + line(1))
    run = FollowedRun(path)
    stream = run.events()
    text = b"".join(next(stream) for _ in range(3)).decode()
    assert "id: one.1" in text
    fresh = path.with_name("other")
    fresh.write_text(line(0, "run", id="two"))
    fresh.replace(path)
    text = ""
    while "id: two.0" not in text:
        text += next(stream).decode()
    assert text.index("event: anew") < text.index("id: two.0")
    stream.close()


def test_the_past_comes_in_parts(path, monkeypatch):
    monkeypatch.setattr(live_run, "BATCH", 10)
    path.write_text(line(0, "run", id="r") + "".join(line(n) for n in range(1, 35)))
    found = messages(FollowedRun(path), count=4)
    assert [len(own(rows)) for _, _, rows in found] == [10, 10, 10, 5]
    assert [number for _, _, rows in found for number in own(rows)] == list(range(35))


def test_it_waits_for_a_file_and_beats_while_nothing_happens(path, monkeypatch):
    monkeypatch.setattr(live_run, "HEARTBEAT", 0.01)
    run = FollowedRun(path)
    stream = run.events()
    assert next(stream).startswith(b"retry:")
    assert next(stream).startswith(b":")
    path.write_text(line(0, "run", id="r"))
    while not (text := next(stream)).startswith(b"id:"):
        pass
    assert b"r.0" in text
    run.close()
    assert not list(stream)


def test_a_process_that_is_gone_is_told(path):
    recorder = events.Recorder(path)
    run = FollowedRun(path)
    assert run.look().running
    recorder.close()  # without a word
    stream = run.events()
    text = ""
    while '"gone"' not in text:
        text += next(stream).decode()
    assert not run.look().running and "abele_run_up 0" in run.metrics()
    stream.close()


def test_a_report_is_looked_for_beside_the_file_alone(path):
    path.write_text(line(0, "run", id="r") + line(1, "report", path="/etc/passwd"))
    run = FollowedRun(path)
    run.look()
    assert run.report is None
    path.with_name("profile.pop").write_bytes(b"")
    assert run.report == path.with_name("profile.pop")


def parsed(text):
    """Metrics as Prometheus reads them: name → {labels: value}, after checking the format line by line."""
    found, types = {}, {}
    for each in text.splitlines():
        if kind := re.fullmatch(r"# TYPE (\w+) (counter|gauge)", each):
            assert kind[1] not in types, "told twice"
            types[kind[1]] = kind[2]
            continue
        if re.fullmatch(r"# HELP (\w+) .+", each):
            continue
        good = re.fullmatch(r'(\w+)(?:\{((?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)', each)
        assert good, each
        name, labels, value = good.groups()
        assert name in types and name.startswith("abele_")
        assert (types[name] == "counter") == name.endswith("_total")
        found.setdefault(name, {})[labels or ""] = float(value)
    return found


def test_metrics_are_the_totals(path):
    path.write_text(
        line(0, "run", id="r", abele="1")
        + line(1, "program", program=0, **figures())
        + steps(2, 0, 5, losses=4, loss_sum=2.0, loss_min=0.1, loss_max=0.9, loss_bad=1)
        + steps(3, 5, 3, losses=3, loss_sum=0.75, loss_min=0.1, loss_max=0.9)
        + line(4)
    )
    found = parsed(FollowedRun(path).metrics())
    label = 'program="0",name="a \\"b\\"\\\\\\n",system="bow-2000"'
    assert found["abele_program_runs_total"] == {label: 8}
    assert found["abele_program_samples_total"] == {label: 32}
    assert found["abele_program_wall_seconds_total"] == {label: 4.0}
    assert found["abele_program_modelled_seconds_total"][label] == pytest.approx(8e-4)
    assert found["abele_program_host_in_bytes_total"] == {label: 800}
    assert found["abele_program_loss"] == {label: 0.25}
    assert found["abele_program_losses_not_finite_total"] == {label: 1}
    assert found["abele_program_stage_share"][label + ',ipu="0",kind="compute"'] == 0.5
    assert found["abele_messages_total"] == {"": 1}
    parsed(FollowedRun(path.with_name("nothing")).metrics())


def test_events_that_lack_something_are_passed_over(path):
    whole = figures()
    for name in whole:
        path.write_text(
            line(0, "run", id="r") + line(1, "program", program=0, **{k: v for k, v in whole.items() if k != name})
        )
        run = FollowedRun(path)
        parsed(run.metrics())
        messages(run)
        assert bool(run.state.programs) == (name in ("ipus", "replicas")), name  # these are for people alone
    path.write_text(
        line(0, "run", id="r", t="x")
        + line(1, "program", program=[1], **whole)
        + line(2, "program", program=0, **whole | {"cycles": 0, "memory": {"max": 1, "limit": 0, "fits": True}})
        + line(3, "steps", program=0)
        + line(4, "steps", program={})
    )
    run = FollowedRun(path)
    parsed(run.metrics())
    assert list(run.state.programs) == [0] and run.state.programs[0].runs == 0


def test_an_event_is_taken_whole_or_not_at_all(path):
    path.write_text(
        line(0, "run", id="r")
        + line(1, "program", program=0, **figures())
        + steps(2, 0, 5)
        + line(3, "steps", program=0, count=100, first=5, samples=4, wall=1.0, gap=None)
        + line(4, t="inf")
        + line(5).replace('"n": 5', '"n": 5, "t": 1e999')
        + line(6, "run", id="r\n\nevent: other")
        + steps(7, 5, 2)
    )
    run = FollowedRun(path)
    _, _, rows = messages(run)
    assert own(rows) == [0, 1, 2, 7]
    totals = run.state.programs[0]
    assert (totals.runs, totals.samples, totals.wall) == (7, 28, 3.5) and run.state.last < 100


def test_recorded_and_followed_at_once(path, monkeypatch):
    monkeypatch.setattr(events, "PERIOD", 0.002)
    monkeypatch.setattr(events, "LIMIT", 3000)
    recorder = events.Recorder(path)
    recorder._next_fold = events.LIMIT
    run = FollowedRun(path)
    stream = run.events()
    program = recorder.program(figures())
    told = {}
    for number in range(400):
        recorder.step(program, number, float(number), number + 0.5, np.float32(1))
        if number % 4 == 0:
            take(told, next(stream))
    recorder.end()
    recorder.close()
    while "end" not in told:
        take(told, next(stream))
    stream.close()
    assert sum(told["steps"].values()) == 400
    assert run.state.programs[program].runs == 400


def take(told, chunk):
    """Runs by the first of each event; one of several as one takes the place of its parts."""
    if not chunk.startswith(b"id:"):
        return
    for row in json.loads(chunk.decode().split("data: ")[1]):
        if row["event"] == "steps":
            found = told.setdefault("steps", {})
            for first in [first for first in found if first >= row["first"]]:
                del found[first]
            found[row["first"]] = row["count"]
        told.setdefault(row["event"], True)


def test_advice_on_batch_and_accumulation():
    rows = advice(figures())
    assert [row["text"].split(" of")[0] for row in rows][:1] == ["Set gradient accumulation to 2 instead"]
    assert rows[0]["gain"] == pytest.approx(2 * 9e4 / (3e4 + 2 * 6e4))
    # nothing is once a run: nothing to be said
    still = {"cycles_by": figures()["cycles_by"] | {"overhead": 0.0, "compute": 9e4}, "once": 0.0}
    assert not advice(figures(**still))
    loop = {"count": 8, "stages": 4, "cycles": 8.5e4, "slot": 5e3, "ramp": 9, "bubble": 4e4}
    (bubble, *_) = advice(figures(loop=loop))
    assert "accumulation to 16 instead of 8" in bubble["text"]
    assert bubble["gain"] == pytest.approx(2 * 9e4 / (9e4 + 8 * 5e3))
    assert "device iterations to 16" in advice(figures(loop=loop, train=False))[0]["text"]
    assert "does not fit" in " ".join(
        row["text"] for row in advice(figures(memory={"max": 9, "limit": 4, "fits": False}))
    )
    assert "larger micro-batch" in advice(figures(**still, busy=0.2))[0]["text"]
    waits = {"data": {"cycles": 3e4, "moved": 0, "tile": 0}}
    (moved,) = advice(figures(**still, waits=waits))
    assert "Move less" in moved["text"] and "33% of a run waits for its data, 100 bytes in" in moved["why"]


@pytest.mark.parametrize("kind, word", [("optimizer state", "Optimizer"), ("weights", "Weight")])
def test_what_waits_in_streaming_memory_is_told_from_the_data(kind: str, word: str):
    still = {"cycles_by": figures()["cycles_by"] | {"overhead": 0.0, "host": 4e4, "compute": 5e4}, "once": 0.0}
    waits = {"data": {"cycles": 1e3, "moved": 0, "tile": 0}, kind: {"cycles": 3e4, "moved": 6000, "tile": 2000}}
    (row,) = advice(figures(**still, waits=waits))
    assert row["text"].startswith(f"Keep {kind} on the tiles: options.TensorLocations.set{word}Location(")
    assert row["gain"] == pytest.approx(9e4 / 6e4)
    assert "33% of a run" in row["why"] and "6,000 bytes" in row["why"] and "2,000 bytes of each" in row["why"]
    (row,) = advice(figures(**still, waits=waits, memory={"max": 3000, "limit": 4000, "fits": True}))
    assert "numIOTiles" in row["text"] and "on the tiles:" not in row["text"] and row["gain"] is None
    assert "of which 1,000 are free" in row["why"]


def test_a_slow_loader_is_held_against_the_modelled_time():
    assert "Load data faster" in advice(figures(), runs=101, gap=0.1)[0]["text"]
    assert "Load data faster" not in str(advice(figures(), runs=101, gap=0.004))
    assert "Load data faster" not in str(advice(figures(), runs=2, gap=10.0))

"""``abele run --live`` and ``abele view --live``: a run is recorded, followed, and goes on without its viewer."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zlib

import pytest

from abele.cli import live

PROGRAM = """
import sys, time, torch, poptorch
from abele import events
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
    def forward(self, x, y):
        out = self.layer(x)
        return out, torch.nn.functional.cross_entropy(out, y)
net = Net()
model = poptorch.trainingModel(net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
x, y = torch.randn(8, 4), torch.randint(0, 2, (8,))
for step in range(int(sys.argv[1])):
    _, loss = model(x, y)
    if len(sys.argv) > 2: time.sleep(0.02)
events.message("the last loss is %.3f" % loss.item())
print("done")
"""


def script(path):
    file = path / "train.py"
    file.write_text(PROGRAM)
    return file


def start(*arguments, **more):
    command = [sys.executable, "-m", "abele", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)


def ask(url, name, **headers):
    address = url.replace("/?", f"/{name}?")
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=10) as answer:
        return answer.read()


def url_of(process):
    """The address that a command says, of the lines that it prints."""
    for text in process.stdout:
        if found := re.search(r"http://\S+", text):
            return found[0]
    raise AssertionError("it says no address")


def test_what_runs_is_recorded(own_place, abele, monkeypatch):
    monkeypatch.setattr(live, "_view", lambda path: None)
    done = abele("run", "--live", "--report", own_place / "out", "--json", script(own_place), "3")
    assert done.status == 0, done
    rows = [json.loads(line) for line in (own_place / "out" / "live.jsonl").read_text().splitlines()]
    (program,) = [row for row in rows if row["event"] == "program"]
    (document,) = done.json["programs"]
    assert program["seconds"] == document["seconds"] and program["samples"] == 8 and program["train"]
    steps = [row for row in rows if row["event"] == "steps"]
    assert sum(row["count"] for row in steps) == document["runs"] == 3
    assert sum(row["wall"] for row in steps) / 3 == pytest.approx(document["wall_seconds"], rel=0.01)
    assert sum(row["losses"] for row in steps) == 3
    said = next(row["text"] for row in rows if row["event"] == "message" and "last loss" in row["text"])
    assert float(said.split()[-1]) == pytest.approx(steps[-1]["loss_min"], abs=0.001)
    assert [row["event"] for row in rows[-2:]] == ["end", "report"]
    # from the cache the same is told at once: nothing is charged before it runs
    monkeypatch.setattr("abele.compile.session.charged", None)
    assert abele("run", "--live", "--report", own_place / "out", script(own_place), "1").status == 0
    again = [json.loads(line) for line in (own_place / "out" / "live.jsonl").read_text().splitlines()]
    (later,) = [row for row in again if row["event"] == "program"]
    assert later | {"t": 0, "n": 0} == program | {"t": 0, "n": 0}


def test_how_a_program_failed_is_told(own_place, abele, monkeypatch):
    monkeypatch.setattr(live, "_view", lambda path: None)
    for line, error in (("1 / 0", "ZeroDivisionError"), ("import sys; sys.exit(7)", "exit status 7")):
        (own_place / "wrong.py").write_text(line)
        assert abele("run", "--live", "--report", own_place / "out", own_place / "wrong.py").status != 0
        end = json.loads((own_place / "out" / "live.jsonl").read_text().splitlines()[-1])
        assert end["status"] == "failed" and error in end["error"]


def test_a_run_goes_on_when_its_viewer_is_killed(own_place):
    file, token = own_place / "live.jsonl", own_place / "token"
    run = subprocess.Popen(
        [sys.executable, script(own_place), "60", "slowly"],
        env={**os.environ, "ABELE_LIVE": str(file)},
        stdout=subprocess.PIPE,
        text=True,
    )
    viewer = start("view", "--live", file, "--no-browser", "--token-file", token)
    try:
        url = url_of(viewer)
        assert stat.S_IMODE(token.stat().st_mode) == 0o600 and token.read_text() in url
        index = json.loads(ask(url, "data/index"))
        assert index["live"] and index["programs"] == []
        assert json.loads(zlib.decompress(ask(url, "data/index", **{"Accept-Encoding": "deflate"}))) == index
        with pytest.raises(urllib.error.HTTPError, match="404"):
            ask(url, "data/p/0/summary")
        while "abele_program_runs_total" not in (text := ask(url, "metrics").decode()):
            time.sleep(0.05)
        assert "abele_run_up 1" in text
        bare = url.split("?")[0] + "?"
        assert "abele_run_up" in ask(bare, "metrics", Authorization=f"Bearer {token.read_text()}").decode()
        with pytest.raises(urllib.error.HTTPError, match="403"):
            ask(bare, "metrics")
        with urllib.request.urlopen(url.replace("/?", "/events?"), timeout=10) as stream:
            while not stream.readline().startswith(b"id:"):
                pass
            viewer.send_signal(signal.SIGKILL)  # in the middle of a stream
            viewer.wait()
            assert run.poll() is None
    finally:
        viewer.kill()
        out, _ = run.communicate(timeout=60)
    assert (run.returncode, out) == (0, "done\n")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert sum(row["count"] for row in rows if row["event"] == "steps") == 60


def test_a_viewer_that_a_run_has_started_ends_by_itself(own_place, monkeypatch):
    started = []
    monkeypatch.setattr(live, "LINGER", 0.3)
    popen = subprocess.Popen
    monkeypatch.setattr(live.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)))
    recorder = live.events.Recorder(own_place / "live.jsonl")
    live._view(recorder.path)
    recorder.end()
    recorder.close()
    assert started[0].wait(timeout=60) == 0


def test_what_cannot_be_followed_is_said(own_place, abele):
    assert "nothing to show" in abele("view").one_paragraph()
    (own_place / "token").write_text("short")
    said = abele("view", "--live", "x", "--token-file", "token", "--no-browser").one_paragraph()
    assert "is no token" in said
    assert "Leave one" in abele("view", "out", "--live", "x", "--save", "page.html").one_paragraph()
    os.mkfifo(own_place / "pipe")  # opening it would wait for a writer
    assert "no file that events" in abele("view", "--live", "pipe", "--no-browser").one_paragraph()
    assert "something else than events" in abele("view", "--live", "token", "--no-browser").one_paragraph()
    (own_place / "out").mkdir()
    (own_place / "out" / "live.jsonl").write_text("mine")
    assert "something else" in abele("view", "--live", "out", "--no-browser").one_paragraph()  # its live.jsonl
    assert "something else" in abele("run", "--live", "--report", "out", script(own_place), "1").one_paragraph()

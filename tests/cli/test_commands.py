"""Every command: for people, and as one JSON document."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path

import pytest

from abele.cli.validate import _in_unit
from abele.report.saved import saved_page
from abele.report.shown import Shown
from abele.zoo import ZOO
from tests.cli.conftest import MODELS, process

PROFILE_FIELDS = {
    *("model", "mode", "batch", "system", "ipus", "compile_seconds", "cached", "cycles", "seconds", "throughput"),
    *("tile_memory", "cycles_by", "flops", "peak_fraction", "energy_joules", "steps"),
}
COMMANDS = ("run", "profile", "systems", "zoo", "passes", "opt", "view", "doctor")

SCRIPT = """
import sys
print("the program's own line", sys.argv[1:])
if "fail" in sys.argv:
    raise ValueError("on purpose")
sys.exit(3 if "exit" in sys.argv else 0)
"""


def test_profile_json_has_the_named_fields(abele) -> None:
    found = abele("profile", "mlp", "--small", "--train", "--batch", "4", "--json").json
    assert found.keys() >= PROFILE_FIELDS
    assert {"limit", "max", "mean", "fits", "fullest_tile"} <= found["tile_memory"].keys()
    assert {"compute", "exchange", "sync", "host"} <= found["cycles_by"].keys()
    assert (found["model"], found["mode"], found["batch"], found["system"]) == ("mlp", "training", 4, "bow-2000")
    assert found["cycles"] > 0 and found["steps"] and not found["cached"]
    assert found["throughput"] == pytest.approx(4 / found["seconds"])
    assert sum(found["cycles_by"].values()) == pytest.approx(found["cycles"])
    assert "wall_seconds" not in found


def test_times_of_validation_are_in_the_unit_that_suits_them() -> None:
    assert _in_unit(2.2e-6, 2e-6, "s") == ("2.2", "2", "µs")
    assert _in_unit(1500.0, 1400.0, "us") == ("1.5", "1.4", "ms")
    assert _in_unit(1.0, 2.0, "min") == ("1", "2", "min")
    assert _in_unit(0.5, 0.4, "TFLOPS") == ("0.5", "0.4", "TFLOPS")


def test_help_and_passes_are_plain_text() -> None:
    assert process("profile", "--help").out.count("<bool>") <= 1  # of --help itself
    assert "`" not in process("passes", "--train").out


def test_micro_batches_are_what_is_asked_for(abele) -> None:
    pipeline = ("profile", "mlp", "--small", "--train", "--stages", "2", "--json")
    assert abele(*pipeline, "--accumulate", "1").json["accumulation"] == 1
    assert abele(*pipeline).json["accumulation"] == 4


def test_profile_can_run_what_it_profiles(abele) -> None:
    found = abele("profile", f"{MODELS}:good", "--batch", "3", "--run", "2", "--json").json
    assert found["runs"] == 2 and found["wall_seconds"] > 0 and found["seconds"] > 0
    shown = abele("profile", "mnist-cnn", "--small", "--train", "--run", "1")
    assert shown.status == 0 and "this computer's clock" in shown.out


def test_profile_takes_a_graph_in_text_form(abele, tmp_path: Path) -> None:
    graph = abele("opt", "mlp", "--small", "--after", "capture").out
    (tmp_path / "mlp.graph").write_text(graph)
    again = abele("profile", tmp_path / "mlp.graph", "--json").json
    straight = abele("profile", "mlp", "--small", "--json").json
    assert again["cycles"] == straight["cycles"] and again["tile_memory"]["max"] == straight["tile_memory"]["max"]


@pytest.mark.parametrize("name", ["mlp", "lstm", "resnet18"])
def test_profile_says_the_same_from_the_cache(abele, name: str) -> None:
    first = abele("profile", name, "--small", "--train", "--json").json
    second = abele("profile", name, "--small", "--train", "--json").json
    assert not first["cached"] and second["cached"]
    differ = {k for k in first if first[k] != second[k]}
    assert differ <= {"cached", "compile_seconds", "capture_seconds", "passes"}
    assert not abele("profile", name, "--small", "--train", "--no-cache", "--json").json["cached"]


def test_systems(abele) -> None:
    rows = {r["name"]: r for r in abele("systems", "--json").json}
    assert rows["m2000"]["ipus"] == rows["bow-2000"]["ipus"] == 4
    assert {f"pod{n}" for n in (4, 16, 64, 128, 256)} <= rows.keys()
    assert "bow-2000" in abele("systems").out
    one = abele("systems", "bow-2000", "--json").json
    assert one["constants"]["chip.tiles"]["value"] == 1472 and one["constants"]["chip.tiles"]["source"]
    assert "confidence" in abele("systems", "bow-2000").out
    own = abele("systems", f"{MODELS}:tight", "--json").json
    assert own["constants"]["chip.tile_memory"]["value"] == 340 * 1024


def test_zoo(abele) -> None:
    assert [r["name"] for r in abele("zoo", "--json").json] == list(ZOO)
    assert "bert-large" in abele("zoo").out


def test_passes(abele) -> None:
    inference = [r["name"] for r in abele("passes", "--json").json]
    training = abele("passes", "--train", "--json").json
    names = [r["name"] for r in training]
    assert "autodiff" in names and "autodiff" not in inference and all(r["what"] for r in training)
    assert "fuse" in abele("passes").out


def test_opt_prints_the_graph_between_any_two_passes(abele) -> None:
    found = abele("opt", "mlp", "--small", "--train", "--json").json
    texts = [
        abele("opt", "mlp", "--small", "--train", "--after", name, "--json").json["text"] for name in found["passes"]
    ]
    assert texts[0].startswith("graph") and texts[-1].startswith("schedule") and len(set(texts)) > 4
    assert texts[found["passes"].index(found["after"])] == found["text"]
    assert abele("opt", "mlp", "--small").out.startswith("graph")


def test_doctor(abele, tmp_path: Path) -> None:
    before = abele("doctor", "--json").json
    assert before["cache"] == {"directory": str(tmp_path / "cache"), "entries": 0, "bytes": 0}
    abele("profile", "mlp", "--small")
    after = abele("doctor", "--json").json
    assert after["cache"]["entries"] == 1 and after["cache"]["bytes"] > 0
    assert after["providers"]["llvm"] and after["versions"]["torch"] and after["cache_writable"]
    assert "llvmlite" in abele("doctor").out


def test_a_report_is_a_file_and_a_page_of_it(abele, tmp_path: Path) -> None:
    for model in ("good", "hostile"):
        folder = tmp_path / model
        done = abele("profile", f"{MODELS}:{model}", "--report", folder, "--json").json
        assert done["report"] == str(folder / "report.html")
        assert sorted(p.name for p in folder.iterdir()) == ["profile.json", "profile.pop", "report.html"]
        assert (folder / "report.html").read_text(encoding="utf-8") == saved_page(Shown(folder))
        assert abele("view", folder, "--save", tmp_path / "redacted.html", "--redact-source", "--json").status == 0
        held = re.search(r'id="saved">(.*?)</script>', (tmp_path / "redacted.html").read_text(encoding="utf-8"))
        assert held
        for name, data in json.loads(held[1]).items():
            assert b"models.py" not in zlib.decompress(base64.b64decode(data)), name
    said = abele("profile", f"{MODELS}:good", "--report", tmp_path / "a folder").out
    assert f"abele view '{tmp_path / 'a folder'}'" in said


def test_run_passes_arguments_and_keeps_the_exit_status(abele, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(SCRIPT)
    done = abele("run", script, "--its-own", "option")
    assert done.status == 0 and "['--its-own', 'option']" in done.out
    assert abele("run", script, "exit").status == 3
    failed = abele("run", script, "fail")
    assert failed.status == 1 and failed.err.count("on purpose") == 2  # its line of source, and the message
    assert 'program.py", line 5' in failed.err and "runpy" not in failed.err and "Traceback" not in failed.err
    assert "runpy" in abele("run", "--traceback", script, "fail").err


def test_run_json_is_one_document_whatever_the_program_prints(abele, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(SCRIPT)
    done = abele("run", "--json", script)
    assert done.json == {"script": str(script), "programs": []}
    assert "the program's own line" in done.err


PROGRAM = """
import torch
import poptorch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
    def forward(self, x, y):
        z = self.layer(x)
        return z, torch.nn.functional.cross_entropy(z, y)

model = Model()
model = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1))
for _ in range(2):
    print("loss", float(model(torch.ones(5, 4), torch.zeros(5, dtype=torch.long))[1]))
"""


def test_run_says_what_a_poptorch_program_costs_on_several_machines(abele, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    done = abele("run", "--json", "--system", "m2000", "--system", "bow-2000", "--report", tmp_path / "r", script)
    first, second = done.json["programs"]
    assert (first["system"], second["system"]) == ("m2000", "bow-2000")
    assert first["runs"] == second["runs"] == 2 and first["wall_seconds"] == second["wall_seconds"] > 0
    assert first["cycles_by"]["compute"] == second["cycles_by"]["compute"]
    assert first["seconds"] >= second["seconds"]  # both may wait for the host
    assert done.err.count("loss") == 2 and (tmp_path / "r" / "report.html").is_file()
    shown = abele("run", "--system", "m2000", "--system", "bow-2000", script)
    assert shown.out.count("loss") == 2 and "m2000" in shown.out and "bow-2000" in shown.out


@pytest.mark.parametrize(
    ("end", "status"), [("raise KeyboardInterrupt", 130), ("model(torch.ones(9, 4))", 1), ("raise SystemExit(3)", 3)]
)
def test_run_charges_what_ran_before_the_program_stopped(abele, tmp_path: Path, end: str, status: int) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM + end + "\n")
    done = abele("run", "--report", tmp_path / "r", script)
    assert done.status == status and "modelled time" in done.out
    assert (tmp_path / "r" / "report.html").is_file()
    assert "site-packages" not in done.err and "src/poptorch" not in done.err
    assert abele("run", "--json", script).json["programs"][0]["runs"] == 2


def test_the_command_is_a_program() -> None:
    found = process("profile", "mlp", "--small", "--json")
    assert found.json["model"] == "mlp" and found.status == 0
    helped = process("--help")
    assert helped.status == 0 and all(c in helped.out for c in COMMANDS)
    alone = process()
    assert "Usage" in alone.out + alone.err and "Error" not in alone.err

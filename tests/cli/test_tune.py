"""``abele tune`` and the commands that take its options file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from abele.tune.options_file import read_options, write_options
from tests.tune.test_options_file import USUAL

MODELS = Path(__file__).parent.parent / "tune" / "models.py"

PROGRAM = """
import torch, poptorch
import models

class Trained(models.Net):
    pass

options = poptorch.Options().replicationFactor(1)
options.Training.gradientAccumulation(1)
model = Trained(64, 128, 128, 128, 64)
trained = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.01))
n = BATCH * trained.options.replication_factor * trained.options.Training.gradient_accumulation
print("loss", float(trained(torch.ones(n, 64), torch.zeros(n, 64))[1].mean()))
"""


def test_tune_profile_and_run_agree(abele, tmp_path: Path) -> None:
    only = ["batch=2", "stages=2", "pipeline=grouped", "recompute=checkpoints,standard", "memory_proportion=0.2,0.6"]
    system = f"{MODELS}:small"
    arguments = [f"{MODELS}:deep", "--train", "--system", system]
    restricted = [word for text in only for word in ("--only", text)]
    tuned = abele("tune", *arguments, "--global-batch", "16", *restricted, "--jobs", "1", "--json").json
    assert tuned["options_file"] == "deep.options"
    best = tuned["best"]
    profile = abele("profile", f"{MODELS}:deep", "--train", "--options", "deep.options", "--json").json
    assert profile["throughput"] == pytest.approx(best["throughput"])
    assert profile["tile_memory"]["max"] == best["max"]
    assert (profile["stages"], profile["accumulation"], profile["batch"]) == (2, best["settings"]["accumulate"], 2)

    (tmp_path / "models.py").write_text(MODELS.read_text())
    (tmp_path / "program.py").write_text(PROGRAM.replace("BATCH", "2"))
    ran = abele("run", "--options", "deep.options", "program.py", "--json")
    (program,) = json.loads(ran.out)["programs"]
    assert program["system"] == profile["system"] == "small-x4"
    elsewhere = abele("profile", *arguments[:2], "--system", "bow-2000", "--options", "deep.options", "--json").json
    assert elsewhere["system"] == "bow-2000"
    assert program["samples"] == 16
    assert program["ipus_per_replica"] == 2 and program["replicas"] == best["settings"]["replicas"]
    assert "loss" in ran.err


def test_the_command_line_has_the_last_word(abele, tmp_path: Path) -> None:
    (tmp_path / "some.options").write_text(write_options(USUAL | {"stages": 1, "replicas": 1, "partials": ""}, True))
    shared = ("profile", f"{MODELS}:deep", "--train", "--system", f"{MODELS}:small", "--options", "some.options")
    given = abele(*shared, "--accumulate", "2", "--json").json
    assert (given["batch"], given["accumulation"]) == (4, 2)


def test_what_no_change_can_make_fit_is_said(abele) -> None:
    asked = ("profile", f"{MODELS}:large", "--train", "--system", f"{MODELS}:tiny")
    found = abele(*asked, "--json").json
    assert not found["tile_memory"]["fits"] and found["advice"] == []
    assert "advice" not in abele(*asked, "--no-advice", "--json").json
    out = " ".join(abele(*asked).out.split())
    assert out.index("more than it has") < out.index("No advice can make it fit") < out.index("searches combinations")
    assert "brings it nearer" not in abele(*asked, "--no-advice").out


def test_interrupted_keeps_the_best(abele, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from abele.tune.search import Outcome

    add = Outcome.add

    def stop(self: Outcome, trial) -> None:
        add(self, trial)
        if len(self.trials) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Outcome, "add", stop)
    only = ("--only", "stages=1", "--only", "recompute=checkpoints")
    ran = abele(
        "tune", f"{MODELS}:inference", "--system", f"{MODELS}:small", *only, "--jobs", "1", "--write", "it.options"
    )
    assert ran.status == 130
    assert "Interrupted after 3 points. The best so far is in it.options." in ran.err
    assert "Best: " in ran.out and "interrupted" in ran.out
    assert read_options("it.options", False)["batch"] >= 1


def test_nothing_fits_is_status_one_and_no_file(abele, tmp_path: Path) -> None:
    arguments = (f"{MODELS}:large", "--train", "--system", f"{MODELS}:tiny", "--largest-batch", "2", "--jobs", "1")
    ran = abele("tune", *arguments, "--only", "memory_proportion=0.6", "--only", "recompute=layers")
    assert ran.status == 1
    assert "Nothing that was tried fits" in ran.out and "What would help" in ran.out
    assert not list(tmp_path.glob("*.options"))


def test_a_training_step_returns_its_loss_alone_unless_asked_for_all(abele) -> None:
    asked = ("profile", f"{MODELS}:deep", "--train", "--system", f"{MODELS}:small", "--no-advice", "--json")

    def stored(*more: str) -> list[tuple[str, int]]:
        steps = abele(*asked, *more).json["steps"]
        return [(step["stream"], step["streamed_bytes"]) for step in steps if step["name"] == "host_store"]

    loss, everything = stored(), stored("--output", "all")
    assert len(loss) == 1 and loss[0][1] == 4
    assert sorted(size for _, size in everything)[-1] == 64 * 4 and len(everything) > 1
    bad = abele("profile", f"{MODELS}:deep", "--train", "--output", "some")
    assert bad.status != 0 and "'some'" in bad.err

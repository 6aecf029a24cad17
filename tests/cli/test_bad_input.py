"""Bad input and bad luck: one clear paragraph, exit status 2 or 130, nothing lost, the cache intact."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from abele.cli import common, main
from abele.report.store import write
from tests.cli.conftest import MODELS, process
from tests.report.synthetic import Shape, program

ON_ONE_LINE = {
    "unknown model": (["profile", "resnet51"], "resnet51", "resnet50"),
    "unknown system": (["profile", "mlp", "--system", "bow2000"], "bow2000", "'bow-2000'"),
    "unknown system, shown": (["systems", "m200"], "m200", "'m2000'"),
    "unknown system, run": (["run", str(MODELS), "--system", "bow-pod17"], "bow-pod17", "'bow-pod16'"),
    "unknown option": (["profile", "mlp", "--bacth", "3"], "--bacth", "--batch"),
    "unknown command": (["profil", "mlp"], "profil", "profile"),
    "missing argument": (["profile"], "model", "abele profile --help"),
    "surplus argument": (["profile", "mlp", "7"], "7", "abele profile --help"),
    "no number": (["profile", "mlp", "--batch", "two"], "--batch", "integer"),
    "number out of range": (["profile", "mlp", "--batch", "0"], "--batch", "1"),
    "unknown optimizer": (["profile", "mlp", "--train", "--optimizer", "adm"], "adm", "'adam'"),
    "unknown optimizer, inference": (["profile", "mlp", "--optimizer", "adm"], "adm", "'adam'"),
    "batch beyond memory": (["profile", "mlp", "--batch", str(10**14)], str(10**14), "smaller --batch"),
    "batch beyond integers": (["profile", "mlp", "--batch", str(10**20)], str(10**20), "smaller --batch"),
    "unknown recomputation": (["profile", "mlp", "--recompute", "all"], "all", "layers"),
    "unknown pipeline": (["profile", "mlp", "--pipeline", "group"], "group", "grouped"),
    "unknown phases": (["profile", "mlp", "--phased", "seriel"], "seriel", "serial"),
    "unknown accumulator": (["profile", "mlp", "--accumulator", "f8"], "f8", "f16"),
    "all tiles for transfers": (["profile", "mlp", "--io-tiles", "1472"], "1472", "Leave some"),
    "unknown pass": (["opt", "mlp", "--after", "fuze"], "fuze", "'fuse'"),
    "too few IPUs": (["profile", "mlp", "--replicas", "8"], "8 IPUs", "larger system"),
    "too many stages": (["profile", "mlp", "--small", "--stages", "9", "--system", "pod16"], "9 stages", "at most 5"),
    "no program": (["run", "nowhere.py"], "nowhere.py", "Python file"),
    "an option in the place of the program": (["run", "--sytem", "m2000", "x.py"], "--sytem", "'--system'"),
    "no system of that name in the file": (["profile", "mlp", "--system", f"{MODELS}:tigth"], "tigth", "'tight'"),
    "no model file": (["profile", "nowhere.py:model"], "nowhere.py", "file.py:function"),
    "no function": (["profile", str(MODELS)], "models.py", "file.py:function"),
    "unknown function": (["profile", f"{MODELS}:goood"], "goood", "'good'"),
    "a class": (["profile", f"{MODELS}:Scaled"], "is a class", "(module, inputs)"),
    "no pair": (["profile", f"{MODELS}:not_a_pair"], "Scaled", "(module, inputs)"),
    "no system file": (["profile", "mlp", "--system", "nowhere.py:s"], "nowhere.py", "file.py:name"),
    "no system in the file": (["profile", "mlp", "--system", f"{MODELS}:good"], "function", "tight"),
    "no graph": (["profile", "nowhere.graph"], "nowhere.graph", "No such file"),
    "no report": (["view", "nowhere"], "nowhere", "--report"),
    "no loss": (["profile", f"{MODELS}:good", "--train"], "no loss", "identity_loss"),
    "nothing to run": (["profile", f"{MODELS}:without_values", "--run", "1"], "meta", "leave out --run"),
}


@pytest.mark.parametrize("case", ON_ONE_LINE)
def test_a_paragraph_names_the_thing_and_the_remedy(abele, case: str) -> None:
    arguments, thing, remedy = ON_ONE_LINE[case]
    said = abele(*arguments).one_paragraph()
    assert thing in said and remedy in said
    assert ".." not in said.replace("...", "") and "?." not in said


def _line(marker: str) -> int:
    """The number of the line of the models' file with this text."""
    lines = MODELS.read_text().splitlines()
    return next(i for i, line in enumerate(lines, 1) if marker in line)


@pytest.mark.parametrize(
    ("function", "marker", "words"),
    [
        ("raises", '["missing"]', "KeyError"),
        ("raises_in_forward", "# raises", "AttributeError"),
        ("branches", "# depends on data", "torch.where"),
    ],
)
def test_a_model_that_raises_names_its_line(abele, function: str, marker: str, words: str) -> None:
    said = abele("profile", f"{MODELS}:{function}").one_paragraph()
    assert f"models.py:{_line(marker)}" in said and words in said


def test_a_file_that_python_does_not_read(abele, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("x = 1\ndef f(:\n")
    for arguments in (["profile", "broken.py:f"], ["profile", "mlp", "--system", "broken.py:f"]):
        said = abele(*arguments).one_paragraph()
        assert "broken.py:2" in said and "SyntaxError" in said
    (tmp_path / "divides.py").write_text("x = 1\ny = x / 0\n")
    for arguments in (["profile", "divides.py:f"], ["profile", "mlp", "--system", "divides.py:f"]):
        said = abele(*arguments).one_paragraph()
        assert "divides.py:2" in said and "ZeroDivisionError" in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('graph main(%0: f32[2] data "x") {\n  %1: f32[2] = nonsense(%0)\n  return %1 anchor ""\n}\n', "nonsense"),
        ('graph main(%0: f32[2] data "x") {\n  %1: f32[2] = relu(%0)\n', "line 2"),
        ('graph main(%0: f33[2] data "x") {\n', "line 1"),
        ('graph main(%0: f32[2] data "x") {\n  return %7 anchor ""\n}\n', "%7"),
        ("to be or not to be", "graph"),
        ("", "no graph"),
    ],
)
def test_a_text_that_is_no_graph(abele, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "bad.graph").write_text(text)
    assert words in abele("profile", "bad.graph").one_paragraph()


def _entries(place: Path) -> list[Path]:
    """Executables; what they were charged lies in a folder of its own."""
    return sorted((place / "cache").glob("*/*.abele"))


DAMAGE = {
    "cut off": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "one bit": lambda content: content[:-9] + bytes([content[-9] ^ 4]) + content[-8:],
    "no entry at all": lambda content: b"something else\n",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_moved_aside_and_compiled_again(abele, caplog, tmp_path: Path, damage: str) -> None:
    command = ["profile", "mlp", "--small", "--json"]
    first = abele(*command)
    (entry,) = _entries(tmp_path)
    whole = entry.read_bytes()
    entry.write_bytes(DAMAGE[damage](whole))
    second = abele(*command)
    assert second.status == 0 and not second.json["cached"]
    assert [r.getMessage() for r in caplog.records if "damaged" in r.getMessage()] == [caplog.records[0].getMessage()]
    assert entry.read_bytes() == whole and entry.with_suffix(".bad").is_file()
    caplog.clear()
    third = abele(*command)
    assert third.json["cached"] and not caplog.records
    assert first.json["cycles"] == second.json["cycles"] == third.json["cycles"]


def test_a_damaged_entry_is_said_once_on_the_standard_error(tmp_path: Path) -> None:
    process("profile", "mlp", "--small")
    (entry,) = _entries(tmp_path)
    entry.write_bytes(b"")
    done = process("profile", "mlp", "--small", "--json")
    assert not done.json["cached"] and done.err.count("is damaged") == 1 and len(done.err.strip().splitlines()) == 1


def test_an_entry_that_is_whole_but_no_schedule_is_compiled_again(abele, caplog, tmp_path: Path) -> None:
    from abele.compile.cache import Cache

    abele("profile", "mlp", "--small")
    (entry,) = _entries(tmp_path)
    shutil.rmtree(tmp_path / "cache" / "profiles")  # else the program is not read at all
    assert Cache(tmp_path / "cache").put(entry.stem, "schedule of another kind")
    again = abele("profile", "mlp", "--small", "--json")
    assert again.status == 0 and not again.json["cached"] and "damaged" in caplog.text


def test_a_full_disk_costs_the_report_and_nothing_else(abele, tmp_path: Path) -> None:
    """The fresh file stands for a device that is full, so that the system itself refuses the bytes."""
    folder = tmp_path / "report"
    for name in ("profile.json", "report.html"):
        folder.mkdir(exist_ok=True)
        (folder / name).write_text("of yesterday")
    (folder / f".report.html.{os.getpid()}").symlink_to("/dev/full")
    done = abele("profile", "mlp", "--small", "--report", folder)
    assert done.status == 2
    assert "No space left on device" in done.err and "--report" in done.err and "Traceback" not in done.err
    assert "throughput" in done.out, "what was found out is shown all the same"
    assert sorted(p.name for p in folder.iterdir()) == ["profile.json", "profile.pop", "report.html"]
    assert (folder / "report.html").read_text() == "of yesterday"
    assert len(_entries(tmp_path)) == 1


@pytest.mark.parametrize("place", [".", "/"])
@pytest.mark.parametrize("command", [("report", "--trace"), ("view", "--save")])
def test_a_folder_in_the_place_of_a_file(abele, tmp_path: Path, command, place) -> None:
    write(tmp_path / "profile.pop", [program(Shape(1, 8, 20))])
    done = abele(command[0], tmp_path, command[1], place)
    assert done.status == 2 and command[1] in done.err and "Is a directory" in done.err


def test_a_model_in_a_file_whose_name_is_no_utf_8(abele, tmp_path: Path) -> None:
    file = tmp_path / "m\udcff.py"
    shutil.copy(MODELS, file)
    done = abele("profile", f"{file}:good", "--report", tmp_path / "r")
    assert done.status == 0, done.err
    assert abele("report", tmp_path / "r", "--json").json["index"]["sources"] == ["m?.py"]


def _small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (256, 256))


def test_a_disk_that_takes_no_file_still_gives_the_numbers(tmp_path: Path) -> None:
    """Neither the cache's entry nor the report can be written: said, and nothing of them remains."""
    done = process("profile", "mlp", "--small", "--report", "r", preexec_fn=_small_files)
    assert done.status == 2 and "throughput" in done.out
    assert "Nothing was cached" in done.err and "could not be written" in done.err and "Traceback" not in done.err
    left = [p for p in tmp_path.rglob("*") if p.is_file() and "kernels" not in p.parts]
    assert left == []


def test_a_report_in_place_of_a_file(abele, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    done = abele("profile", "mlp", "--small", "--report", tmp_path / "taken")
    assert done.status == 2 and "taken" in done.err and (tmp_path / "taken").read_text() == "mine"


INTERRUPTED = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell hands it down ignored
from pathlib import Path
import abele.compile.executable as executable
from abele.cli import main

def lower(*args, **kwargs):
    Path("compiling").touch()
    time.sleep(60)

executable.lower = lower
main(["profile", "mlp", "--small", "--train"])
"""


def test_ctrl_c_in_a_compile(abele, tmp_path: Path) -> None:
    abele("profile", "mlp", "--small")
    before = _entries(tmp_path)
    running = subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=-1, stderr=-1, text=True)
    while not Path("compiling").exists():
        assert running.poll() is None, running.stderr.read()
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert out == "" and len(err.strip().splitlines()) == 1 and "Interrupted" in err
    assert _entries(tmp_path) == before
    assert [p for p in (tmp_path / "cache").rglob(".new-*")] == []
    assert abele("profile", "mlp", "--small", "--json").json["cached"]


def test_ctrl_c_while_an_entry_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(*_) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("abele.compile.cache.os.replace", interrupted)
    with pytest.raises(SystemExit) as stop:
        main(["profile", "mlp", "--small"])
    assert stop.value.code == 130
    assert [p for p in (tmp_path / "cache").rglob("*") if p.is_file()] == []


def test_ctrl_c_while_a_report_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(*_) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with contextlib.suppress(KeyboardInterrupt):
        common.write_file(tmp_path / "report.html", "text")
    assert list(tmp_path.iterdir()) == []


def test_a_graph_that_is_no_text(abele, tmp_path: Path) -> None:
    graph = tmp_path / "some.graph"
    graph.write_bytes(b"\xff\xfe\x00graph")
    assert "some.graph" in abele("opt", str(graph)).one_paragraph()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize("arguments", [["systems"], ["zoo", "--json"]])
def test_output_that_finds_no_space(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "abele", *arguments], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2
    assert "no space" in done.stderr and "Traceback" not in done.stderr


def test_a_message_of_torch_ends_before_its_frames(abele) -> None:
    Path("mine.py").write_text(
        "import torch\ndef net(batch):\n    return torch.nn.Linear(2, 2), (torch.ones(batch, 2),)\n"
    )
    told = abele("profile", "mine.py:net", "--batch", str(10**20)).one_paragraph()
    assert "mine.py:3" in told and "frame #" not in told


def test_an_option_that_goes_to_the_program_is_told(tmp_path, capsys):
    script = tmp_path / "program.py"
    script.write_text("import sys\nprint(sys.argv[1:])\n")
    main(["run", str(script), "--sytem", "m2000", "--epochs", "3"])
    said = capsys.readouterr()
    assert "['--sytem', 'm2000', '--epochs', '3']" in said.out
    assert "--sytem is passed on" in said.err and "'--system'" in said.err and "--epochs" not in said.err


def test_the_version(capsys):
    main(["--version"])
    assert capsys.readouterr().out.startswith("abele 0.")

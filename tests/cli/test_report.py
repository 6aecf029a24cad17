"""``abele report``: the same answers for people and scripts, differences, traces, and clear words about bad files."""

import json
import os
from dataclasses import replace

import pytest

from abele.report.shown import Shown
from abele.report.store import Report, write
from tests.cli.conftest import process
from tests.report.synthetic import SOURCE, Shape, program


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "profile.pop"
    write(
        path, [program(Shape(2, 16, 120)), program(Shape(2, 16, 108, seed=1, fill=1.7))], sources={"model.py": SOURCE}
    )
    return path


def test_json_is_what_the_viewer_asks_for(abele, file):
    found = abele("report", file, "--json").json
    with Report(file) as report:
        assert found["index"] == report.index()
        for number, each in enumerate(found["programs"]):
            summary = report.summary(number)
            assert {name: each[name] for name in summary} == json.loads(json.dumps(summary))
            for rows in (each["by_operation"], each["by_layer"], each["by_line"]):
                assert sum(row["cycles"] for row in rows) == pytest.approx(summary["cycles"])
                assert rows == sorted(rows, key=lambda row: -row["cycles"])
        assert len(abele("report", file.parent, "--program", "1", "--json").json["programs"]) == 1


def test_a_person_reads_the_verdict_and_the_advice(abele, file):
    said = abele("report", file).out
    assert "fits: fullest tile" in said and "does not fit" in said and "Recompute activations" in said
    assert (
        "fused matmul" in said and "in the median" in said and "this one is of planner best" in " ".join(said.split())
    )


def test_the_difference_is_of_the_file_to_the_base(abele, file, tmp_path):
    other = tmp_path / "other.pop"
    write(other, [program(Shape(2, 16, 108, seed=1))])
    found = abele("report", other, "--compare", file, "--json").json
    assert (found["a"]["name"], found["b"]["name"]) == ("synthetic", "synthetic")
    with Report(file) as a, Report(other) as b:
        assert found == a.compare(0, 0, b)
        expected = b.summary(0)["cycles"] - a.summary(0)["cycles"]
    assert found["totals"][0]["difference"] == pytest.approx(expected)
    assert abele("report", "--compare", file, other, "--json").json == found
    said = abele("report", file, "--compare", file, "--program", "1").out
    assert "operations differ" in said and "tile bytes" in said
    assert "operations differ" not in abele("report", file, "--compare", file).out


def test_the_difference_of_unlike_samples_is_by_the_sample(abele, file, tmp_path):
    other = tmp_path / "other.pop"
    write(other, [program(Shape(2, 16, 120, samples=96))])
    found = abele("report", other, "--compare", file, "--json").json
    assert found["per"] == "sample" and found["speedup"] == pytest.approx(1.5)
    said = abele("report", other, "--compare", file).out
    assert "A device iteration has 64 samples in a, 96 in b" in said and "b is faster: +50.0% samples/s" in said
    assert "cycles of one sample" in said and "cycles of one device iteration" not in said
    a, b = (found[side]["cycles_per_sample"] for side in ("a", "b"))
    assert f"{a:,.1f}" in said and f"{b - a:+,.1f}" in said
    said = abele("report", file, "--compare", other).out
    assert "b is slower: -33.3% samples/s" in said


def test_a_table_and_a_trace(abele, file, tmp_path):
    rows = abele("report", file, "--table", "operations").json
    with Report(file) as report:
        assert rows == report.table("operations").rows()
    written = abele("report", file, "--trace", tmp_path / "trace.json", "--json").json
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert written["bytes"] == (tmp_path / "trace.json").stat().st_size


def test_bad_files_and_names_are_one_paragraph(abele, file, tmp_path):
    (tmp_path / "empty.pop").touch()
    (tmp_path / "short.pop").write_bytes(file.read_bytes()[:9000])
    cases = {
        ("nowhere.pop",): ("nowhere.pop", "--report"),
        (tmp_path / "empty.pop",): ("empty", "again"),
        (tmp_path / "short.pop",): ("cut short", "again"),
        (file, "--compare", "nowhere"): ("nowhere", "--report"),
        (file, "--program", "7"): ("no program 7", "2"),
        (file, "--table", "operation"): ("operation", "operations"),
    }
    for arguments, words in cases.items():
        said = abele("report", *arguments).one_paragraph()
        assert all(word in said for word in words), said


def test_a_profile_is_reported_and_read_back(abele, tmp_path):
    document = abele("profile", "mlp", "--small", "--train", "--report", "r", "--json").json
    (found,) = abele("report", "r", "--json").json["programs"]
    for name in ("cycles", "cycles_by", "throughput", "flops", "energy_joules", "mode", "passes"):
        assert found[name] == document[name]
    assert found["tile_memory"]["max"] == document["tile_memory"]["max"]
    ours = {row["key"]: row["cycles"] for row in found["by_operation"]}
    assert ours == pytest.approx({row["key"]: row["cycles"] for row in document["by_operation"]})
    with Report(tmp_path / "r" / "profile.pop") as report:
        named = {file for file in report.table("operations").words("file") if file}
        assert set(report.index()["sources"]) <= named
        assert not report.index()["redacted"]
    abele("profile", "mlp", "--small", "--train", "--report", "r", "--no-sources")
    with Report(tmp_path / "r" / "profile.pop") as report:
        assert report.index()["redacted"] and report.index()["sources"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("report", "profile.pop", "--trace", "profile.pop"), "--trace 'profile.pop' is the report itself"),
        (("view", "profile.pop", "--save", "link.pop"), "--save 'link.pop' is the report itself"),
        (("view", "other.pop", "--compare", ".", "--save", "profile.pop"), "is the report itself"),
    ],
)
def test_a_report_is_not_written_over_by_what_is_made_of_it(abele, file, tmp_path, arguments, words):
    (tmp_path / "link.pop").symlink_to(file)
    before = file.read_bytes()
    (tmp_path / "other.pop").write_bytes(before)
    assert words in abele(*arguments).one_paragraph()
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--table", "sets", "--trace", "t.json"), "--table and --trace are different questions"),
        (("--compare", "profile.pop", "--table", "sets"), "--compare and --table are different questions"),
        (("--base", "1"), "Add --compare BASE"),
    ],
)
def test_options_that_say_nothing_together_are_refused(abele, file, options, words):
    assert words in abele("report", file, *options).one_paragraph()


def test_no_control_character_of_a_name_gets_to_the_terminal(abele, file, tmp_path):
    named = program(Shape(1, 16, 60))
    summary = {**named.summary, "name": "a\x1b[2Jb", "explanation": {"text": "the tensor\x1b]0;owned\x07"}}
    advice = [{**row, "text": row["text"] + "\x1b[8m"} for row in named.advice]
    write(tmp_path / "named.pop", [replace(named, summary=summary, advice=tuple(advice))])
    for arguments in (("named.pop",), ("named.pop", "--compare", file)):
        said = abele("report", *arguments).out
        assert "a�[2Jb" in said and "\x1b" not in said and "\x07" not in said
    assert "the tensor�]0;owned�\n" in abele("report", "named.pop").out
    said = repr(Shown(tmp_path / "named.pop"))
    assert said.startswith("a�[2Jb ") and "\x1b" not in said


@pytest.mark.parametrize("command", ["report", "view"])
def test_a_pipe_is_no_report(abele, tmp_path, command):
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for a writer
    assert "'pipe' is no file" in abele(command, "pipe").one_paragraph()


def test_a_report_without_programs_says_so(abele, tmp_path):
    write(tmp_path / "profile.pop", [])
    assert abele("report", "profile.pop").out == "The report has no programs.\n"
    assert abele("report", "profile.pop", "--json").json["programs"] == []
    assert "no program 0" in abele("report", "profile.pop", "--table", "sets").one_paragraph()


def test_a_terminal_without_a_character_shows_something_else(file):
    done = process("report", file, env=os.environ | {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"})
    assert done.status == 0 and "fits: fullest tile" in done.out and done.err == ""

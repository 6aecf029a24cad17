"""``abele sweep``: rows, file, plot; going on after an interrupt; mistakes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import abele.sweep.engines as engines
from abele.charge.records import PARTS
from abele.sweep.charge import RESULTS
from abele.sweep.table import read_rows

SWEEP = ("sweep", "mlp", "--small", "--system", "gc200", "--jobs", "1")
SETS = ("--set", "tiles=64,256", "--set", "clock_hz=1e9,2e9")


def counted(monkeypatch: pytest.MonkeyPatch, stop_after: int = 10**6) -> list[object]:
    """The points that are computed; Ctrl-C comes after so many."""
    seen: list[object] = []

    def local(function, points, jobs):
        for i, point in enumerate(points):
            if len(seen) == stop_after:
                raise KeyboardInterrupt
            seen.append(point)
            yield i, function(point)

    monkeypatch.setitem(engines.ENGINES, "local", local)  # type: ignore[arg-type]
    return seen


def test_rows_hold_the_point_and_what_it_costs(abele) -> None:
    rows = abele(*SWEEP, *SETS, "--json").json
    assert [(r["tiles"], r["clock_hz"]) for r in rows] == [(64, 1e9), (64, 2e9), (256, 1e9), (256, 2e9)]
    for row in rows:
        assert row.keys() == {"model", "system", "mode", "tiles", "clock_hz", *RESULTS}
        assert row["fits"] is True and row["error"] == "" and row["bound"] in PARTS
        assert row["cycles"] == pytest.approx(sum(row[f"cycles_{part}"] for part in PARTS))
        assert row["seconds"] == pytest.approx(row["cycles"] / row["clock_hz"])
        assert row["throughput"] == pytest.approx(row["samples"] / row["seconds"])
    assert rows[0]["cycles_compute"] == rows[1]["cycles_compute"] > 0
    assert rows[1]["cycles_overhead"] == pytest.approx(2 * rows[0]["cycles_overhead"])  # as long, at twice the clock


def test_a_point_costs_what_profile_says(abele) -> None:
    (row,) = abele("sweep", "mlp", "--small", "--train", "--set", "batch=4", "--set", "accumulate=2", "--json").json
    said = abele("profile", "mlp", "--small", "--train", "--batch", "4", "--accumulate", "2", "--json").json
    assert (row["cycles"], row["throughput"]) == (said["cycles"], said["throughput"])
    assert (row["memory_max"], row["energy_joules"]) == (said["tile_memory"]["max"], said["energy_joules"])


def test_processes_give_the_same_rows(abele) -> None:
    alone = abele(*SWEEP, *SETS, "--json").json
    assert abele(*SWEEP[:-1], "2", *SETS, "--no-cache", "--json").json == alone


def test_a_point_with_an_error_is_a_row(abele) -> None:
    sets = ("--set", "stages=1,2", "--set", "ipus=1", "--set", "workers=0,6")
    rows = abele(*SWEEP, *sets, "--json").json
    assert [bool(r["error"]) for r in rows] == [True, False, True, True]
    assert "workers" in rows[0]["error"] and "needs 2 IPUs" in rows[3]["error"]
    assert rows[0]["fits"] is None and rows[0]["key"] == ""
    shown = abele(*SWEEP, *sets)
    assert shown.status == 0 and "needs 2 IPUs" in shown.out and "fastest that fits: " in shown.out


def test_the_file_goes_on_after_an_interrupt(abele, monkeypatch: pytest.MonkeyPatch) -> None:
    first = counted(monkeypatch, stop_after=3)
    stopped = abele(*SWEEP, *SETS, "--out", "rows.parquet")
    assert stopped.status == 130 and len(first) == 3
    assert "3 of 4 points are done; the same command goes on from there." in stopped.err
    assert len(read_rows(Path("rows.parquet"))) == 3

    second = counted(monkeypatch)
    done = abele(*SWEEP, *SETS, "--out", "rows.parquet", "--json").json
    assert second == [{"tiles": 256, "clock_hz": 2e9}]
    assert read_rows(Path("rows.parquet")) == done

    third = counted(monkeypatch)
    wider = abele(
        *SWEEP, "--set", "tiles=64,128", "--set", "workers=6", "--set", "clock_hz=1e9", "--out", "rows.parquet"
    )
    assert wider.status == 0 and third == [{"tiles": 128, "workers": 6, "clock_hz": 1e9}]
    assert len(read_rows(Path("rows.parquet"))) == 5


def test_what_decides_a_row_makes_it_new(abele, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chip = 'from abele.machine import gc200\nchip = gc200.derive("own", exchange_cost=lambda *a, **k: a[1] / {})\n'
    (tmp_path / "own.py").write_text(chip.format(8))
    command = (
        "sweep",
        "mlp",
        "--small",
        "--jobs",
        "1",
        "--system",
        "own.py:chip",
        "--set",
        "tiles=64",
        "--out",
        "o.parquet",
    )
    assert abele(*command).status == 0
    (tmp_path / "own.py").write_text(chip.format(16) + "\n")
    again = counted(monkeypatch)
    assert abele(*command).status == 0
    assert len(again) == 1 and len(read_rows(Path("o.parquet"))) == 2


@pytest.mark.parametrize("suffix", ["svg", "html"])
def test_the_plot_names_its_fields(abele, suffix: str) -> None:
    assert abele(*SWEEP, *SETS, "--plot", f"out/plot.{suffix}").status == 0
    text = Path(f"out/plot.{suffix}").read_text()
    assert "<svg" in text and text.startswith("<!doctype html>" if suffix == "html" else "<?xml")
    for words in ("tiles", "clock_hz 1e+09", "samples/s", "mlp, inference, gc200"):
        assert words in text


def test_the_table_says_what_is_fixed_and_where_the_rows_are(abele) -> None:
    shown = abele(*SWEEP, "--set", "tiles=64,256", "--set", "batch=4", "--out", "rows.parquet").out.splitlines()
    assert shown[0].strip() == "mlp, inference, gc200, batch 4" and "rows: rows.parquet" in shown[-1]


@pytest.mark.parametrize(("batch", "scale"), [("1,2", False), ("1,64", True)])
def test_axes_have_units_and_ratios_where_values_are_far_apart(abele, batch: str, scale: bool) -> None:
    pytest.importorskip("matplotlib")
    abele(*SWEEP, "--set", "clock_hz=1e9,2e9,3e9", "--set", f"batch={batch}", "--plot", "p.svg")
    text = Path("p.svg").read_text()
    assert "clock_hz (Hz)" in text and ("10^{" in text) is scale


def test_mistakes(abele, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "Did you mean 'tiles'" in abele(*SWEEP, "--set", "tile=1").one_paragraph()
    assert "--set" in abele(*SWEEP).one_paragraph()
    assert "Did you mean 'dask'" in abele(*SWEEP, *SETS, "--engine", "desk").one_paragraph()
    assert ".svg" in abele(*SWEEP, *SETS, "--plot", "x.gif").one_paragraph()
    (tmp_path / "bad.parquet").write_text("no table")
    assert "bad.parquet" in abele(*SWEEP, *SETS, "--out", "bad.parquet").one_paragraph()
    assert (tmp_path / "bad.parquet").read_text() == "no table"
    for module, option in (("pyarrow", "--out"), ("matplotlib", "--plot")):
        monkeypatch.setitem(sys.modules, module, None)
        assert "abele[sweep]" in abele(*SWEEP, *SETS, option, "x.svg").one_paragraph()


def test_8_bit_floats_by_option(abele) -> None:
    rows = abele(
        "sweep",
        "mlp",
        "--system",
        "c600",
        "--jobs",
        "1",
        "--set",
        "half=true",
        "--set",
        "batch=64",
        "--set",
        "partials=f16",
        "--set",
        "float8=f143",
        "--json",
    ).json
    said = abele(
        "profile",
        "mlp",
        "--system",
        "c600",
        "--half",
        "--batch",
        "64",
        "--partials",
        "f16",
        "--float8",
        "f143",
        "--json",
    ).json
    assert rows[0]["cycles"] == said["cycles"] and any("f143" in step["types"] for step in said["steps"])
    refused = abele("profile", "mlp", "--system", "bow", "--half", "--float8", "f143").one_paragraph()
    assert "'bow' has no float8 matrix unit" in refused and "c600" in refused


def test_what_cannot_be_captured_at_all_is_an_error(abele) -> None:
    assert "'mlp'" in abele("sweep", "mpl", "--set", "batch=1,2").one_paragraph()
    assert "batch is 0" in abele("sweep", "mlp", "--small", "--set", "batch=0").one_paragraph()
    ran = abele("sweep", "mlp", "--small", "--set", "batch=0,1", "--json")
    assert ["batch is 0" in row["error"] for row in ran.json] == [True, False]


@pytest.mark.parametrize("columns", [{"a": [1]}, {"key": [1], "error": [2]}, {"key": ["a", None], "fits": ["x", "y"]}])
def test_a_file_of_something_else_is_refused_before_the_work(abele, columns: dict) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(sys.modules["pyarrow"].table(columns), "rows.parquet")
    before = Path("rows.parquet").read_bytes()
    assert "no file of a sweep" in abele(*SWEEP, *SETS, "--out", "rows.parquet").one_paragraph()
    assert Path("rows.parquet").read_bytes() == before

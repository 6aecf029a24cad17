"""The console summary: it fits its terminal, says what the profile says, and takes no markup from a model."""

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

import abele.ops  # noqa: F401  (fills the registry of operations)
from abele.cost import cost
from abele.machine import bow, one_ipu
from abele.report import comparison, summary
from abele.report.console import arithmetic, rate, seconds, size

sys.path.append(str(Path(__file__).parents[1] / "schedule"))
from handmade import dense, loop


def profile(schedule, tiles=8, **changes):
    return cost(schedule, one_ipu(bow.derive("small", tiles=tiles, **changes))).to_json()


def shown(renderable, width):
    out = Console(file=io.StringIO(), width=width, highlight=False, soft_wrap=True)
    out.print(renderable)
    return out.file.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_summary_fits_the_terminal(width):
    document = profile(loop(tiles=8))
    for i, row in enumerate(document["by_operation"]):
        row["key"] = f"an_operation_{i}"
        row["cycles"] += 123_456_789
    text = shown(summary(document), width)
    lines = [line for line in text.splitlines() if not line.startswith("Note")]
    assert max(len(line.rstrip()) for line in lines) <= width
    for row in document["by_operation"]:
        assert row["key"] in text and f"{row['cycles']:,.0f}" in text
    for note in document["notes"]:
        assert note in text
    assert document["energy"]["basis"] in text
    assert "1 IPU in use, 8 tiles each" in text and "1 sample " in text


def test_verdict():
    document = profile(dense(tiles=8), tile_memory=1200)
    memory = document["tile_memory"]
    text = " ".join(shown(summary(document), 80).split())
    assert f"does not fit, {size(memory['gap'])} over: fullest tile {size(memory['max'])} of 1,200 B" in text
    assert "tile memory fits:" in " ".join(shown(summary(profile(dense(tiles=8))), 80).split())


def test_idle_operations_and_the_rest_are_counted():
    document = profile(loop(tiles=8))
    idle = [row for row in document["by_operation"] if not row["cycles"]]
    busy = [row for row in document["by_operation"] if row["cycles"]]
    assert idle and len(busy) > 2
    text = shown(summary(document, operations=1), 80)
    rest = sum(row["cycles"] for row in busy[1:]) / document["cycles"]
    assert f"and {len(busy) - 1} others, {100 * rest:.1f}% of the time" in text
    assert "begin " not in shown(summary(document), 80)


def test_names_are_text():
    document = profile(dense(tiles=8)) | {"name": "[red]x[/red] \x1b[31m\x07"}
    text = shown(summary(document), 80)
    assert "[red]x[/red] �[31m�" in text and "\x1b" not in text
    assert "[red]x[/red]" in shown(comparison([document]), 80)


@pytest.mark.parametrize("width", [80, 120])
def test_comparison_shows_every_machine(width):
    first = profile(dense(tiles=8))
    names = ["bow-2000", "mk2-m2000", "bow-pod16", "bow-pod256"]
    documents = [first | {"system": name, "throughput": first["throughput"] * 2**i} for i, name in enumerate(names)]
    text = shown(comparison(documents), width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    rows = text.rstrip().splitlines()[-len(names) :]
    for i, (name, row) in enumerate(zip(names, rows, strict=True)):
        assert row.startswith(f" {name} ") and row.rstrip().endswith("yes")
        assert rate(documents[i]["throughput"]) in row
        assert (f"×{2**i}.00" in row) == (i > 0)


def test_units():
    assert [seconds(x) for x in (2, 0.0015, 1e-6, 2e-9, 0)] == ["2.00 s", "1.50 ms", "1.00 µs", "2.00 ns", "0.00 ns"]
    assert [size(x) for x in (0, 1024, 638976, 1095944, 2**33)] == [
        "0 B",
        "1,024 B",
        "624.0 KiB",
        "1,070.3 KiB",
        "8.0 GiB",
    ]
    assert [arithmetic(x) for x in (0, 3_727_370, 24.735e9)] == ["0 FLOP", "3.73 MFLOP", "24.73 GFLOP"]
    assert [rate(x) for x in (0.25, 41_082.1)] == ["0.25", "41,082"]

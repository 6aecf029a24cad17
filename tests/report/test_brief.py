"""Large programs in brief: the same sums as the tables, and none for small ones."""

from __future__ import annotations

import re

import numpy as np
import pytest

from abele.charge.records import PARTS
from abele.report.saved import UNSHOWN
from abele.report.store import Report, write
from abele.report.store import brief as in_brief
from abele.report.store.answers import document, grouped
from tests.report.synthetic import Shape, program

MODEL = Shape(ipus=2, tiles=64, operations=17_000, columns=0)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("brief") / "profile.pop"
    write(path, [program(MODEL)])
    with Report(path) as found:
        yield found


def test_small_programs_have_none(tmp_path):
    write(tmp_path / "small.pop", [program(Shape(ipus=1, tiles=8, operations=500, columns=0))])
    with Report(tmp_path / "small.pop") as small:
        assert small.summary()["brief"] == []


def test_summary_tells_which_there_are(report):
    assert report.summary()["brief"] == sorted(name.removeprefix("brief/") for name in _names(report))
    assert len(_names(report)) == 7
    assert all(len(report.packet(f"p/0/{name}")) < len(report.packet("p/0/operations")) / 4 for name in _names(report))


def _names(report):
    return [name.split("/", 2)[2] for name in report.names() if "/brief/" in name]


def test_layers_have_the_sums_of_their_operations(report):
    found, whole = report.table("brief/operations"), report.table("operations")
    told = {row["key"]: row["cycles"] for row in document(report)["by_layer"]}
    layers = found.words("layer")
    sums = dict.fromkeys(layers, 0.0)
    for layer, cycles in zip(layers, found.numbers("cycles").tolist(), strict=True):
        sums[layer] += cycles
    assert {layer: sums.get(layer, 0.0) for layer in told} == pytest.approx(told)
    np.testing.assert_allclose(sum(found.numbers(part) for part in PARTS), found.numbers("cycles"))
    leaf = np.array([kind not in ("call", "repeat") for kind in whole.words("kind")])
    assert found.numbers("each").sum() == leaf.sum()
    flops = whole.numbers("flops") * whole.numbers("times") * leaf
    assert found.numbers("flops").sum() == pytest.approx(flops.sum())
    alone = found.numbers("each") == 1
    keys = set(whole.words("key"))
    assert {key for key, one in zip(found.words("key"), alone, strict=True) if one and key} <= keys


def test_what_takes_most(report):
    whole, most = report.table("operations"), report.table("brief/operations").header["most"]
    cycles = whole.numbers("own") * whole.numbers("times")
    by: dict[tuple, float] = {}
    for key, each in zip(
        zip(whole.words("name"), whole.words("file"), whole.numbers("line").tolist(), strict=True), cycles, strict=True
    ):
        by[key] = by.get(key, 0.0) + each
    of_name = {row["key"]: row["cycles"] for row in grouped(whole, whole.words("name"))}
    assert [each["named"] for each in most] == pytest.approx([of_name[each["name"]] for each in most])
    assert [each["cycles"] for each in most] == pytest.approx(sorted(by.values(), reverse=True)[: in_brief.MOST])
    assert all(by[each["name"], each["file"], each["line"]] == pytest.approx(each["cycles"]) for each in most)


def test_traffic_and_exchange_add_up(report):
    whole, traffic = report.table("operations"), report.table("traffic")
    weights = whole.numbers("times") * np.array([kind not in ("call", "repeat") for kind in whole.words("kind")])
    like, counts = whole.numbers("like"), np.zeros(whole.count)
    np.add.at(counts, like[like >= 0], weights[like >= 0])
    moved = traffic.numbers("bytes") * counts[traffic.numbers("operation")]
    found = report.table("brief/traffic")
    ends = [*in_brief.ENDS, "links"]
    for name in ends:
        side = np.bincount(traffic.numbers(name), moved)
        np.testing.assert_allclose(np.bincount(found.numbers(name), found.numbers("bytes")), side)
    assert len(np.unique(np.stack([found.numbers(name) for name in ends]), axis=1).T) == found.count
    listed = report.table("brief/exchanges")
    for name in ("exchange", "links", "exchange_bytes", "link_bytes", "replica_bytes"):
        told = (listed.numbers(name) * listed.numbers("times")).sum()
        assert told == pytest.approx((whole.numbers(name) * weights).sum())
    spent = (whole.numbers("exchange") + whole.numbers("links")) * weights
    shown = ((listed.numbers("exchange") + listed.numbers("links")) * listed.numbers("times"))[1:]
    np.testing.assert_allclose(shown, np.sort(spent)[::-1][: len(shown)])


def test_moments_add_up_and_keep_their_place(report):
    whole, found = report.table("moments"), report.table("brief/moments")
    parts = ("sync", "exchange", "links", "compute", "host", "overhead")
    assert found.header["of"] == whole.count and found.count < whole.count / 4
    told = sum(found.numbers(name) for name in parts)
    length = sum(whole.numbers(name) for name in ("sync", "exchange", "compute", "host"))
    for ipu in range(-1, MODEL.ipus):
        assert told[found.numbers("ipu") == ipu].sum() == pytest.approx(length[whole.numbers("ipu") == ipu].sum())
    start = found.numbers("start")
    assert (np.diff(start) >= -1e-6).all()
    assert (start[1:] - start[:-1] >= told[:-1] * (1 - 1e-9) - 1e-6).all(), "moments in brief lie over each other"
    folds = report.table("brief/folds")
    assert (folds.numbers("enter") <= folds.numbers("exit")).all() and folds.numbers("exit").max() < found.count
    assert "×" in folds.words("name")[0], "the loop around all"
    rows = report.table("brief/raster")
    mine = (found.numbers("ipu") == 0) & (told > 0)
    assert rows.count == mine.sum() * rows.header["tile_bins"]
    work = report.table("raster/1/0").numbers("work.max").max()
    assert rows.numbers("work").max() == np.ceil(work * rows.header["shades"])


def test_runs_of_liveness_have_the_most_of_their_moments(report):
    whole, found = report.table("liveness"), report.table("brief/liveness")
    stop, most = found.numbers("stop"), whole.numbers("max")
    first = np.append(0, stop[:-1])
    assert stop[-1] == whole.count == found.header["of"] and (stop > first).all()
    np.testing.assert_array_equal(found.numbers("max"), np.maximum.reduceat(most, first))
    peak = report.summary()["tile_memory"]["peak_moment"]
    run = int(np.searchsorted(stop, peak, "right"))
    assert first[run] == peak and stop[run] == peak + 1
    for name in found.columns:
        if name != "stop":
            assert found.numbers(name)[run] == pytest.approx(whole.numbers(name)[peak])


def test_saved_pages_do_without(report):
    assert all(re.fullmatch(UNSHOWN, f"p/0/{name}") for name in _names(report))

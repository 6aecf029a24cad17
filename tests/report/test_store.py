"""The report's file: what is written is read back by name; what is no whole report is refused."""

import json
import sqlite3
import struct
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import AbeleError, BadReport, InvalidOption
from abele.report.store import SCHEMA, TABLES, Report, Words, decode, encode, write
from abele.report.store.compare import compare
from abele.report.store.pyramid import coarser
from tests.report.synthetic import HOSTILE, SOURCE, Shape, program


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "profile.pop"
    shapes = (Shape(2, 64, 2600), Shape(2, 64, 2588, seed=1), Shape(1, 64, 0), Shape(2, 64, 60, hostile=True, fill=1.7))
    write(path, (program(shape) for shape in shapes), title="four", sources={"model.py": SOURCE})
    return path


COLUMNS = st.integers(0, 6).flatmap(
    lambda count: st.dictionaries(
        st.text(max_size=8),
        st.one_of(
            *(st.lists(each, min_size=count, max_size=count).map(np.array) for each in (st.integers(-9, 2**31 - 1),)),
            st.lists(st.floats(width=64, allow_nan=False), min_size=count, max_size=count).map(
                lambda v: np.array(v, float)
            ),
            st.lists(st.text(st.characters(exclude_categories=())), min_size=count, max_size=count).map(Words.of),
        ),
        min_size=1,
        max_size=5,
    )
)


@given(COLUMNS)
def test_a_packet_gives_back_its_columns(columns):
    data = encode(columns, bins=3)
    packet = decode(data)
    assert packet.header == {"bins": 3} and list(packet.columns) == list(columns) and len(data) % 8 == 0
    for name, column in columns.items():
        assert packet[name].tolist() == column.tolist()


def test_whole_numbers_that_are_too_large_become_floats():
    packet = decode(encode({"a": [1, 2**40], "b": np.array([1.5, 2], np.float32)}))
    assert packet["a"].dtype == np.float64 and packet["a"].tolist() == [1, 2**40]
    assert packet["b"].dtype == np.float32


@pytest.mark.parametrize("cut", [0, 7, 11, 30, -8])
def test_a_packet_cut_short_is_refused(cut):
    data = encode({"a": np.arange(9), "b": ["x"] * 9})
    with pytest.raises(BadReport, match="cannot be read"):
        decode(data[:cut])


def test_every_name_answers(file):
    with Report(file) as report:
        names = report.names()
        assert {f"p/0/{table}" for table in (*TABLES, "summary", "raster/1/0", "raster/2/1")} <= set(names)
        for name in names:
            data, kind = report.resource(name)
            assert json.loads(data) if kind == "application/json" else decode(data).columns
        index = report.index()
        assert [p["fits"] for p in index["programs"]] == [True, True, True, False]
        assert index["sources"] == ["model.py"] and report.source(0)["text"] == SOURCE


@pytest.mark.parametrize(
    "name",
    [
        "",
        "p",
        "p/0",
        "p/9/summary",
        "p/9/sets",
        "p/0/raster/9/0",
        "p/0/../1",
        "source/3",
        "compare/0/9",
        "p/²/sets",
        "p/²/summary",
        "source/²",
    ],
)
def test_a_name_that_there_is_not_is_refused(file, name):
    with Report(file) as report, pytest.raises(InvalidOption, match="report has no"):
        report.resource(name)


def test_parts_add_up_as_those_of_a_real_report(file):
    with Report(file) as report:
        for number in range(4):
            summary, table = report.summary(number), report.table("operations", number)
            top = table.numbers("parent") == -1
            assert table.numbers("cycles")[top].sum() == pytest.approx(summary["cycles"])
            sets, columns = report.table("sets", number), report.table("columns", number)
            for row in range(0, sets.count, 97):
                own = columns.numbers("column") == sets.numbers("work")[row]
                assert columns.numbers("value")[own].max() == sets.numbers("compute")[row]
            traffic, like = report.table("traffic", number), table.numbers("like")
            moved = np.bincount(traffic.numbers("operation"), traffic.numbers("bytes"), table.count)
            charged = table.numbers("exchange_bytes") + table.numbers("link_bytes")
            assert np.where(like < 0, 0, moved[like]).tolist() == charged.tolist()
            live = report.table("liveness", number)
            memory = summary["tile_memory"]
            assert live.numbers("max").max() == memory["max"] == sum(memory["categories"].values())


def test_hostile_names_are_kept_as_they_are(file):
    with Report(file) as report:
        assert set(HOSTILE) <= set(report.table("operations", 3).words("name"))


def test_programs_are_compared_by_key(file):
    with Report(file) as report:
        same, other = report.compare(0, 0), report.compare(0, 1)
    assert not any(row["difference"] for row in (*same["totals"], *same["operations"]))
    totals = {row["name"]: row for row in other["totals"]}
    assert totals["cycles"]["a"] - totals["cycles"]["b"] == -totals["cycles"]["difference"] != 0
    gone = [row for row in other["operations"] if row["b"] is None]  # a layer: the call and its steps
    assert len(gone) == 13 and all(row["difference"] == -row["a"] for row in gone)


def test_of_different_samples_it_is_by_the_sample(tmp_path):
    path = tmp_path / "profile.pop"
    write(path, [program(Shape(1, 16, 60)), program(Shape(1, 16, 60, samples=192)), program(Shape(1, 16, 48))])
    with Report(path) as report:
        more, fewer, plain = report.compare(0, 1), report.compare(1, 0), report.compare(0, 2)
        cycles = report.summary(0)["cycles"]
    # the same program, said to be of three times the samples: a third of the cycles a sample, everywhere
    assert more["per"] == fewer["per"] == "sample" and plain["per"] == "iteration"
    assert more["speedup"] == pytest.approx(3) and fewer["speedup"] == pytest.approx(1 / 3)
    assert (more["a"]["samples"], more["b"]["samples"]) == (64, 192)
    assert more["a"]["cycles"] == more["b"]["cycles"] == cycles
    assert more["totals"][0]["a"] == more["a"]["cycles_per_sample"] == pytest.approx(cycles / 64)
    *cycles_of, memory = more["totals"]
    assert [row["b"] for row in cycles_of] == pytest.approx([row["a"] / 3 for row in cycles_of])
    assert memory["name"] == "tile bytes" and memory["difference"] == 0
    assert all(row["b"] == pytest.approx(row["a"] / 3) for row in more["operations"])
    assert plain["totals"][0]["a"] == cycles


def _damaged(path, how):
    data = path.read_bytes()
    match how:
        case "empty":
            return b""
        case "short":
            return data[: len(data) // 2]
        case "stub":
            return data[:50]
        case "foreign":
            return b"\x89PNG" + bytes(2000)
        case "garbled":
            return data[:8192] + bytes(len(data) - 8192)


@pytest.mark.parametrize("how", ["empty", "short", "stub", "foreign", "garbled"])
def test_what_is_no_whole_report_is_refused(file, tmp_path, how):
    path = tmp_path / "bad.pop"
    path.write_bytes(_damaged(file, how))
    with pytest.raises(BadReport, match=r"bad\.pop"), Report(path) as report:
        report.index()


@pytest.mark.parametrize("table", ["program", "advice", "source", "meta"])
def test_a_number_or_a_text_that_changed_on_the_disk_is_noticed(tmp_path, table):
    """Packets are checked by zlib; SQLite checks nothing."""
    path = tmp_path / "flipped.pop"
    one = replace(program(Shape(1, 8, 20)), advice=({"text": "half of advice", "kind": "fit", "bytes": 7},))
    write(path, [one], title="title of meta", sources={"model.py": "text of source"})
    text = {"program": b'"replicas": 1', "advice": b"half of advice", "source": b"text of source", "meta": b"title of"}
    data = path.read_bytes()
    assert data.count(text[table]) == 1
    path.write_bytes(data.replace(text[table], text[table][:-1] + bytes([text[table][-1] ^ 2])))
    with pytest.raises(BadReport, match=r"flipped\.pop"):
        Report(path)


def test_a_byte_that_changed_anywhere_is_noticed_or_changes_nothing(tmp_path):
    path = tmp_path / "flipped.pop"
    write(path, [program(Shape(1, 8, 20))], title="one")

    def answers():
        with Report(path) as report:
            return {name: report.resource(name) for name in report.names()}

    data, whole, noticed = path.read_bytes(), answers(), 0
    chosen = np.random.default_rng(1)
    for at in (*range(200), *chosen.integers(len(data), size=300)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << chosen.integers(8)]) + data[at + 1 :])
        try:
            assert answers() == whole
        except BadReport:
            noticed += 1
    assert noticed > 50


def test_names_that_are_no_utf_8_are_shown_as_far_as_they_are(tmp_path):
    path = tmp_path / "named.pop"
    one = replace(program(Shape(1, 8, 20)), name="a\udcff")
    write(path, [one], title="b\udcff", sources={"c\udcff.py": "text"})
    with Report(path) as report:
        index = report.index()
    assert (index["programs"][0]["name"], index["title"], index["sources"]) == ("a?", "b?", ["c?.py"])


def test_columns_without_rows_can_be_places():
    column = decode(encode({"operation": []})).numbers("operation")
    assert np.arange(3)[column].tolist() == []


def test_a_file_that_is_not_there_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "none.pop", tmp_path):
        with pytest.raises(InvalidOption, match="There is no report"):
            Report(path)


@pytest.mark.parametrize(
    ("pragma", "words"), [("user_version = 99", "newer Abele"), ("application_id = 7", "no report")]
)
def test_another_schema_is_refused(file, tmp_path, pragma, words):
    path = tmp_path / "other.pop"
    path.write_bytes(file.read_bytes())
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"pragma {pragma}")
        database.commit()
    with pytest.raises(BadReport, match=words):
        Report(path)


def test_a_report_is_written_whole_or_not_at_all(file, tmp_path):
    def broken():
        yield program(Shape(1, 8, 12))
        raise RuntimeError("in between")

    path = tmp_path / "profile.pop"
    path.write_bytes(file.read_bytes())
    with pytest.raises(RuntimeError):
        write(path, broken())
    assert path.read_bytes() == file.read_bytes() and list(tmp_path.iterdir()) == [path]
    with pytest.raises(AbeleError, match="cannot be written"):
        write(tmp_path / "no" / "profile.pop", [])


def test_a_raster_bins_the_cells_of_its_ipu(file):
    with Report(file) as report:
        table, sets, columns, moments = (report.table(name) for name in ("operations", "sets", "columns", "moments"))
        own = np.flatnonzero(moments.numbers("ipu") == 1)[:16]
        raster = report.table("raster/1/1")
    cells, busy = np.zeros((2, 16, 64))
    for cell, cycles, moment in zip(cells, busy, own, strict=True):
        length = sum(moments.numbers(part)[moment] for part in ("sync", "exchange", "compute", "host"))
        for row in np.flatnonzero(
            sets.numbers("operation") == table.numbers("like")[moments.numbers("operation")[moment]]
        ):
            run = columns.numbers("column") == sets.numbers("work")[row]
            cycles += np.repeat(columns.numbers("value")[run], np.diff(columns.numbers("stop")[run], prepend=0))
        cell += cycles / max(length, 1e-9)
    assert raster.header["tile_bins"] == 64
    for how, expected in (("max", cells.max(0)), ("min", cells.min(0)), ("sum", busy.sum(0))):
        assert raster.numbers(f"work.{how}")[:64] == pytest.approx(expected)


@given(st.integers(1, 40), st.integers(1, 20), st.integers(0, 2**31))
def test_coarser_bins_keep_most_least_and_sum(height, width, seed):
    cells = np.random.default_rng(seed).random((height, width))
    level = dict.fromkeys(("max", "min", "sum"), cells)
    while level["max"].size > 1:
        level = coarser(level)
        assert level["max"].max() == cells.max() and level["min"].min() == cells.min()
        assert level["sum"].sum() == pytest.approx(cells.sum())
    first = coarser(dict.fromkeys(("max", "min", "sum"), cells))
    assert first["max"][0, 0] == cells[:16, :4].max() and first["sum"][-1, -1] == pytest.approx(
        cells[(height - 1) // 16 * 16 :, (width - 1) // 4 * 4 :].sum()
    )


def test_a_layer_that_one_program_has_outlined_holds_those_of_the_other():
    def table(*rows):
        keys, layers, cycles, times = zip(*rows, strict=True)
        columns = {"key": keys, "layer": layers, "name": ["op"] * len(rows), "own": np.array(cycles, float)}
        return decode(encode(columns | {"times": times}))

    plain = table(
        ("net.layer.0.mlp.1/op/0", "net.layer.0.mlp.1", 10, 1),
        ("net.layer.1.mlp.1/op/0", "net.layer.1.mlp.1", 11, 1),
        ("net.head.0/op/0", "net.head.0", 5, 1),
    )
    outlined = table(
        ("net.layer.*.mlp.1/op/0", "net.layer.*.mlp.1", 10, 2),
        ("net.head.0/op/0", "net.head.0", 4, 1),
        ("x/0", "", 1, 1),
    )
    rows = {row["key"]: (row["a"], row["b"]) for row in compare(({}, {}), (plain, outlined))["operations"]}
    assert rows == {"net.layer.*.mlp.1/op/0": (21, 20), "net.head.0/op/0": (5, 4), "x/0": (None, 1)}


@pytest.mark.parametrize(
    ("values", "stored"),
    [
        ([7, 7, 7], 0),
        ([2.5, 2.5], 0),
        ([-128, 127, 0], 8),
        ([128, 0], 8),
        ([40_000, -40_000], 8),
        ([2**31 + 1, 1], 16),
        ([0.5, 1e9, -3.0], 16),
        ([0.1, 2.0], 16),
        ([1e300, 1.0], 16),
        ([float("inf"), 1.0], 8),
        ([float("nan"), 1.0], 16),
        ([], 0),
    ],
)
def test_columns_are_stored_as_narrow_as_they_are_exact(values, stored):
    whole = all(isinstance(value, int) for value in values)
    column = np.array(values, np.int64 if whole else np.float64)
    packet = encode({"a": column, "b": column[::-1].copy()})
    (size,) = struct.unpack_from("<I", packet, 8)
    assert len(packet) - -(-(12 + size) // 8) * 8 == 2 * stored
    found = decode(packet)["a"]
    np.testing.assert_array_equal(found, column)
    assert found.dtype == (np.int32 if whole and all(abs(value) < 2**31 for value in values) else np.float64)


def test_words_are_stored_narrow_too():
    texts = [f"layer {i % 300}" for i in range(1000)]
    assert decode(encode({"a": texts, "b": ["x"] * 1000})).words("a") == texts
    assert decode(encode({"a": texts, "b": ["x"] * 1000})).words("b") == ["x"] * 1000


def test_a_table_that_an_older_report_has_not_is_told(file, tmp_path):
    path = tmp_path / "older.pop"
    with closing(sqlite3.connect(file)) as now, closing(sqlite3.connect(path)) as older:
        now.backup(older)
        older.execute("delete from packet where name in ('code', 'codelets')")
        older.execute("delete from meta where key = 'check'")
        older.execute("pragma user_version = 2")
        older.commit()
    with Report(path) as report, pytest.raises(InvalidOption, match="Its schema is 2, an older"):
        report.table("code")
    with Report(path) as report, pytest.raises(InvalidOption, match="no program 7"):
        report.table("code", 7)
    with Report(path) as report, Report(file) as now:
        assert (report.index()["schema"], now.index()["schema"]) == (2, SCHEMA)


def test_a_name_that_no_file_can_have_is_refused():
    with pytest.raises(InvalidOption, match="embedded null"):
        Report("a\0b")

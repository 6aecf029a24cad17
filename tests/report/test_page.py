"""The HTML report: what its script reads is in a real profile, names are escaped, one file, small, thinned honestly."""

import copy
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from importlib import resources

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from abele.cli import app
from abele.cost.profile import SCHEMA as PROFILE_SCHEMA
from abele.errors import InvalidOption
from abele.report import html_report
from abele.report.html import SCHEMA
from abele.report.pack import LENGTHS, pack, thin

TINY = """
from dataclasses import replace
from abele.machine import bow, one_ipu
system = replace(one_ipu(bow.derive("tiny", tiles=16, tile_memory=8192)), ipus=2)
"""
EVIL = "</script><script>alert(1)</script><!-- <img src=x onerror=alert(2)> \" ' ` /*data*/ \u2028 \udce9 [bold]"
ROOM = resources.files("abele.report")


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    """A training step in a pipeline on a chip with little memory: repeats, passes, an explanation, advice."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "tiny.py").write_text(TINY)
    system = f"{folder / 'tiny.py'}:system"
    options = ["--small", "--train", "--stages", "2", "--system", system, "--no-cache", "--json"]
    result = CliRunner().invoke(app, ["profile", "mlp", *options, "--report", str(folder)])
    assert result.exit_code == 0, result.output
    assert (folder / "report.html").is_file()
    return json.loads(result.stdout)


class Page(HTMLParser):
    """The elements of a page and the data in it."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.data, self.within = [], "", False
        self.feed(text)
        self.profiles = [unpack(p) for p in json.loads(self.data)]

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.within = dict(attributes).get("id") == "data"

    def handle_endtag(self, tag):
        self.within = False

    def handle_data(self, data):
        if self.within:
            self.data += data


def unpack(value):
    """What ``unpack`` of the script does."""
    if isinstance(value, list):
        return [unpack(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$runs" in value:
        pairs = zip(value["$runs"][::2], value["$runs"][1::2], strict=True)
        return [number for number, times in pairs for _ in range(times)]
    if "$words" in value:
        return [value["$words"][i] for i in unpack(value["$at"])]
    if "$rows" in value:
        columns = {key: unpack(column) for key, column in value["columns"].items()}
        return [{key: column[i] for key, column in columns.items()} for i in range(value["$rows"])]
    return {key: unpack(item) for key, item in value.items()}


def test_every_key_that_the_script_reads_is_in_a_profile(document):
    assert not document["tile_memory"]["fits"] and document["advice"] and document["passes"]
    fold, tensor = document["timeline"]["folds"][0], document["tile_memory"]["by_tensor"][0]
    made_by_script = {"text": "", "alike": 1}  # of a row of tensors alike
    by_measuring = {"wall_seconds": 1.0}  # with --run, and in `abele run`
    names = {
        "p": [document | by_measuring],
        "q": [document],
        "m": [document["tile_memory"]],
        "r": [document["by_operation"][0]],
        "s": [document["steps"][0], document["passes"][0]],
        "o": [document["steps"][0]["origin"], tensor],
        "t": [document["timeline"], tensor | made_by_script],
        "f": [fold],
        "l": [document["advice"][0]],
    }
    script = (ROOM / "page.js").read_text()
    script = re.sub(r'"(?:[^"\\]|\\.)*"|//[^\n]*', '""', script)
    read = set(re.findall(r"(?<![\w.$])([a-z])((?:\.\w+)+)", script))
    assert len(read) > 60
    missing = [
        name + path for name, path in read if name in names and not any(has(sample, path) for sample in names[name])
    ]
    assert not missing
    assert set(document["cycles_by"]) == set(re.findall(r'"(\w+)"', kinds("KINDS")))
    assert set(LENGTHS) == set(re.findall(r'"(\w+)"', kinds("LENGTHS"))) <= set(document["timeline"])


def kinds(name):
    return re.search(rf"const {name} = \[(.*?)\]", (ROOM / "page.js").read_text())[1]


def has(sample, path):
    """Whether ``.a.b`` is there; what follows a list, a number or a word is a method of the language."""
    for part in path.split(".")[1:]:
        if not isinstance(sample, dict):
            return True
        if part not in sample:
            return False
        sample = sample[part]
    return True


def test_memory_columns_have_a_colour_each(document):
    style = (ROOM / "page.css").read_text()
    for name in [*document["tile_memory"]["always"], *document["cycles_by"]]:
        assert f"--{name.replace(' ', '-')}:" in style


def test_page_is_one_file_without_reference(document):
    page = Page(html_report([document]))
    for tag, attributes in page.elements:
        assert tag not in ("link", "img", "iframe", "object", "base"), tag
        assert not {"src", "href", "style"} & set(attributes), (tag, attributes)
    drawn = "".join((ROOM / name).read_text() for name in ("page.html", "page.css", "page.js"))
    assert not re.search(r"https?:|url\(|@import|innerHTML|insertAdjacentHTML|document\.write|eval\(|fetch\(", drawn)
    assert "default-src 'none'" in drawn


def test_names_from_a_model_are_text(document):
    hostile = copy.deepcopy(document) | {"name": EVIL, "notes": [EVIL]}
    hostile["steps"][0]["name"] = hostile["steps"][0]["origin"]["module"] = EVIL
    text = html_report([hostile])
    text.encode()
    page = Page(text)
    plain = Page(html_report([document]))
    assert page.elements == plain.elements
    assert page.profiles[0]["name"] == EVIL and page.profiles[0]["steps"][0]["name"] == EVIL
    assert page.profiles[0]["notes"] == [EVIL]


def test_the_page_holds_the_profile(document):
    [profile] = Page(html_report([document])).profiles
    assert close(profile, document) == ""


def close(have, want, place=""):
    """Where the two differ by more than rounding, or ``""``."""
    if isinstance(want, dict):
        if set(have) != set(want):
            return place
        return next((d for key in want if (d := close(have[key], want[key], f"{place}.{key}"))), "")
    if isinstance(want, list):
        if len(have) != len(want):
            return place
        return next((d for i, w in enumerate(want) if (d := close(have[i], w, f"{place}[{i}]"))), "")
    if isinstance(want, float):
        return "" if abs(have - want) <= max(0.5 if abs(want) >= 1000 else 0.0, 1e-5 * abs(want)) else place
    return "" if have == want else place


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["a", "b", "<"]) | st.sampled_from([0.5, 1.25]),
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(st.sampled_from(["x", "y"]), inner, max_size=2),
    max_leaves=40,
)


@settings(max_examples=150)
@given(plain)
def test_packing_loses_nothing_else(value):
    assert unpack(json.loads(json.dumps(pack(value)))) == value


def test_packing_rounds_and_has_no_nan():
    assert pack([float("nan"), float("inf")]) == [None, None]
    assert pack(123456.789) == 123457 and pack(0.123456789) == 0.123457 and pack(3.0) == 3
    assert pack(2**53 + 1) == 2**53 + 1  # whole numbers stay exact


def test_sizes(document):
    wide = copy.deepcopy(document)
    memory = wide["tile_memory"]
    memory["always"] = {name: [[1000] * 1472] * 64 for name in memory["always"]}
    memory["totals"] = [[5000] * 1472] * 64
    small, large = (len(html_report([d])) for d in (document, wide))
    assert small < 80_000
    assert large - small < 20_000  # 64 IPUs, every tile alike: 8 columns of 94,208 numbers


moments = st.lists(
    st.tuples(*[st.integers(0, 50)] * 4, st.integers(0, 1), st.integers(0, 900)), min_size=12, max_size=90
)


@settings(max_examples=80)
@given(moments, st.integers(2, 9))
def test_thinning_keeps_cycles_and_peaks(columns, most):
    *lengths, ipu, high = (list(column) for column in zip(*columns, strict=True))
    count = len(columns)
    start = [sum(sum(row[:4]) for row in columns[:i]) + (100 if i > 6 else 0) for i in range(count)]
    fold = {"enter": 3, "exit": 6, "function": "body"}
    timeline = dict(zip(LENGTHS, lengths, strict=True))
    timeline |= {"row": list(range(count)), "start": start, "ipu": ipu, "depth": [0] * count, "folds": [fold]}
    tensor = {"tensor": "x", "first": 2, "last": 7}
    memory = {"curve": {"max": high, "mean": high}, "by_tensor": [tensor], "peak_step": high.index(max(high))}
    profile = {"timeline": timeline, "tile_memory": memory, "notes": ["first"]}
    thinned = thin(profile, most)
    after, remembered = thinned["timeline"], thinned["tile_memory"]
    for i in (0, 1):
        for kind in LENGTHS:
            assert total(after, kind, i) == total(timeline, kind, i)
    assert remembered["curve"]["max"][remembered["peak_step"]] == max(high)
    assert {len(column) for name, column in after.items() if name != "folds"} == {len(remembered["curve"]["max"])}
    for end in ("enter", "exit"):
        assert after["start"][after["folds"][0][end]] == start[fold[end]]
    ends = [sum(after[kind][i] for kind in LENGTHS) + after["start"][i] for i in range(len(after["start"]))]
    assert all(end <= begin for end, begin in zip(ends, after["start"][1:], strict=False))
    assert thinned["notes"][0] == "first" and f"{count:,} moments" in thinned["notes"][1]
    assert thin(profile, count) == profile


def total(timeline, kind, ipu):
    return sum(x for x, where in zip(timeline[kind], timeline["ipu"], strict=True) if where == ipu)


def test_a_long_timeline_is_thinned_to_the_limit():
    count = 10_000
    columns = {kind: [1.0] * count for kind in LENGTHS}
    timeline = columns | {"row": [0] * count, "start": [4.0 * i for i in range(count)], "ipu": [0] * count}
    timeline |= {"depth": [0] * count, "folds": []}
    memory = {"curve": {"max": [1.0] * count}, "by_tensor": [], "peak_step": 0}
    assert len(thin({"timeline": timeline, "tile_memory": memory, "notes": []}, 100)["timeline"]["row"]) == 100


def test_another_version_is_refused(document):
    assert SCHEMA == PROFILE_SCHEMA == document["schema"]
    with pytest.raises(InvalidOption, match=r"version 999.*draws version 1.*Make the profile again"):
        html_report([document | {"schema": 999}])
    assert f'Number("{SCHEMA}")' in html_report([document])


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no Chromium here")
@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("0/Verdict", ["Why it does not fit", "What would help", "Compiler passes", "Notes"]),
        ("0/Memory/1", ["Tiles of IPU 1", "largest tensors", "Each IPU"]),
        ("0/Liveness", ["Memory over the program", "As a table"]),
        ("0/Operations", ["By source line", "By module", "Steps"]),
        ("0/Timeline", ["a lane for each IPU", "2 stages"]),
    ],
)
def test_a_browser_draws_each_page(document, tmp_path, address, words):
    page = tmp_path / "report.html"
    page.write_text(html_report([copy.deepcopy(document) | {"notes": [EVIL.replace("\udce9", "")]}]), encoding="utf-8")
    quiet = ["--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-component-update"]
    command = ["chromium", "--headless", "--no-sandbox", *quiet, "--no-first-run", "--disable-sync"]
    command += [f"--user-data-dir={tmp_path / 'user'}", "--virtual-time-budget=500", "--dump-dom"]
    done = subprocess.run([*command, f"{page.as_uri()}#{address}"], capture_output=True, text=True, timeout=60)
    main = re.search(r"<main.*</main>", done.stdout, re.DOTALL)
    assert main, done.stderr
    assert "could not be drawn" not in main[0] and "<img" not in main[0] and "NaN" not in main[0]
    assert "undefined" not in main[0]
    for word in words:
        assert word in main[0], word

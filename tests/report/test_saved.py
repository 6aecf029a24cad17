"""A report as one page: what is inside, what is left out, and that nothing of a model's names gets out of its place."""

import base64
import json
import re
import zlib
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from abele.errors import AbeleError
from abele.report.page import page
from abele.report.saved import FINEST, LARGEST, PATH, UNSHOWN, saved_page
from abele.report.shown import Shown
from abele.report.store import TABLES, Report, decode, write
from tests.report.synthetic import HOSTILE, Shape, program

SECRET = "secret/place/model.py"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "profile.pop"
    shapes = (Shape(2, 64, 240), Shape(2, 64, 228, seed=1), Shape(1, 64, 36, hostile=True, fill=1.7))
    write(path, [program(shape) for shape in shapes], title=HOSTILE[1], sources={SECRET: f"text of {SECRET}"})
    return path


class Page(HTMLParser):
    """Elements of a page, and the data in it by name."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.attributes, self.within, self.text = [], [], "", {}
        self.feed(text)
        self.held = {
            name: zlib.decompress(base64.b64decode(data)) for name, data in json.loads(self.text["saved"]).items()
        }
        self.index = json.loads(self.held["index"])

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, sorted(dict(attrs))))
        self.attributes += attrs
        self.within = dict(attrs).get("id") or tag

    def handle_data(self, data):
        self.text[self.within] = self.text.get(self.within, "") + data


def test_it_holds_what_the_report_holds(file):
    shown, found = Shown(file), Page(saved_page(Shown(file)))
    assert list(found.held) == [name for name in shown.names() if not re.fullmatch(UNSHOWN, name)]
    for name in found.held:
        assert found.held[name] == shown.resource(name)[0], name
    assert {"compare/0/1", "compare/1/0", "source/0", "p/2/operations"} <= found.held.keys()
    assert "thinned" not in found.index


def test_it_refers_to_nothing_and_allows_nothing_else(file):
    text = saved_page(Shown(file))
    found = Page(text)
    assert [value for name, value in found.attributes if name in ("src", "href", "action")] == ["data:,"]
    assert {tag for tag, _ in found.elements} == {
        "html",
        "head",
        "meta",
        "link",
        "title",
        "style",
        "body",
        "noscript",
        "script",
    }
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert (
        policy and policy[1].startswith("default-src 'none'; script-src 'sha256-") and "connect-src 'none'" in policy[1]
    )
    assert "token" not in text.split("<style>")[0]


def test_hostile_names_stay_where_they_are(file, tmp_path):
    write(tmp_path / "plain.pop", [program(Shape(1, 64, 36))], title="plain", sources={"model.py": ""})
    hostile, plain = Page(saved_page(Shown(file))), Page(saved_page(Shown(tmp_path / "plain.pop")))
    assert hostile.elements == plain.elements
    assert hostile.text["title"].strip() == HOSTILE[1] == hostile.index["title"]


def test_redacted(file):
    text = saved_page(Shown(file), redact=True)
    found = Page(text)
    assert found.index["redacted"] and found.index["sources"] == []
    assert not [name for name in found.held if name.startswith("source/")]
    for name, data in found.held.items():
        assert b"model.py" not in data and b"secret" not in data, name
    with Report(file) as there:
        before, after = there.table("operations"), decode(found.held["p/0/operations"])
    assert any(before.words("file")) and not any(after.words("file")) and not after.numbers("line").any()
    assert after.words("name") == before.words("name") and (after["cycles"] == before["cycles"]).all()
    assert (
        json.loads(found.held["p/2/summary"])["cycles"]
        == json.loads(Page(saved_page(Shown(file))).held["p/2/summary"])["cycles"]
    )


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("abele run --options=/home/me/o.toml ../job.py -- --data ~/data/x", "abele run --options=… … -- --data …"),
        (
            "models.py:12 in 'a/model.py'; 3 samples/s, 1.4 / 1.16 B/cycle/tile",
            "…:12 in '…'; 3 samples/s, 1.4 / 1.16 B/cycle/tile",
        ),
        ("abele profile bert --batch 4", "abele profile bert --batch 4"),
    ],
)
def test_paths_in_a_text(text, rest):
    assert re.sub(PATH, "…", text) == rest


def test_too_much_is_left_out_the_finest_first_and_it_says_so(file):
    text = saved_page(Shown(file))
    whole, frame = Page(text), len(page("", saved={}))
    sizes = [frame + (len(text) - frame) * part // 100 for part in (99, 90, 70, 40, 15)]
    left = []
    for size in sizes:
        made = saved_page(Shown(file), largest=size)
        found = Page(made)
        assert len(made) <= size
        assert "thinned" in found.index and "Left out" in found.index["thinned"]
        summary = json.loads(found.held["p/0/summary"])
        assert summary["cycles"] == json.loads(whole.held["p/0/summary"])["cycles"]
        assert {tuple(r) for r in summary["rasters"]} == {
            tuple(map(int, name.split("/")[3:])) for name in found.held if name.startswith("p/0/raster/")
        }
        assert found.held.keys() <= whole.held.keys()
        empty = {name for name in found.held if name.startswith("p/") and found.held[name] != whole.held[name]}
        left.append((whole.held.keys() - found.held.keys()) | empty)
        for name in empty - {f"p/{i}/summary" for i in range(3)}:
            packet, before = decode(found.held[name]), decode(whole.held[name])
            assert packet.count == 0 and packet.header["thinned"] and list(packet.columns) == list(before.columns)
    assert "p/0/columns" in left[0] and "p/0/operations" not in left[1]
    assert all(few <= many for few, many in pairwise(left)) and left[0] < left[-1]


def test_everything_but_the_verdict_can_be_left_out():
    names = [*(f"p/0/{table}" for table in TABLES), "p/3/raster/2/1", "compare/0/1", "source/2"]
    for name in names:
        shown = not re.fullmatch(UNSHOWN, name)
        assert any(re.fullmatch(pattern, name) for pattern, _ in FINEST) == shown, name
    assert not any(re.fullmatch(pattern, name) for pattern, _ in FINEST for name in ("index", "p/0/summary"))


def test_the_command(file, tmp_path, capsys):
    from abele.cli import main

    main(["view", str(file), "--save", str(tmp_path / "deep" / "page.html"), "--json"])
    said = json.loads(capsys.readouterr().out)
    made = tmp_path / "deep" / "page.html"
    assert said == {"page": str(made), "bytes": made.stat().st_size} and said["bytes"] < LARGEST
    assert made.read_text(encoding="utf-8") == saved_page(Shown(file))
    main(["view", str(file), "--compare", str(file), "--save", str(made)])
    held = Page(made.read_text(encoding="utf-8")).held
    assert {"compare/5/0", "compare/0/1"} <= held.keys()  # from the base to the first program, and within its report
    with pytest.raises(SystemExit):
        main(["view", str(file), "--redact-source"])
    with pytest.raises(SystemExit):
        main(["view", str(file), "--save", str(tmp_path)])
    assert "--save" in capsys.readouterr().err


def test_a_damaged_report_makes_no_page(file, tmp_path):
    broken = tmp_path / "broken.pop"
    content = bytearray(file.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    broken.write_bytes(content)
    with pytest.raises(AbeleError, match=r"broken\.pop"):
        saved_page(Shown(broken))

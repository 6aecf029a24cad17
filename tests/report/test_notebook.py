"""What a notebook shows of a report; no Jupyter is needed to look at it."""

import xml.etree.ElementTree as ElementTree
from html import escape
from html.parser import HTMLParser

import pytest

from abele import report
from abele.report.notebook import LARGEST
from abele.report.page import colours
from abele.report.store import Report, write
from tests.report.synthetic import HOSTILE, Shape, program


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("notebook") / "profile.pop"
    write(
        path, [program(Shape(2, 1472, 600)), program(Shape(2, 1472, 588, fill=1.7), "another")], title="two", sources={}
    )
    return path


class Frame(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.frames, self.tags = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag == "iframe":
            self.frames.append(dict(attrs))


def test_words_picture_and_frame(file):
    shown = report.open(file)._repr_mimebundle_()
    assert set(shown) == {"text/plain", "image/svg+xml", "text/html"}
    with Report(file) as there:
        first, second = there.summary(0), there.summary(1)
    words = shown["text/plain"].splitlines()
    assert words[0].startswith("synthetic training on m2000: fits (fullest tile ") and "samples/s" in words[0]
    assert first["advice"][0]["text"] in words[0]
    assert words[1].startswith("another training on m2000: does not fit, ")
    assert words[2] == f"All of it: abele view {file}"
    assert repr(report.open(file)).splitlines() == words[:2]
    drawn = ElementTree.fromstring(shown["image/svg+xml"])
    texts = [each.text or "" for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    for summary in (first, second):
        for name, amount in [*summary["tile_memory"]["categories"].items(), *summary["cycles_by"].items()]:
            assert any(f": {name} " in text for text in texts) == (amount > 0), name
            assert name.replace(" ", "-") in colours(), name


def test_the_frame_is_small_and_shut_in(file):
    html = report.open(file, compare=file)._repr_mimebundle_()["text/html"]
    found = Frame(html)
    (frame,) = found.frames
    assert frame["sandbox"] == "allow-scripts" and "src" not in frame
    assert LARGEST / 4 < len(frame["srcdoc"].encode()) <= LARGEST
    assert "script" not in found.tags and "svg" in found.tags


def test_names_are_text_in_all_of_it(tmp_path):
    names = [*HOSTILE, "a\x00b\x1b[31m"]
    write(tmp_path / "p.pop", [program(Shape(1, 64, 0), name) for name in names], title="hostile", sources={})
    shown = report.open(tmp_path / "p.pop")._repr_mimebundle_()
    found = Frame(shown["text/html"])
    assert len(found.frames) == 1 and not found.tags & {"script", "img"}
    texts = [
        t.text or "" for t in ElementTree.fromstring(shown["image/svg+xml"]).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert any(HOSTILE[0] in text for text in texts) and escape(HOSTILE[0]) in shown["text/html"]

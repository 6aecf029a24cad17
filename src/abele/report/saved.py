"""A report as one HTML file: the viewer and the data inside, so that it opens from a disk, without a network.

What would make the file larger than ``LARGEST`` is left out, the finest data first, and the page says so.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterable
from typing import Any, Protocol

from abele.report.page import page
from abele.report.store.packet import Column, Words, decode, encode
from abele.report.store.read import as_json

LARGEST = 25 * 2**20
"""Bytes of a page."""

FINEST = (
    (r"p/\d+/columns", "numbers of single tiles (bins of several are there)"),
    (r"p/\d+/raster/1/\d+", "the finest bins of tiles over time"),
    (r"p/\d+/placements|p/\d+/traffic", "addresses in a tile, and who sends to whom"),
    (r"p/\d+/sets", "compute sets"),
    (r"p/\d+/flow", "what operations read of each other"),
    (r"p/\d+/raster/[23]/\d+", "finer bins of tiles over time"),
    (r"p/\d+/tensors|p/\d+/pipeline", "single tensors, and the stages of pipelines"),
    (r"compare/.*", "comparisons"),
    (r"p/\d+/raster/.*|p/\d+/moments|p/\d+/liveness", "the program over time"),
    (r"p/\d+/tiles", "the tiles' memory"),
    (r"source/\d+", "sources"),
    (r"p/\d+/operations", "operations"),
)
"""What is left out where there is too much, in this order: names, and how the page calls it."""

UNSHOWN = r"p/\d+/(code|codelets|brief/.*)"
"""Tables that no page shows, but the package ``pva``; and those in brief, which are for who waits for a server."""

PATH = r"[^\s'\"(,=]+\.(?:py|ipynb)\b|(?<![\w/.])(?:~|\.\.?)?/[\w.-][^\s'\"(,]*"
"""A program, or a path from some root, in a text."""


class Data(Protocol):
    """What is saved: every name that there is, and the content and type of each, compressed by zlib."""

    def names(self) -> list[str]: ...

    def compressed(self, name: str) -> tuple[bytes, str]: ...


def saved_page(report: Data, *, redact: bool = False, largest: int = LARGEST, packed: bool = False) -> str:
    """The page.

    Args:
        redact: leave out the text of sources, and the names of files.
        largest: bytes that the page may have. Verdict and index are there in any case.
        packed: the viewer itself compressed too, see ``page``.
    """
    names = [name for name in report.names() if not re.fullmatch(UNSHOWN, name)]
    held = {name: report.compressed(name)[0] for name in names if not (redact and name.startswith("source/"))}
    if redact:
        known = re.compile("|".join([*map(re.escape, _files(held)), PATH]))
        held = {name: _redacted(name, data, known) for name, data in held.items()}
    index = json.loads(zlib.decompress(held["index"]))
    room = (largest - len(page("", saved={}, packed=packed)) - 1000) * 3 // 4
    left_out = [words for pattern, words in FINEST if _leave_out(pattern, held, room)]
    if left_out:
        index["thinned"] = f"This page is thinned to {largest / 2**20:.3g} MiB. Left out: {'; '.join(left_out)}."
    held["index"] = _json(index)
    in_page = {name: base64.b64encode(data).decode() for name, data in held.items()}
    return page(index["title"] or "Abele", saved=in_page, packed=packed)


def _leave_out(pattern: str, held: dict[str, bytes], room: int) -> bool:
    """Leave out what is called so if all of it takes more than ``room`` bytes; whether something was.

    A table of a program stays, without rows, so that the pages that need more than it are not in want of it; a raster
    is taken off the summary.
    """
    if sum(map(len, held.values())) + 40 * len(held) <= room:
        return False
    names = [name for name in held if re.fullmatch(pattern, name)]
    for name in names:
        match name.split("/"):
            case ["p", _, "raster", *_]:
                del held[name]
            case ["p", *_]:
                packet = decode(zlib.decompress(held[name]))
                none = {column: _first_none(values) for column, values in packet.columns.items()}
                held[name] = zlib.compress(encode(none, **packet.header, thinned=True))
            case _:
                del held[name]
    for program in {name.split("/")[1] for name in names if "/raster/" in name}:
        summary = json.loads(zlib.decompress(held[f"p/{program}/summary"]))
        summary["rasters"] = [r for r in summary["rasters"] if f"p/{program}/raster/{r[0]}/{r[1]}" in held]
        held[f"p/{program}/summary"] = _json(summary)
    return bool(names)


def _first_none(column: Column) -> Column:
    """The same column without rows."""
    return Words((), column.index[:0]) if isinstance(column, Words) else column[:0]


def _files(held: dict[str, bytes]) -> list[str]:
    """Every file that the data name, the longest name first."""
    found = set(json.loads(zlib.decompress(held["index"]))["sources"])
    for name, data in held.items():
        if name.endswith("/operations"):
            found |= set(decode(zlib.decompress(data)).words("file"))
    return sorted(found - {""}, key=len, reverse=True)


def _redacted(name: str, data: bytes, known: re.Pattern[str]) -> bytes:
    """The same without names of files."""
    if name.endswith("/operations"):
        packet = decode(zlib.decompress(data))
        nowhere = {"file": Words.of([""] * packet.count), "line": [0] * packet.count}
        return zlib.compress(encode(packet.columns | nowhere, **packet.header))
    if name != "index" and not re.fullmatch(r"p/\d+/summary|compare/.*", name):
        return data
    document = _without(known, json.loads(zlib.decompress(data)))
    return _json(document | {"sources": [], "redacted": True} if name == "index" else document)


def _without(known: re.Pattern[str], value: Any) -> Any:
    if isinstance(value, str):
        return known.sub("…", value)
    if isinstance(value, dict):
        return {key: _without(known, each) for key, each in value.items()}
    if isinstance(value, Iterable):
        return [_without(known, each) for each in value]
    return value


def _json(value: Any) -> bytes:
    return zlib.compress(as_json(value))

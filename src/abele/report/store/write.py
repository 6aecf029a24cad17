"""Writing a report's file: whole, or not at all."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from abele import __version__
from abele.errors import Bug, InvalidOption
from abele.report.files import whole
from abele.report.store.brief import briefs
from abele.report.store.packet import Words, encode
from abele.report.store.pyramid import rasters
from abele.report.store.schema import ADVICE, APPLICATION, OPEN, RASTER, SCHEMA, STATEMENTS, TABLES, TEXTS, check_sum

LEVEL = 3
"""Of zlib: beyond it tables get little smaller and take much longer to write."""

DRAWN = 4e6
"""Bins that the viewer draws at once, at most (``viewer/src/pages/timeline/tiles.js``)."""

_NONE = np.empty(0, np.int32)


@dataclass(frozen=True)
class ProgramRecord:
    """A program on a machine, as it goes into the file.

    Attributes:
        name, system, chip, mode: ``mode`` is ``inference`` or ``training``.
        summary: what is shown first, as JSON has it; ``docs/report_store.md`` lists its fields.
        tables: for each name of ``schema.TABLES`` its columns, each an array, ``Words`` or a sequence. A table that is
            left out is empty.
        advice: rows with the columns of ``schema.ADVICE``.
    """

    name: str
    system: str
    chip: str
    mode: str
    summary: Mapping[str, Any]
    tables: Mapping[str, Mapping[str, Any]]
    advice: tuple[Mapping[str, Any], ...] = ()


def write(
    path: str | Path,
    programs: Iterable[ProgramRecord],
    *,
    title: str = "",
    sources: Mapping[str, str] | None = None,
) -> None:
    """Write a report of programs, in the place of a file that is there.

    Args:
        path: of the file, ``profile.pop`` by custom.
        programs: taken one at a time, so that they need not all be in memory.
        title: of the report.
        sources: text of the user's files that operations name, by file; ``None`` leaves them out (``redacted``).

    Raises:
        InvalidOption: the file cannot be written.
    """
    target = Path(path)
    try:
        with whole(target) as fresh:
            fresh.write_bytes(b"")  # a process of this number may have died while it wrote one
            with closing(sqlite3.connect(fresh)) as file:
                file.executescript("pragma journal_mode = off; pragma synchronous = off; pragma page_size = 8192")
                file.executescript(
                    f"pragma application_id = {APPLICATION}; pragma user_version = {SCHEMA};" + STATEMENTS
                )
                about = {"abele": __version__, "title": _text(title), "redacted": str(int(sources is None))}
                file.executemany("insert into meta values (?, ?)", about.items())
                texts = enumerate((sources or {}).items())
                file.executemany("insert into source values (?, ?, ?)", ((i, *map(_text, each)) for i, each in texts))
                for number, program in enumerate(programs):
                    _program(file, number, program)
                _check(file)
                file.commit()
    except (OSError, sqlite3.Error) as error:
        raise InvalidOption(
            f"The report {str(target)!r} cannot be written: {error}", remedy="Name a folder that you may write to."
        ) from error


def _check(file: sqlite3.Connection) -> None:
    file.execute("insert or replace into meta values ('check', ?)", (check_sum(file.execute),))


def _program(file: sqlite3.Connection, number: int, program: ProgramRecord) -> None:
    summary = dict(program.summary)
    fits = summary.get("tile_memory", {}).get("fits")
    shown = (_text(text) for text in (program.name, program.system, program.chip, program.mode))
    row = (number, *shown, *map(summary.get, ("seconds", "throughput")), fits, json.dumps(summary, allow_nan=False))
    file.execute("insert into program values (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    if unknown := set(program.tables) - set(TABLES):
        raise Bug(f"The report has no table {', '.join(sorted(unknown))}")
    for name, expected in TABLES.items():
        columns = program.tables.get(name) or {
            column: Words((), _NONE) if column in TEXTS else () for column in expected
        }
        given = tuple(columns)
        if given != expected and not (name in OPEN and given[: len(expected)] == expected):
            raise Bug(f"The table {name!r} of the report has the columns {given}, not {expected}")
        _packet(file, number, name, encode(columns))
    first = None
    for (level, ipu), raster in _rasters(program):
        counts = {key: int(raster[key]) for key in ("bins", "tile_bins")}
        _packet(file, number, f"raster/{level}/{ipu}", encode({name: raster[name] for name in RASTER}, **counts))
        if ipu == 0 and (first is None or first["bins"] * first["tile_bins"] >= DRAWN):
            first = {**raster, "level": level}
    for name, columns, header in briefs(program.tables, summary, first):
        _packet(file, number, f"brief/{name}", encode(columns, **header))
    _advice(file, number, program.advice)


def _rasters(program: ProgramRecord) -> Iterator[tuple[tuple[int, int], Mapping[str, Any]]]:
    tables, summary = program.tables, program.summary
    if not {"moments", "operations", "sets", "columns"} <= set(tables):
        return iter(())
    parts = tables["moments"], tables["operations"]["like"], tables["sets"], tables["columns"]
    return rasters(*parts, ipus=summary["ipus"], tiles=summary["tiles"])


def _packet(file: sqlite3.Connection, program: int, name: str, data: bytes) -> None:
    file.execute("insert into packet values (?, ?, ?, ?)", (program, name, len(data), zlib.compress(data, LEVEL)))


def _advice(file: sqlite3.Connection, program: int, rows: Iterable[Mapping[str, Any]]) -> None:
    places = ", ".join("?" * (2 + len(ADVICE)))
    for number, row in enumerate(rows):
        values = [json.dumps(row.get(c) or {}) if c == "settings" else row.get(c) for c in ADVICE]
        values = [_text(value) if isinstance(value, str) else value for value in values]
        file.execute(f"insert into advice values ({places})", (program, number, *values))


def _text(name: str) -> str:
    """A text as SQLite takes it: names of files may hold bytes that are no UTF-8, which are shown as ``?``."""
    return name.encode("utf-8", "replace").decode()

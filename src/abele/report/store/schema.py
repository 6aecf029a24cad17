"""What is in a report's file: its tables, their columns, and its version. ``docs/report_store.md`` explains each.

The file is SQLite. Small things are rows; tables that grow with the program are packets of columns, compressed: of
300,000 operations, rows of SQL take several times the place, and seconds to read.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import Any

APPLICATION = 0x4162656C
"""``PRAGMA application_id`` of a report: "Abel"."""

SCHEMA = 4
"""``PRAGMA user_version``: the version of everything here."""

OLDEST = 2
"""The oldest version that is read as it is: it has no packets ``code`` and ``codelets``. 3 stored all columns wide."""

STATEMENTS = """
create table meta (key text primary key, value text not null) without rowid;
create table program (id integer primary key, name text, system text, chip text, mode text, seconds real,
                      throughput real, fits integer, summary text not null);
create table packet (program integer, name text, bytes integer, data blob not null, primary key (program, name));
create table advice (program integer, id integer, text text, settings text, command text, kind text, fits integer,
                     bytes integer, throughput real, cycles real, gain_bytes integer, gain_cycles real, error text,
                     primary key (program, id)) without rowid;
create table source (id integer primary key, file text, text text);
"""

ADVICE = ("text", "settings", "command", "kind", "fits", "bytes", "throughput", "cycles", "gain_bytes", "gain_cycles")
ADVICE += ("error",)
"""Columns of an advice; ``settings`` is JSON."""

TABLES: dict[str, tuple[str, ...]] = {
    "operations": (
        *("id", "parent", "key", "kind", "name", "function", "callee", "like", "layer", "file", "line", "stage", "ipu"),
        *("phase", "times", "count", "cycles", "own"),
        *("compute", "exchange", "links", "sync", "host", "bubble", "overhead"),
        *("flops", "vertices", "exchange_bytes", "link_bytes", "replica_bytes", "streamed_bytes", "code_bytes"),
        *("busy", "balance", "types", "stream"),
    ),
    "sets": (
        *("id", "operation", "place", "vertex", "vertices", "compute", "sync", "exchange", "links", "busy"),
        *("touched_bytes", "scratch_bytes", "received_bytes", "sent_bytes", "linked_bytes", "work", "received"),
    ),
    "code": (
        *("id", "first", "fields", "codelets", "state_bytes", "state_again", "control_bytes", "control_again"),
        "exchange",
    ),
    "codelets": ("ipu", "name", "bytes", "tiles"),
    "columns": ("column", "stop", "value"),
    "tensors": (
        *("id", "name", "source", "type", "kind", "category", "bytes", "tile_bytes", "copies", "first", "last"),
        *("always", "ipu", "operation", "home"),
    ),
    "flow": ("producer", "consumer", "tensor"),
    "placements": ("tensor", "ipu", "tile", "address", "bytes", "first", "last"),
    "traffic": ("operation", "source_ipu", "source_group", "target_ipu", "target_group", "bytes", "links"),
    "pipeline": ("repeat", "ipu", "stage", "backward", "micro_batch", "start", "length"),
    "moments": ("operation", "start", "sync", "exchange", "compute", "host", "ipu", "depth"),
    "liveness": ("max", "mean"),
    "tiles": ("ipu", "tile", "total"),
}
"""Columns of each packet of a program. ``liveness`` and ``tiles`` have one more for each category."""

OPEN = ("liveness", "tiles")
"""Packets with columns beyond those that ``TABLES`` names."""

TEXTS = {"key", "kind", "name", "function", "callee", "layer", "file", "phase", "types", "stream"}
TEXTS |= {"vertex", "source", "type", "category", "codelets"}
"""Columns of words; all others are numbers."""

PHASES = ("sync", "exchange", "compute", "host")
"""Columns of ``moments``: what a moment is made of, in the order in which it runs."""

RASTER = tuple(f"{what}.{how}" for what in ("work", "exchange") for how in ("max", "min", "sum"))
"""Columns of a raster: a row for each bin of moments and, within it, of tiles."""


def check_sum(ask: Callable[[str], Iterable[tuple[Any, ...]]]) -> str:
    """Of all rows but the packets' data, which zlib checks; ``meta`` holds it as ``check``.

    SQLite would not notice a number that has changed on the disk.
    """
    found = 0
    for question in (
        "select key, value from meta where key != 'check' order by key",
        "select * from program order by id",
        "select program, name, bytes, length(data) from packet order by program, name",
        "select * from advice order by program, id",
        "select * from source order by id",
    ):
        for row in ask(question):
            found = zlib.crc32(repr(row).encode("utf-8", "backslashreplace"), found)
    return f"{found:08x}"

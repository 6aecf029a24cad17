"""Reading a report's file: what every page, command and export asks for, by the names of ``docs/report_store.md``."""

from __future__ import annotations

import json
import sqlite3
import threading
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any

from abele.errors import BadReport, InvalidOption, suggest
from abele.report.store.compare import compare
from abele.report.store.packet import Packet, decode
from abele.report.store.schema import ADVICE, APPLICATION, OLDEST, SCHEMA, TABLES, check_sum

JSON, PACKET = "application/json", "application/octet-stream"
"""Content types of resources."""


class Report:
    """A report that is open. Threads may share it; close it, or use it as a context manager.

    Attributes:
        schema: the version that the file is of.
        meta: facts of the file, see ``docs/report_store.md``.

    Raises:
        InvalidOption: there is no such file, or it cannot be opened.
        BadReport: it is empty, cut short, no report, or of a newer Abele.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        _check_file(self.path)
        self._lock = threading.Lock()
        self._file = sqlite3.connect(f"{self.path.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False)
        try:
            self.schema = self._checked_schema()
            self.meta = dict(self._ask("select key, value from meta"))
            found = check_sum(self._ask)
            if self.meta.get("check", found) != found:  # files of the first days have none
                raise self._damaged("its rows are not those that were written")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Report:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()

    # what there is -------------------------------------------------------------------------------------------

    def index(self) -> dict[str, Any]:
        """The programs of the report, and the user's files that it holds."""
        names = ("id", "name", "system", "chip", "mode", "seconds", "throughput", "fits")
        rows = self._ask(f"select {', '.join(names)} from program order by id")
        programs = [dict(zip(names, row, strict=True)) for row in rows]
        for program in programs:
            program["fits"] = None if program["fits"] is None else bool(program["fits"])
        return {
            "schema": self.schema,
            "abele": self.meta.get("abele", ""),
            "title": self.meta.get("title", ""),
            "redacted": self.meta.get("redacted") == "1",
            "live": False,
            "programs": programs,
            "sources": [file for (file,) in self._ask("select file from source order by id")],
        }

    def summary(self, program: int = 0) -> dict[str, Any]:
        """What is shown first of a program, with its ``advice``, and the ``rasters`` and ``brief`` tables there are."""
        rows = self._ask("select summary from program where id = ?", program)
        if not rows:
            raise self._no_program(program)
        rasters = self._ask("select name from packet where program = ? and name like 'raster/%'", program)
        levels = sorted(tuple(map(int, name.split("/")[1:])) for (name,) in rasters)
        brief = self._ask("select name from packet where program = ? and name like 'brief/%' order by name", program)
        return json.loads(rows[0][0]) | {
            "advice": self.advice(program),
            "rasters": [list(each) for each in levels],
            "brief": [name.removeprefix("brief/") for (name,) in brief],
        }

    def advice(self, program: int = 0) -> list[dict[str, Any]]:
        """The advice on a program, in the order in which it was found."""
        names = ("id", *ADVICE)
        found = self._ask(f"select {', '.join(names)} from advice where program = ? order by id", program)
        rows: list[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in found]
        for row in rows:
            row["settings"] = json.loads(row["settings"] or "{}")
            row["fits"] = None if row["fits"] is None else bool(row["fits"])
        return rows

    def source(self, number: int) -> dict[str, str]:
        """A file of the user's: ``file`` and ``text``."""
        rows = self._ask("select file, text from source where id = ?", number)
        if not rows:
            raise InvalidOption(f"The report has no source {number}", remedy=f"It has {self._count('source')}.")
        return {"file": rows[0][0], "text": rows[0][1]}

    def compare(self, a: int, b: int, other: Report | None = None) -> dict[str, Any]:
        """From program ``a``, the base, to program ``b`` (of another report, where one is given)."""
        there = other or self
        sides = self.summary(a), there.summary(b)
        return compare(sides, (self.table("operations", a), there.table("operations", b)))

    def table(self, name: str, program: int = 0) -> Packet:
        """A table of a program: one of ``schema.TABLES``, or ``raster/<level>/<ipu>``."""
        if not self._ask("select 1 from program where id = ?", program):
            raise self._no_program(program)
        return decode(self.packet(f"p/{program}/{name}"))

    # by name -------------------------------------------------------------------------------------------------

    def packet(self, name: str) -> bytes:
        """The packet of that name, ``p/0/operations`` for example."""
        try:
            return zlib.decompress(self._stored(name))
        except zlib.error as error:
            raise self._damaged(error) from error

    def _stored(self, name: str) -> bytes:
        """A packet as it lies in the file, compressed."""
        parts = name.split("/", 2)
        if len(parts) == 3 and parts[0] == "p" and parts[1].isdecimal():
            rows = self._ask("select data from packet where program = ? and name = ?", int(parts[1]), parts[2])
            if rows:
                return rows[0][0]
            if parts[2] in TABLES and self._ask("select 1 from program where id = ?", int(parts[1])):
                remedy = f"Its schema is {self.schema}, an older Abele's: make the report again."
                raise InvalidOption(f"The report has no table {parts[2]!r}", remedy=remedy)
        known = ["index", "compare/0/0", "source/0", *(f"p/0/{table}" for table in ("summary", *TABLES))]
        raise InvalidOption(f"The report has no {name!r}", remedy=suggest(name, known))

    def resource(self, name: str) -> tuple[bytes, str]:
        """What a page asks for by that name, and its content type.

        Raises:
            InvalidOption: the report has nothing of that name.
            BadReport: it has, and it is damaged.
        """
        answer = self._answer(name)
        return (self.packet(name), PACKET) if answer is None else (as_json(answer), JSON)

    def compressed(self, name: str) -> tuple[bytes, str]:
        """The same, compressed by zlib: packets as they lie in the file, without work."""
        answer = self._answer(name)
        return (self._stored(name), PACKET) if answer is None else (zlib.compress(as_json(answer)), JSON)

    def _answer(self, name: str) -> dict[str, Any] | None:
        """What is answered as JSON; ``None`` for the name of a packet."""
        match name.split("/"):
            case ["index"]:
                return self.index()
            case ["p", program, "summary"] if program.isdecimal():
                return self.summary(int(program))
            case ["source", number] if number.isdecimal():
                return self.source(int(number))
            case ["compare", a, b] if a.isdecimal() and b.isdecimal():
                return self.compare(int(a), int(b))
        return None

    def names(self) -> list[str]:
        """Every name that ``resource`` answers, comparisons apart."""
        packets = self._ask("select program, name from packet order by program, rowid")
        programs = [f"p/{id}/summary" for (id,) in self._ask("select id from program order by id")]
        sources = [f"source/{id}" for (id,) in self._ask("select id from source order by id")]
        return ["index", *programs, *(f"p/{program}/{name}" for program, name in packets), *sources]

    # the file ------------------------------------------------------------------------------------------------

    def _ask(self, question: str, *values: Any) -> list[tuple[Any, ...]]:
        try:
            with self._lock:
                return self._file.execute(question, values).fetchall()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise self._damaged(error) from error
        except OverflowError:  # a number beyond all that are stored
            return []

    def _count(self, table: str) -> int:
        return self._ask(f"select count(*) from {table}")[0][0]

    def _no_program(self, program: int) -> InvalidOption:
        remedy = f"It has {self._count('program')}, counted from 0."
        return InvalidOption(f"The report has no program {program}", remedy=remedy)

    def _damaged(self, error: Exception | str) -> BadReport:
        return BadReport(f"The report {str(self.path)!r} is damaged: {error}", remedy="Make the report again.")

    def _checked_schema(self) -> int:
        (((application,),), ((version,),)) = (
            self._ask(f"pragma {name}") for name in ("application_id", "user_version")
        )
        if application != APPLICATION:
            raise BadReport(
                f"{str(self.path)!r} is an SQLite file, but no report of Abele",
                remedy="Reports are made by 'abele profile … --report DIR', which writes DIR/profile.pop; one that an "
                "Abele before the first numbered schema wrote is to be made again.",
            )
        if not OLDEST <= version <= SCHEMA:
            which = "a newer" if version > SCHEMA else "an older"
            raise BadReport(
                f"The report {str(self.path)!r} is of {which} Abele: it has schema {version}, this one reads {SCHEMA}",
                remedy="Read it with the Abele that made it, or make the report again with this one.",
            )
        return version


def as_json(value: Any) -> bytes:
    """A document as it is sent."""
    return json.dumps(value, separators=(",", ":")).encode()


def _check_file(path: Path) -> None:
    """Whether it is a whole SQLite file."""
    remedy = "Name the file that 'abele profile … --report DIR' wrote: DIR/profile.pop."
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # a pipe would be waited for
            raise BadReport(f"{str(path)!r} is no file, and so no report of Abele", remedy=remedy)
        with path.open("rb") as file:
            head = file.read(100)
        size = path.stat().st_size
    except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
        why = error.strerror if isinstance(error, OSError) else error
        raise InvalidOption(f"There is no report {str(path)!r}: {why}", remedy=remedy) from error
    if not head:
        raise BadReport(f"The report {str(path)!r} is empty", remedy="Make the report again.")
    if head[:16] != b"SQLite format 3\0":
        raise BadReport(f"{str(path)!r} is no report of Abele", remedy=remedy)
    page = int.from_bytes(head[16:18], "big")
    whole = int.from_bytes(head[28:32], "big") * (65536 if page == 1 else page)
    if len(head) < 100 or size < whole:
        raise BadReport(
            f"The report {str(path)!r} is cut short: it has {size:,} bytes of {max(whole, 100):,}",
            remedy="Copy it again, or make the report again.",
        )

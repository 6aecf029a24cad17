"""The report's store: one SQLite file of packets, its writer, and the one reader of every page, command and export.

``schema`` says what is in it, ``packet`` how a table's columns are packed, ``pyramid`` bins what is too fine to draw,
``write`` and ``read`` are the two ends, ``compare`` holds two programs against each other. ``docs/report_store.md`` is
the contract with the viewer.
"""

from abele.report.store.packet import Packet, Words, decode, encode
from abele.report.store.read import Report
from abele.report.store.record import record, sources_of
from abele.report.store.schema import SCHEMA, TABLES
from abele.report.store.write import ProgramRecord, write

__all__ = [
    "SCHEMA",
    "TABLES",
    "Packet",
    "ProgramRecord",
    "Report",
    "Words",
    "decode",
    "encode",
    "record",
    "sources_of",
    "write",
]

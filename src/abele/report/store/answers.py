"""What a report says, for scripts and the console: the summary, and where the time goes by operation and by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from abele.charge.records import PARTS
from abele.report.store.packet import Packet
from abele.report.store.read import Report

NUMBERS = ("flops", "exchange_bytes", "link_bytes", "streamed_bytes")


def document(report: Report, program: int = 0) -> dict[str, Any]:
    """The answer ``p/<program>/summary`` with ``by_operation``, ``by_layer`` and ``by_line``, most cycles first.

    Cycles are those of all runs in one device iteration; calls and repeats count with what they take themselves. Of
    operations that talk to the host ``steps`` has name, stream, types and bytes, as a profile's document has it.
    """
    table = report.table("operations", program)
    names, files = table.words("name"), table.words("file")
    lines = [f"{file}:{line}" if file else "" for file, line in zip(files, table.numbers("line").tolist(), strict=True)]
    streamed = np.flatnonzero(table.numbers("streamed_bytes"))
    streams, types, bytes = table.words("stream"), table.words("types"), table.numbers("streamed_bytes")
    return report.summary(program) | {
        "by_operation": grouped(table, names),
        "by_layer": grouped(table, table.words("layer")),
        "by_line": grouped(table, lines),
        "steps": [
            {"name": names[i], "stream": streams[i], "types": types[i], "streamed_bytes": int(bytes[i])}
            for i in streamed.tolist()
        ],
    }


def grouped(table: Packet, keys: Sequence[str]) -> list[dict[str, Any]]:
    """Operations put together by a key of each: ``operations``, ``times``, ``cycles``, ``cycles_by`` and sums."""
    places: dict[str, int] = {}
    group = np.array([places.setdefault(key, len(places)) for key in keys], np.int64)
    times, own = table.numbers("times"), table.numbers("own")
    leaf = np.array([kind not in ("call", "repeat") for kind in table.words("kind")], bool)

    def total(values: np.ndarray) -> list[float]:
        return np.bincount(group, values, len(places)).tolist()

    # Of a call the parts are those of all that it runs: its own time, copies, goes to none of them.
    parts = {part: total(np.where(leaf, table.numbers(part) * times, 0.0)) for part in PARTS}
    cycles, runs = total(own * times), total(times)
    counts, sums = total(np.ones(table.count)), {name: total(table.numbers(name) * times) for name in NUMBERS}
    rows = [
        {
            "key": key,
            "operations": int(counts[i]),
            "times": int(runs[i]),
            "cycles": cycles[i],
            "cycles_by": {part: of[i] for part, of in parts.items()},
            **{name: int(of[i]) for name, of in sums.items()},
        }
        for key, i in places.items()
    ]
    return sorted(rows, key=lambda row: -row["cycles"])

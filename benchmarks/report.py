"""The report's file: what writing one adds to compiling and charging, and how large and how quick a huge one is.

Writing is the tables in full, their compression and the sources; without it are the capture, the compile without a
cache, the charge and the profile's document. The huge report is synthetic (``tests.report.synthetic``): 64 IPUs of
1,472 tiles, 300,000 operations, and the work of each tile in each of them.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.base import Benchmark, Row, Settings, apart, peak_bytes
from benchmarks.compile import prepare

WRITING = "Writing a report (CPU seconds, after capture)"
HUGE = "A report of 64 IPUs and 300,000 operations (CPU seconds)"
MORE = 0.2
"""Share by which a report may make the whole slower."""
MEGABYTES, OPENS = 200.0, 1.0

PROGRAMS: dict[str, dict[str, Any]] = {
    "bert-large": {"train": True, "half": True, "system": "pod16", "stages": 8, "accumulate": 16},
    "resnet50": {"train": True, "half": True, "system": "bow-2000"},
    "gpt2": {"train": False, "half": True, "system": "bow-2000"},
}


def benchmarks() -> list[Benchmark]:
    """A row for each program, and one for the huge report."""
    found = [Benchmark(WRITING, name, _writing(name), quick=name == "resnet50") for name in PROGRAMS]
    return [*found, Benchmark(HUGE, "huge", lambda settings: [apart(_huge, 30_000 if settings.quick else 300_000)])]


def _writing(name: str) -> Callable[[Settings], Sequence[Row]]:
    def run(settings: Settings) -> Sequence[Row]:
        prepare()
        found = [apart(_written, name, **PROGRAMS[name]) for _ in range(settings.rounds)]
        middle = {key: statistics.median(each[key] for each in found) for key in found[0]}
        more = statistics.median(each["report"] / each["without"] for each in found)
        row = {"program": name, "without": middle["without"], "report": middle["report"], "more %": 100 * more}
        return [row | {"limit %": 100 * MORE, "holds": more <= MORE, "file KiB": middle["bytes"] / 1024}]

    return run


def _written(model: str, *, train: bool, half: bool, **settings: Any) -> dict[str, float]:
    """CPU seconds ``without`` a report, and those that the ``report`` adds; its ``bytes``."""
    from abele.compile.executable import compile_graph
    from abele.cost import cost, detail
    from abele.programs import compile_options, load
    from abele.report.store import record, sources_of, write

    loaded = load(model, batch=1, train=train, half=half)
    options = compile_options(loaded, **settings)
    start = time.process_time()
    schedule = compile_graph(loaded.graph, options).schedule
    profile = cost(schedule, options.system)
    document = profile.to_json()
    done = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "profile.pop")
        records = [record(document, detail(profile, schedule, options.system))]
        write(path, records, sources=sources_of(records))
        return {"without": done - start, "report": time.process_time() - done, "bytes": float(path.stat().st_size)}


def _huge(operations: int) -> Row:
    """Size and times of one; ``opened``: to what is shown first, and all columns of the operations with it."""
    from tests.report.synthetic import Shape, program

    from abele.report.store import Report, write

    shape = Shape(64, 1472, operations)
    record = program(shape)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "profile.pop")
        start = time.process_time()
        write(path, [record])
        wrote, size = time.process_time() - start, path.stat().st_size / 1e6
        start = time.process_time()
        with Report(path) as report:
            report.index()
            report.resource("p/0/summary")
            opened = time.process_time() - start
            report.resource("p/0/operations")
            everything = time.process_time() - start
        cells = len(record.tables["sets"]["id"]) * shape.tiles
    row = {"operations": operations, "million cells": cells / 1e6, "MB": size, "limit MB": MEGABYTES, "written": wrote}
    row |= {"opened": opened, "with all operations": everything, "limit": OPENS}
    return row | {"holds": size <= MEGABYTES and everything <= OPENS, "peak MiB": peak_bytes() / 2**20}

"""Advice for full-size models that do not fit or run slowly on m2000: what each gives when its own command applies it,
as a share of what it promised. Modelled figures; no limit is on the time, which is that of the commands."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.base import Benchmark, Row, Settings

GROUP = "Advice applied on m2000 (modelled)"
LEAST = 0.8
"""Share of the promised gain that each advice must give."""

MODELS = {
    "bert-base-training": "bert-base --train --half --optimizer adam",
    "bert-large": "bert-large --half",
    "resnet50": "resnet50 --half",
    "lstm-training": "lstm --train",
    "mlp": "mlp",
}


def benchmarks() -> list[Benchmark]:
    """A row for each advice of each model."""
    return [Benchmark(GROUP, name, _model(name), quick=name == "mlp") for name in MODELS]


def _model(name: str) -> Callable[[Settings], Sequence[Row]]:
    return lambda settings: [*_rows(name)]


def _rows(name: str) -> list[Row]:
    begun = time.perf_counter()
    before = _profiled(["profile", *MODELS[name].split(), "--system", "m2000", "--advice"])
    spent, kind = time.perf_counter() - begun, "speed" if before["tile_memory"]["fits"] else "fit"
    rows: list[Row] = []
    for advice in before["advice"]:
        if advice["error"]:
            continue
        after = _profiled([*shlex.split(advice["command"])[1:], "--no-advice"])
        if kind == "fit":
            promised, got = advice["gain_bytes"], before["tile_memory"]["max"] - after["tile_memory"]["max"]
        else:
            promised = advice["gain_cycles"]
            got = before["cycles"] / before["samples"] - after["cycles"] / after["samples"]
        rows.append(
            {
                "model": MODELS[name],
                "kind": kind,
                "advice": advice["text"],
                "fits": advice["fits"],
                "samples/s before": before["throughput"],
                "after": after["throughput"],
                "promised (bytes or cycles a sample)": promised,
                "given": got,
                "share": got / promised,
                "limit": LEAST,
                "holds": got >= LEAST * promised and after["tile_memory"]["fits"] == advice["fits"],
                "all advice, s": spent,
            }
        )
    return rows


def _profiled(arguments: list[str]) -> dict[str, Any]:
    """What a command gives, in a process of its own and compiled afresh."""
    command = [sys.executable, "-m", "abele", *arguments, "--no-cache", "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

"""The report's viewer in headless Chromium: how long a person waits for it.

Medians of wall time, as viewer/tests/speed.js measures them; what takes more than twice its limit is an error.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.base import Benchmark, Row, Settings

TITLE = "The report in the browser (wall time in headless Chromium)"
ROOT = Path(__file__).parents[1]
NOTHING = 75
"""Exit status of viewer/tests/speed.js on a machine without a browser."""
REPORTS = {
    "large": ("--operations", "300000", "--ipus", "4"),
    "middle": ("--operations", "30000", "--ipus", "1"),
    "small": ("--operations", "5000", "--ipus", "2"),
    "wide": ("--operations", "5000", "--ipus", "64"),
    "raster": ("--operations", "17160", "--ipus", "1", "--columns", "17160"),
}
"""Synthetic reports, with the options that make them."""


def benchmarks() -> list[Benchmark]:
    """One row for each thing that is waited for."""
    return [Benchmark(TITLE, "browser", _run, quick=False)]


def _run(settings: Settings) -> Sequence[Row]:
    node = shutil.which("node")
    if node is None or not (ROOT / "viewer" / "node_modules" / "playwright-core").exists():
        return [{"what": "nothing: Node or viewer/node_modules is missing"}]
    environment = {**os.environ, "ABELE_PYTHON": sys.executable}
    with tempfile.TemporaryDirectory() as folder:
        for name, options in REPORTS.items():
            made = [sys.executable, "-m", "tests.report.synthetic", f"{folder}/{name}.pop", *options]
            subprocess.run(made, cwd=ROOT, check=True)
        out = Path(folder) / "measured.json"
        command = [node, "viewer/tests/speed.js", folder, str(settings.rounds), str(out)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if done.returncode == NOTHING:
            return [{"what": f"nothing: {done.stderr.strip()}"}]
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        found = json.loads(out.read_text())
    rows = [
        {
            "what": each["name"],
            "median": each["value"],
            "limit": each["limit"],
            "unit": each["unit"],
            "holds": each["value"] <= each["limit"],
            "rounds": each["rounds"],
        }
        for each in found
    ]
    slow = [each["name"] for each in found if each["value"] > 2 * each["limit"]]
    return [*rows, *({"what": name, "error": "more than twice its limit"} for name in slow)]

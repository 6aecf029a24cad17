"""The viewer's own tests, in Node and a real browser; viewer/tests/harness.js says what they need."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

VIEWER = Path(__file__).parents[2] / "viewer"
TESTS = sorted(path.name for path in (VIEWER / "tests").glob("*.test.js"))


@pytest.mark.parametrize("name", TESTS)
def test_in_node(name):
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed")
    if not (VIEWER / "node_modules" / "playwright-core").exists():
        pytest.skip("viewer/node_modules is missing: `npm ci` in viewer")
    done = subprocess.run(
        [node, "--test", "--test-reporter=spec", f"tests/{name}"],
        cwd=VIEWER,
        env={**os.environ, "ABELE_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=540,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    skipped = [line.strip() for line in done.stdout.splitlines() if "# SKIP" in line or "﹣" in line]
    passed = [line for line in done.stdout.splitlines() if "✔" in line]
    if skipped and not passed:
        pytest.skip(skipped[0])

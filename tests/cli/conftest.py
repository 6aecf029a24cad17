"""The command as a function, in a process of its own when needed, each test with a cache and a folder of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from abele.cli import main

MODELS = Path(__file__).parent / "models.py"


@dataclass(frozen=True)
class Ran:
    """What a command gave: exit status and what it wrote."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The standard output, which must be one JSON document and nothing else."""
        return json.loads(self.out)

    def one_paragraph(self) -> str:
        """The error, which must be one paragraph on the standard error and nothing on the other."""
        assert self.status == 2, self
        assert self.out == ""
        assert "Traceback" not in self.err
        lines = self.err.strip().splitlines()
        assert len(lines) == 1, self.err
        return lines[0]


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with an empty cache in it."""
    monkeypatch.setenv("ABELE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def abele(capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """The command in this process."""

    def run(*arguments: str | Path) -> Ran:
        capfd.readouterr()
        status: Any = 0
        try:
            main([str(a) for a in arguments])
        except SystemExit as stop:
            status = stop.code
        seen = capfd.readouterr()
        return Ran(status, seen.out, seen.err)

    return run


def process(*arguments: str | Path, **options: Any) -> Ran:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "abele", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
    return Ran(done.returncode, done.stdout, done.stderr)

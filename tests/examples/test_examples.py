"""The examples and documents that are programs run, and say what they claim."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from abele.advice import advise, of_compiled
from abele.compile.session import Session, opened
from abele.cost import cost
from abele.machine import find_system
from abele.tune.options_file import option_lines

ROOT = Path(__file__).parents[2]


def loaded(path: str):
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_digits_learn_as_in_plain_torch():
    accuracy, difference = loaded("examples/digits.py").main()
    assert accuracy >= 97
    assert difference <= 1e-4


def test_digits_learn_with_all_that_is_advised():
    """The lines of each advice on the program that trains and on the one that infers: both run with them."""
    lines = {("deviceIterations(2)",)}

    def command(settings: Mapping[str, Any], train: bool, changed: Mapping[str, Any]) -> str:
        lines.add(tuple(option_lines({**settings, **changed}, train, changed)))
        return ""

    digits, session = loaded("examples/digits.py"), Session(find_system("m2000"))
    digits.UPDATES = 20
    with opened(session):
        digits.main()
    for program in session.programs:
        profile = cost(program.executable.schedule, session.system, samples=program.samples)
        for each in advise(of_compiled(program.graph, program.options, profile, None, command), budget=6):
            assert not each.error
    assert len(lines) >= 4
    for each in lines:
        with opened(Session(find_system("m2000"), option_lines=each)):
            assert digits.main()[1] <= 1e-4, each


def test_an_operation_of_ones_own():
    ran = subprocess.run([sys.executable, "examples/my_operation.py"], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "gradient at [-1, 1, 2, 3]: [0. 2. 4. 6.]" in ran.stdout


def test_the_twin_of_a_compiled_operation():
    ran = subprocess.run([sys.executable, "examples/custom_operation.py"], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "cubes: [0.5, 4.0, 13.5] loss: 18.0" in ran.stdout
    assert "weights after a step: [0.85, 1.4, 1.65]" in ran.stdout


def test_a_chip_of_ones_own():
    system = find_system(f"{ROOT / 'examples/my_chip.py'}:system")
    assert system.chip.estimate("Gather", rows=128, row_elements=64) == 40 + 128 * 10


def test_one_program_through_every_stage():
    ran = subprocess.run([sys.executable, "docs/one_program.py"], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    for heading in ("1. A graph", "2. Passes", "3. The schedule", "4. The engine", "5. The reference", "6. Cost"):
        assert heading in ran.stdout


def test_a_chip_with_an_exchange_of_its_own(tmp_path, monkeypatch):
    """256 tiles in a mesh, in at most 50 lines, in every command that takes a machine."""
    from abele.cli import main

    file = ROOT / "examples/mesh_chip.py"
    assert len(file.read_text().splitlines()) <= 50
    monkeypatch.setenv("ABELE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for command in (
        ("profile", "mlp", "--small", "--report", "report"),
        ("sweep", "mlp", "--small", "--set", "exchange_bytes_per_cycle=2,64", "--jobs", "2", "--out", "rows.parquet"),
        ("tune", "mlp", "--small", "--only", "stages=1", "--only", "batch=1,4", "--only", "replicas=1", "--jobs", "1"),
    ):
        main([*command, "--system", f"{file}:system"])
    assert "mesh" in (tmp_path / "report/profile.json").read_text()
    assert (tmp_path / "mlp.options").exists()

    from abele.sweep.table import read_rows

    rows = read_rows(tmp_path / "rows.parquet")
    assert [(row["exchange_bytes_per_cycle"], row["error"]) for row in rows] == [(2, ""), (64, "")]
    assert rows[0]["cycles_exchange"] > rows[1]["cycles_exchange"] > 0

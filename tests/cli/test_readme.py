"""Every command of the README's examples runs as it stands there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVES = "abele view "
"""It goes on until it is interrupted, and shows what the command before it wrote."""

PROGRAM = """
import poptorch, torch
model = poptorch.inferenceModel(torch.nn.Linear(4, 2))
print(model(torch.ones(3, 4)).shape)
"""


def commands() -> list[str]:
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("## Try it", 1)[1]
    block = re.search(r"```\n(.*?)```", section, re.DOTALL)
    assert block is not None
    lines = [line.split("#")[0].strip() for line in block[1].splitlines()]
    return [line for line in lines if line.startswith(("abele ", "poprun "))]


def groups() -> list[list[str]]:
    """Commands that run one after another in the same folder."""
    found: list[list[str]] = []
    for command in commands():
        if command.startswith(SERVES):
            found[-1].append(command)
        else:
            found.append([command])
    return found


def test_there_are_commands() -> None:
    assert len(commands()) > 8 and any(len(group) > 1 for group in groups())


@pytest.mark.parametrize("group", groups(), ids=" && ".join)
def test_commands_of_the_readme_run(group: list[str], tmp_path: Path) -> None:
    for name in ("your_poptorch_program.py", "your_program.py"):
        (tmp_path / name).write_text(textwrap.dedent(PROGRAM), encoding="utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH")))),
        "ABELE_CACHE_DIR": str(tmp_path / "cache"),
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
        "BROWSER": "true",
    }
    for command in group:
        words = shlex.split(command)
        module = {"abele": ["-m", "abele"], "poprun": ["-c", "from popdist.poprun import main; main()"]}[words[0]]
        arguments = [sys.executable, *module, *words[1:]]
        if command.startswith(SERVES):
            served = subprocess.Popen(arguments, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
            assert served.stdout is not None
            said = "".join(served.stdout.readline() for _ in range(2))
            served.terminate()
            served.communicate(timeout=60)
            assert "http://127.0.0.1" in said
            continue
        done = subprocess.run(arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        assert done.stdout.strip()

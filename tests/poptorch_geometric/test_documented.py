"""The program on the page of graph networks runs and learns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch_geometric")

PAGE = Path(__file__).parents[2] / "docs" / "graph_networks.md"


def test_the_program_on_the_page_learns():
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    names: dict[str, object] = {"__name__": "page"}
    exec(compile(program, str(PAGE), "exec"), names)
    losses = names["losses"]
    assert isinstance(losses, list)
    assert losses[-1] < losses[0] / 4

"""The report as one HTML file that opens without a network: a template, a script, and the profile's JSON inside."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any


def html_report(profiles: Sequence[Mapping[str, Any]]) -> str:
    """The page for profiles (``Profile.to_json`` documents, each perhaps with ``source`` lines and levers)."""
    room = resources.files("abele.report")
    page = (room / "page.html").read_text(encoding="utf-8")
    style = (room / "page.css").read_text(encoding="utf-8")
    script = (room / "page.js").read_text(encoding="utf-8")
    # "</" would end the script element early: names come from the user's model.
    data = json.dumps(list(profiles), default=_plain).replace("<", "\\u003c")
    return page.replace("/*style*/", style).replace("/*script*/", script).replace("/*data*/", data)


def _plain(value: Any) -> Any:
    for convert in ("tolist", "item"):
        if hasattr(value, convert):
            return getattr(value, convert)()
    return str(value)

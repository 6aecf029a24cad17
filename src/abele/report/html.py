"""The report as one HTML file that opens without a network: a template, a script, and the profile's JSON inside."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from abele.errors import InvalidOption
from abele.report.pack import pack, thin

SCHEMA = 1
"""The version of ``Profile.to_json`` that the page and the console summary read."""


def html_report(profiles: Sequence[Mapping[str, Any]]) -> str:
    """The page for profiles (``Profile.to_json`` documents, each perhaps with an explanation, advice and passes).

    Raises:
        InvalidOption: a profile of another version than ``SCHEMA``.
    """
    for profile in profiles:
        if profile.get("schema") != SCHEMA:
            raise InvalidOption(
                f"The profile {str(profile.get('name', ''))!r} has version {profile.get('schema')!r}, "
                f"this Abele draws version {SCHEMA}",
                remedy="Make the profile again with this Abele, or draw it with the one that made it.",
            )
    room = resources.files("abele.report")
    page, style, script = ((room / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js"))
    data = json.dumps([pack(thin(p)) for p in profiles], separators=(",", ":"), allow_nan=False)
    # Names come from the user's model: "</script>" or "<!--" among them would end the element early.
    data = data.replace("<", "\\u003c")
    parts = {"/*style*/": style, "/*script*/": script.replace("/*schema*/", str(SCHEMA)), "/*data*/": data}
    for mark, text in parts.items():  # the data last: a mark in a name stays what it is
        before, after = page.split(mark, 1)
        page = before + text + after
    return page

"""The viewer's page as one text: its style sheet and its script inside, and either a token or the data themselves.

With a token it asks the server that sent it (``server.py``); with data it is a file that needs nothing else. Scripts
and styles that are not the viewer's own are refused by the browser: the page's policy names the two by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib import resources

_UNPACK = """(async () => {
  const text = (id) => document.getElementById(id).textContent;
  const unpacked = (id) => new Response(new Blob([Uint8Array.from(atob(text(id)), (c) => c.charCodeAt(0))]).stream()
    .pipeThrough(new DecompressionStream("deflate"))).text();
  for (const [tag, id] of [["style", "packed-style"], ["script", "packed-script"]]) {
    const node = document.createElement(tag);
    node.textContent = await unpacked(id);
    document.body.append(node);
  }
})();"""
"""Takes the place of style and script where they are packed."""


def policy(connect: str) -> str:
    """The content security policy of a page whose script may ask ``connect`` (``self`` or ``none``)."""
    style, script = (_hash(text) for text in _bundle())
    return (
        f"default-src 'none'; script-src '{script}'; style-src '{style}'; connect-src '{connect}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def page(title: str, *, token: str = "", saved: Mapping[str, str] | None = None, packed: bool = False) -> str:
    """The page as HTML.

    Args:
        title: shown until the script has read the report.
        token: what the server that sends this page wants to see with every question.
        saved: the data by their names, each compressed (zlib) and in base64: then no server is asked.
        packed: a saved page to stand within another one (``srcdoc`` of an ``iframe``, which has no address of its own):
            style and script are compressed too, and the policy is that of the page around it.
    """
    style, script = _bundle()
    head, body = f'<meta name="token" content="{escape(token)}">', ""
    if saved is not None:
        data = json.dumps(dict(saved), separators=(",", ":")).replace("<", "\\u003c")
        body = f'<script type="application/json" id="saved">{data}</script>\n'
        head = f'<meta http-equiv="Content-Security-Policy" content="{policy("none")}">'
    if packed:
        head, body = '<base href="about:srcdoc">', body + _packed("style", style) + _packed("script", script)
        style, script = "", _UNPACK
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
{head}
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
<noscript>This report draws itself with the script inside it: allow scripts for this page to see it.</noscript>
{body}<script>{script}</script>
</body>
</html>
"""


@cache
def colours() -> dict[str, str]:
    """The viewer's colours by the names in its style sheet, of its light theme."""
    found = re.findall(r"--([a-z-]+):\s*(#[0-9a-f]{3,6})\b", _bundle()[0])
    return dict(reversed(found))  # the first of each name: the dark theme comes after


def _packed(name: str, text: str) -> str:
    data = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    return f'<script type="text/plain" id="packed-{name}">{data}</script>\n'


@cache
def _bundle() -> tuple[str, str]:
    """Style sheet and script."""
    room = resources.files("abele.report") / "static"
    style, script = ((room / f"viewer.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    return style, script


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

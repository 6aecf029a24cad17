"""A report in a notebook: its verdict in words, a picture that needs no script, and the viewer itself in a small frame.

The frame holds its data, as a saved page does, so that it works wherever the notebook is opened, without a server or a
port. It has an origin of its own (``sandbox``): what is in it reaches neither the notebook nor a network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from abele.report.console import fit, many, rate, seconds, share, size, visible
from abele.report.page import colours
from abele.report.saved import Data, saved_page

LARGEST = 200 * 1024
"""Bytes of the frame."""

WIDTH, BAR = 640, 22


def bundle(report: Data, summaries: Sequence[Mapping[str, Any]], full: str) -> dict[str, str]:
    """Text, picture and page, by MIME type. ``full`` says how to open all of the report."""
    drawn = picture(summaries)
    frame = (
        '<iframe sandbox="allow-scripts" title="Abele report" width="100%" height="560" '
        'style="border:1px solid #8a9099" '
        f'srcdoc="{escape(saved_page(report, largest=LARGEST, packed=True))}"></iframe>'
    )
    words = "\n".join(verdict(summary) for summary in summaries)
    return {
        "text/plain": f"{words}\n{full}",
        "image/svg+xml": drawn,
        "text/html": f"<div>{drawn}<br>{frame}<br><small>{escape(full)}</small></div>",
    }


def verdict(summary: Mapping[str, Any]) -> str:
    """Does it fit, how fast is it, what next: one paragraph."""
    memory = summary["tile_memory"]
    text = (
        f"{title(summary)}: {fit(memory)} (fullest tile {size(memory['max'])} of {size(memory['limit'])}). "
        f"Modelled: {seconds(summary['seconds'])} for {many(summary['samples'], 'sample')}, "
        f"{rate(summary['throughput'])} samples/s{'' if memory['fits'] else ' if it fitted'}."
    )
    advice = [each for each in summary["advice"] if not each["error"]]
    if advice:
        first = advice[0]
        figures = f"{size(first['bytes'])}, {rate(first['throughput'])} samples/s"
        text += f" What next: {first['text']} ({figures}; it was compiled)."
    return visible(text)


def title(summary: Mapping[str, Any]) -> str:
    """Which program, and where."""
    name, mode = summary["name"], summary["mode"]
    return " ".join(filter(None, (name, "" if name.endswith(f"({mode})") else mode, "on", summary["system"])))


def picture(summaries: Sequence[Mapping[str, Any]]) -> str:
    """Bars of the fullest tile's memory against its limit, and of the cycles, for each program, as SVG."""
    parts: list[str] = []
    y = 0
    for summary in summaries:
        memory = summary["tile_memory"]
        whole = max(memory["limit"], memory["max"])
        parts.append(_text(0, y + 14, title(summary), "bold"))
        words = f"fullest tile: {size(memory['max'])} of {size(memory['limit'])}, {fit(memory)}"
        y = _bar(parts, y + 20, words, memory["categories"], whole, size)
        limit = WIDTH * memory["limit"] / whole
        parts.append(_line(limit, y - BAR - _rows(memory["categories"]) * 16, BAR))
        words = f"time: {seconds(summary['seconds'])}, {rate(summary['throughput'])} samples/s (modelled)"
        by, cycles = summary["cycles_by"], summary["cycles"]
        y = _bar(parts, y + 4, words, by, max(cycles, sum(by.values())), lambda n, cycles=cycles: share(n, cycles)) + 10
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}" role="img" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#ffffff"/>'
        f"<title>{_clean('; '.join(map(title, summaries)))}</title>{''.join(parts)}</svg>"
    )


def _bar(parts: list[str], y: int, words: str, by: Mapping[str, float], whole: float, show: Any) -> int:
    """A bar of parts with its key below; where it ends."""
    parts.append(_text(0, y + 12, words))
    y += 18
    parts.append(f'<rect x="0" y="{y}" width="{WIDTH}" height="{BAR}" fill="#e8eaec"/>')
    x = 0.0
    for letter, (name, amount) in zip("abcdefghijklmnopqrstuvwxyz", _shown(by).items(), strict=False):
        wide, hue = WIDTH * amount / whole if whole else 0.0, _hue(name)
        parts.append(
            f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{BAR}" fill="{hue}" stroke="#ffffff" '
            f'stroke-width="0.5"><title>{_clean(name)} {_clean(show(amount))}</title></rect>'
        )
        if wide >= 10:
            parts.append(_text(x + wide / 2 - 3, y + 15, letter, hue="#ffffff"))
        x += wide
    y += BAR
    for i, (name, amount) in enumerate(_shown(by).items()):
        column, row = i % 3, i // 3
        at = column * WIDTH / 3
        parts.append(f'<rect x="{at:.0f}" y="{y + 4 + row * 16}" width="9" height="9" fill="{_hue(name)}"/>')
        parts.append(_text(at + 14, y + 13 + row * 16, f"{chr(97 + i)}: {name} {show(amount)}"))
    return y + _rows(by) * 16


def _shown(by: Mapping[str, float]) -> dict[str, float]:
    """What there is any of, the most first."""
    return dict(sorted(((name, amount) for name, amount in by.items() if amount > 0), key=lambda each: -each[1]))


def _hue(name: str) -> str:
    """The viewer's colour of a part; letters tell the parts apart without it."""
    return colours().get(name.replace(" ", "-"), "#6f7780")


def _rows(by: Mapping[str, float]) -> int:
    """Lines of a bar's key."""
    return -(-len(_shown(by)) // 3)


def _line(x: float, y: float, height: int) -> str:
    """The limit of a tile."""
    x = min(x, WIDTH - 1)
    return f'<path d="M{x:.1f} {y - 3}v{height + 6}" stroke="#b3370a" stroke-width="2" stroke-dasharray="4 2"/>'


def _text(x: float, y: float, words: str, weight: str = "normal", hue: str = "#16191d") -> str:
    return f'<text x="{x:.0f}" y="{y}" fill="{hue}" font-weight="{weight}">{_clean(words)}</text>'


def _clean(text: str) -> str:
    """Text for SVG: names come from a user's model, and XML knows no control characters."""
    return escape(visible(text))

"""A sweep as a picture: throughput, and how full the fullest tile is, over one field, with a line for all others."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from abele.errors import InvalidOption, Unsupported
from abele.sweep.charge import Row
from abele.sweep.points import UNITS, Point, heading, varied

SUFFIXES = (".svg", ".png", ".pdf", ".html")
WIDE = 10
"""Largest over smallest value from which on an axis is logarithmic."""
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body style="margin:2em auto;max-width:60em">{svg}</body></html>
"""


def check(path: Path) -> None:
    """Raise when a plot of this name cannot be made: another kind of file, or no matplotlib."""
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidOption(
            f"A plot cannot be a {path.suffix or path.name!r} file", remedy=f"Known: {', '.join(SUFFIXES)}."
        )
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise Unsupported(
            "A plot needs matplotlib, which is not installed", remedy="pip install 'abele[sweep]', or leave out --plot."
        ) from error


def picture(points: Sequence[Point], rows: Sequence[Row], suffix: str) -> bytes:
    """The picture as the contents of a file of this kind; rows belong to the points, in their order.

    The field with most values runs along; points that do not fit the tiles are hollow, those with an error left out.
    """
    import matplotlib
    from matplotlib.figure import Figure

    along, *others = sorted(varied(points), key=lambda name: -len({p[name] for p in points})) or [""]
    lines: dict[str, list[tuple[Any, Row]]] = {}
    for point, row in zip(points, rows, strict=True):
        if not row["error"]:
            label = ", ".join(
                f"{name} {point[name]:g}" if _is_number(point[name]) else f"{name} {point[name]}" for name in others
            )
            lines.setdefault(label, []).append((point.get(along, 0), row))
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    speed, memory = figure.subplots(1, 2)
    for label, found in lines.items():
        found.sort(key=lambda pair: pair[0]) if all(_is_number(x) for x, _ in found) else None
        xs = [x if _is_number(x) else str(x) for x, _ in found]
        (line,) = speed.plot(xs, [row["throughput"] for _, row in found], label=label)
        share = [100 * row["memory_max"] / row["memory_limit"] for _, row in found]
        memory.plot(xs, share, color=line.get_color())
        for axes, ys in ((speed, [row["throughput"] for _, row in found]), (memory, share)):
            faces = [line.get_color() if row["fits"] else "none" for _, row in found]
            axes.scatter(xs, ys, facecolors=faces, edgecolors=line.get_color(), zorder=3)
    for axes in (speed, memory):
        low, high = axes.dataLim.intervaly
        if low > 0 and high > WIDE * low:
            axes.set_yscale("log")
    memory.axhline(100, color="0.6", linewidth=1)
    for axes, title in ((speed, "samples/s"), (memory, "fullest tile, % of its memory")):
        unit = UNITS.get(along, "")
        axes.set(title=title, xlabel=f"{along} ({unit})" if unit not in ("", along) else along)
        if axes.get_yscale() == "linear":
            axes.set_ylim(0, None)
        _scale(axes, [p[along] for p in points if along])
    if others:
        figure.legend(loc="outside lower center", ncols=3, frameon=False)
    title = heading(points, rows[0]) if rows else ""
    figure.suptitle(title)
    file = io.BytesIO()
    kind = "svg" if suffix == ".html" else suffix[1:]
    undated: Mapping[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    with matplotlib.rc_context({"svg.hashsalt": "abele"}):
        figure.savefig(file, format=kind, metadata=undated)
    if suffix != ".html":
        return file.getvalue()
    svg = file.getvalue().decode()
    return _PAGE.format(title=title, svg=svg[svg.index("<svg") :]).encode()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _scale(axes: Any, values: Sequence[Any]) -> None:
    """Values far apart are drawn evenly by their ratios; few values are all named."""
    known = sorted({v for v in values if _is_number(v)})
    if len(known) < len(set(values)) or not known:
        return
    if known[0] > 0 and known[-1] >= 8 * known[0]:
        axes.set_xscale("log", base=2)
    if len(known) <= 8:
        axes.set_xticks(known, [f"{v:g}" for v in known])
        axes.minorticks_off()

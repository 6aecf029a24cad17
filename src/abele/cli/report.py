"""``abele report``: what a report says, for people and scripts; the difference of two; a trace for other viewers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from abele.cli.common import TABLE, Json, console, print_json
from abele.errors import InvalidOption
from abele.report.files import write_file

if TYPE_CHECKING:
    from abele.report.store import Report

SHOWN = 20
"""Rows of differences on the console."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(report)


def report(
    file: Path = typer.Argument(metavar="FILE", help="A report: profile.pop, or the folder that --report named."),
    compare: Path | None = typer.Option(
        None, metavar="BASE", help="Say how FILE (b) differs from this report, the base (a)."
    ),
    program: int | None = typer.Option(None, min=0, help="The program of FILE, counted from 0 (default: all, or 0)."),
    base: int = typer.Option(0, min=0, help="The program of BASE, counted from 0."),
    table: str = typer.Option("", metavar="NAME", help="One table of a program, as JSON: operations, tensors …"),
    trace: Path | None = typer.Option(
        None, metavar="OUT.json", help="Write a trace in Chrome's format, for Perfetto or speedscope."
    ),
    json: bool = Json,
):
    """Say what a report holds: does it fit, how fast, where the time goes; the same answers as in `abele view`."""
    from abele.report.shown import report_file
    from abele.report.store import Report
    from abele.report.store.schema import TABLES

    given = {"--compare": compare is not None, "--table": bool(table), "--trace": trace is not None}
    if sum(given.values()) > 1:
        both = " and ".join(option for option, there in given.items() if there)
        raise InvalidOption(f"{both} are different questions", remedy="Ask one after another.")
    if base and compare is None:
        raise InvalidOption("--base is a program of the report that --compare names", remedy="Add --compare BASE.")
    with Report(report_file(file)) as opened:
        if compare is not None:
            with Report(report_file(compare)) as other:
                found = other.compare(base, program or 0, opened)
            print_json(found) if json else _show_difference(found)
        elif table:
            if table not in TABLES:
                raise InvalidOption(f"A report has no table {table!r}", remedy=f"Known: {', '.join(TABLES)}.")
            print_json(opened.table(table, program or 0).rows())
        elif trace is not None:
            _write_trace(opened, program or 0, trace, json)
        else:
            _answer(opened, program, json)


def _answer(opened: Report, program: int | None, json: bool) -> None:
    from abele.report.store.answers import document

    index = opened.index()
    wanted = [each["id"] for each in index["programs"]] if program is None else [program]
    documents = [document(opened, each) for each in wanted]
    if json:
        print_json({"index": index, "programs": documents})
        return
    if not documents:
        console().print("The report has no programs.")
    for each in documents:
        _show(each)


def _show(document: Mapping[str, Any]) -> None:
    """One program, as ``abele profile`` shows it."""
    from abele.cli.profile import show_fit
    from abele.report import summary
    from abele.report.console import seconds

    out = console()
    out.print(summary({**document, "ipus": document["ipus"] * document["replicas"]}))
    if band := document.get("band"):
        planner = document.get("planner")
        other = planner and planner != band.get("planner", planner)
        out.print(
            f"Such programs were off by {100 * band['median']:.0f}% in the median, and by more than "
            f"{100 * band['p90']:.0f}% in one of ten: {band['basis']}"
            + (f"; this one is of planner {planner}." if other else "."),
            markup=False,
            style="dim",
        )
    if wall := document.get("wall_seconds"):
        runs = document.get("runs") or 1
        out.print(f"run here: {seconds(wall)} of wall time a run, of {runs}: this computer's clock", markup=False)
    show_fit({name: value for name, value in document.items() if value or name not in ("advice", "explanation")})
    out.print()


def _show_difference(found: Mapping[str, Any]) -> None:
    from abele.report.console import many, printable, rate, seconds

    out = console()
    for side in ("a", "b"):
        about = found[side]
        text = f"{side}: {about['name']} on {about['system']}, {rate(about['throughput'])} samples/s"
        if about["samples"]:
            text += f", {many(about['samples'], 'sample')} in {seconds(about['seconds'])}"
        out.print(text, markup=False)
    if found["speedup"]:
        change = 100 * (found["speedup"] - 1)
        word, style = ("faster", "green") if change > 0 else ("slower", "red") if change < 0 else ("as fast", "")
        out.print(f"b is {word}: {change:+.1f}% samples/s", style=style, markup=False)
    digits, per = 0, "one device iteration"
    if found["per"] == "sample":
        digits, per = 1, "one sample"
        out.print(
            f"A device iteration has {many(found['a']['samples'], 'sample')} in a, {found['b']['samples']:,} in b: "
            "cycles below are those of one sample.",
            style="bold",
        )
    totals = Table(title=f"cycles of {per}, bytes of the fullest tile", **TABLE)
    changed = [row for row in found["operations"] if row["difference"]]
    operations = Table(title=f"{len(changed):,} operations differ (cycles of {per})", **TABLE)
    for table, rows, name in ((totals, found["totals"], "name"), (operations, changed[:SHOWN], "key")):
        table.add_column("" if name == "name" else "operation", overflow="fold")
        for column in ("a", "b", "difference"):
            table.add_column(column, justify="right", no_wrap=True)
        for row in rows:
            shown = 0 if table is totals and row["name"] == "tile bytes" else digits
            a, b = ("–" if row[side] is None else f"{row[side]:,.{shown}f}" for side in ("a", "b"))
            table.add_row(printable(row[name]), a, b, f"{row['difference']:+,.{shown}f}")
    out.print(totals)
    if changed:
        out.print(operations)
    if len(changed) > SHOWN:
        out.print(f"… {len(changed) - SHOWN:,} more; --json lists all")


def _write_trace(opened: Report, program: int, trace: Path, json: bool) -> None:
    from abele.report.trace import chrome_trace

    path = write_file(trace, "".join(chrome_trace(opened, program)), "--trace", [opened.path])
    if json:
        print_json({"trace": str(path), "bytes": path.stat().st_size})
    else:
        console().print(f"trace: {path}; https://ui.perfetto.dev and speedscope open it", markup=False)

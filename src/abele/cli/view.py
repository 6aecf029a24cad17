"""``abele view``: a report in the browser."""

from __future__ import annotations

import sys
import webbrowser
from json import dumps
from pathlib import Path

import typer

from abele.cli.common import Json, console, print_json, write_file
from abele.errors import InvalidOption


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(view)


def view(
    report: Path = typer.Argument(metavar="FILE", help="A report: profile.pop, or the folder that --report named."),
    compare: Path | None = typer.Option(None, help="Another report, to be held against this one."),
    save: Path | None = typer.Option(
        None, metavar="PAGE.html", help="Write the report as one file that any browser opens, and show nothing."
    ),
    redact: bool = typer.Option(False, "--redact-source", help="With --save: no text of sources, no names of files."),
    port: int = typer.Option(0, min=0, max=65535, help="Port on this computer; 0: one that is free."),
    browser: bool = typer.Option(True, "--browser/--no-browser", help="Open it in the browser."),
    json: bool = Json,
):
    """Show a report in the browser, until Ctrl-C. Only this computer is served, and no network is needed."""
    from abele.report.saved import saved_page
    from abele.report.server import Server
    from abele.report.shown import Shown

    if redact and save is None:
        raise InvalidOption("--redact-source is for pages that are saved", remedy="Add --save PAGE.html.")
    shown = Shown(report, *([compare] if compare is not None else []))
    if save is not None:
        page = write_file(save, saved_page(shown, redact=redact), "--save")
        size = page.stat().st_size
        if json:
            print_json({"page": str(page), "bytes": size})
        else:
            console().print(f"saved: {page} ({size / 2**20:.1f} MiB); any browser opens it", markup=False)
        return
    with Server(shown, port) as server:
        if json:
            sys.stdout.write(dumps({"url": server.url, "token": server.token, "port": server.port}) + "\n")
            sys.stdout.flush()
        else:
            opened = browser and webbrowser.open(server.url)
            what = "The report is open at" if opened else "Open in a browser:"
            console().print(f"{what} {server.url}\nCtrl-C ends this.", markup=False)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            if not json:
                console(stderr=True).print("Ended.")

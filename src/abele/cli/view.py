"""``abele view``: a report in the browser."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path

import typer

from abele.cli.common import Json, console


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(view)


def view(
    report: Path = typer.Argument(metavar="FILE", help="A report: profile.pop, or the folder that --report named."),
    compare: Path | None = typer.Option(None, help="Another report, to be held against this one."),
    port: int = typer.Option(0, min=0, max=65535, help="Port on this computer; 0: one that is free."),
    browser: bool = typer.Option(True, "--browser/--no-browser", help="Open it in the browser."),
    json: bool = Json,
):
    """Show a report in the browser, until Ctrl-C. Only this computer is served, and no network is needed."""
    import json as text

    from abele.report.server import Server
    from abele.report.shown import Shown

    with Server(Shown(report, *([compare] if compare is not None else [])), port) as server:
        if json:
            sys.stdout.write(text.dumps({"url": server.url, "token": server.token, "port": server.port}) + "\n")
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

"""``abele view``: a report in the browser."""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
import webbrowser
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

from abele.cli.common import Json, console, print_json
from abele.cli.live import NAME
from abele.errors import InvalidOption
from abele.events import check_events
from abele.report.files import write_file

if TYPE_CHECKING:
    from abele.report.live import FollowedRun
    from abele.report.server import Server


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(view)


def view(
    report: Path | None = typer.Argument(
        None, metavar="FILE", help="A report: profile.pop, or the folder that --report named."
    ),
    compare: Path | None = typer.Option(
        None, metavar="BASE", help="Another report, the base: the page Compare shows how FILE differs from it."
    ),
    save: Path | None = typer.Option(
        None, metavar="PAGE.html", help="Write the report as one file that any browser opens, and show nothing."
    ),
    redact: bool = typer.Option(False, "--redact-source", help="With --save: no text of sources, no names of files."),
    live: Path | None = typer.Option(
        None, help="Follow a run: the file that ABELE_LIVE names, or the folder of `abele run --live --report DIR`."
    ),
    port: int = typer.Option(0, min=0, max=65535, help="Port on this computer; 0: one that is free."),
    browser: bool = typer.Option(True, "--browser/--no-browser", help="Open it in the browser."),
    token_file: Path | None = typer.Option(
        None, help="Who has the token in this file is served, as a scraper of /metrics; it is made when there is none."
    ),
    linger: float | None = typer.Option(
        None, hidden=True, help="End so many seconds after the run that is followed, when nobody looks any more."
    ),
    json: bool = Json,
):
    """Show a report in the browser, until Ctrl-C. Only this computer is served, and no network is needed."""
    from abele.report.live import FollowedRun, ShownRun
    from abele.report.saved import saved_page
    from abele.report.server import Server
    from abele.report.shown import Shown, report_file

    if redact and save is None:
        raise InvalidOption("--redact-source is for pages that are saved", remedy="Add --save PAGE.html.")
    if save is not None and live is not None:
        raise InvalidOption("--save writes a report, and --live follows a run", remedy="Leave one of the two out.")
    if report is None and live is None:
        raise InvalidOption("There is nothing to show", remedy="Name a report, or a run with --live FILE.")
    reports = [path for path in (report, compare) if path is not None]
    if save is not None:
        page = write_file(save, saved_page(Shown(*reports), redact=redact), "--save", [*map(report_file, reports)])
        size = page.stat().st_size
        if json:
            print_json({"page": str(page), "bytes": size})
        else:
            console().print(f"saved: {page} ({size / 2**20:.1f} MiB); any browser opens it", markup=False)
        return
    run = None if live is None else FollowedRun(_events(live))
    source = Shown(*reports) if run is None else ShownRun(run, *reports)
    with Server(source, port, run, token=None if token_file is None else _token(token_file)) as server:
        if json:
            sys.stdout.write(dumps({"url": server.url, "token": server.token, "port": server.port}) + "\n")
            sys.stdout.flush()
        else:
            opened = browser and webbrowser.open(server.url)
            what = f"The {'report' if live is None else 'run'} is open at" if opened else "Open in a browser:"
            console().print(f"{what} {server.url}" + ("" if linger else "\nCtrl-C ends this."), markup=False)
        if run is not None and linger is not None:
            os.nice(10)  # the run comes first
            _release(sys.stdout, sys.stderr)
            threading.Thread(target=_wait, args=(run, linger, server), daemon=True).start()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            if not json:
                console(stderr=True).print("Ended.")


def _events(path: Path) -> Path:
    """The file of a run's events: ``path`` itself, or the one in this folder."""
    file = path / NAME if path.is_dir() else path
    check_events(file)
    return file


def _release(*streams: TextIO) -> None:
    """Let go of the streams of the run, which may be a pipe that somebody reads to its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        stream.flush()
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _wait(run: FollowedRun, seconds: float, server: Server) -> None:
    """End the server when the run has been over, and nobody has looked, for so long."""
    needed = time.monotonic() + seconds
    while time.monotonic() < needed:
        time.sleep(min(1.0, seconds / 4))
        if run.look().running or run.readers:
            needed = time.monotonic() + seconds
    server.shutdown()


def _token(file: Path) -> str:
    """The token in a file that others cannot read, made when it is not there."""
    try:
        try:
            with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as new:
                new.write(secrets.token_urlsafe(24))
        except FileExistsError:
            pass
        token = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOption(f"There is no token in {str(file)!r}: {error}", remedy="Name another file.") from error
    if len(token) < 16 or not token.isascii() or not token.isprintable():
        raise InvalidOption(
            f"What {str(file)!r} holds is no token",
            remedy="It must be at least 16 characters; without the file one is made.",
        )
    return token

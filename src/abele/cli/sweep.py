"""``abele sweep``: one model over every combination of fields of chip, system and program."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.markup import escape
from rich.table import Table

from abele.cli.common import TABLE, Json, Output, console, print_json, progress
from abele.machine.system import find_system
from abele.report.files import write_file
from abele.sweep import ENGINES, Point, Row, Sweep, combinations, each, parse
from abele.sweep.charge import default_cache
from abele.sweep.points import heading, shown, varied


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(sweep)


def sweep(
    model: str = typer.Argument(help="A zoo name (`abele zoo`), or file.py:function, as for `abele profile`."),
    settings: list[str] = typer.Option(
        ...,
        "--set",
        metavar="NAME=VALUE,VALUE",
        help="Values of a field of the chip or the system (`abele systems NAME` lists them) or of an option of the "
        "program (batch, half, replicas, accumulate, stages …). Given several times: every combination.",
    ),
    system: str = typer.Option("bow-2000", help="Machine to start from: a name (`abele systems`) or file.py:name."),
    train: bool = typer.Option(False, "--train", help="A training step (default: inference)."),
    small: bool = typer.Option(False, "--small", help="The zoo model's tiny configuration."),
    output: str = Output,
    out: Path | None = typer.Option(None, help="Parquet file for the rows; what is in it already is not done again."),
    plot: Path | None = typer.Option(None, help="Picture of the sweep: .svg, .png, .pdf or .html."),
    jobs: int = typer.Option(0, min=0, help="Processes; 0 for one on each core."),
    engine: str = typer.Option("local", help=f"Where points are computed: {', '.join(ENGINES)}."),
    cache: bool = typer.Option(True, "--cache/--no-cache", help="Use the cache of executables on disk."),
    as_json: bool = Json,
):
    """Compile and charge a model for every combination of values; to a table, a Parquet file and a plot."""
    from abele.engine.threads import available
    from abele.sweep import plot as drawing
    from abele.sweep import table

    points = combinations(parse(settings))
    find_system(system)
    if plot is not None:
        drawing.check(plot)
    known = [] if out is None else table.read_rows(out)
    work = Sweep(model, system, train, small, default_cache() if cache else None, output)
    rows: dict[int, Row] = {}
    try:
        with progress(as_json) as tell:
            work.capture(points, tell)
            stored = {row["key"]: row for row in known if row["key"]}
            keys = [work.key(point) for point in points]
            rows = {i: stored[key] | dict(points[i]) for i, key in enumerate(keys) if key in stored}
            left = [i for i in range(len(points)) if i not in rows]
            tell(model, f"{len(rows)} of {len(points)} points")
            written = time.monotonic()
            results = each(engine, work, [points[i] for i in left], jobs or available())
            for place, row in results:
                rows[left[place]] = row
                tell(model, f"{len(rows)} of {len(points)} points")
                if out is not None and time.monotonic() - written > _SECONDS_BETWEEN_WRITES:
                    _keep(out, known, rows)
                    written = time.monotonic()
    finally:
        if out is not None and rows:
            _keep(out, known, rows)
        done = [rows[i] for i in sorted(rows)]
        if 0 < len(done) < len(points):
            again = "; the same command goes on from there" if out is not None else ""
            console(stderr=True).print(f"{len(done)} of {len(points)} points are done{again}.")
        if plot is not None and done:
            picture = drawing.picture([points[i] for i in sorted(rows)], done, plot.suffix.lower())
            write_file(plot, picture, "--plot")
        if as_json and done:
            print_json(done)
        elif done:
            show(points, done)
            files = [f"{what}: {path}" for what, path in (("rows", out), ("plot", plot)) if path is not None]
            if files:
                console().print(", ".join(files), markup=False)


_SECONDS_BETWEEN_WRITES = 30.0


def _keep(out: Path, known: Sequence[Row], rows: dict[int, Row]) -> None:
    """Write what the file had and what is new; a point that was done again takes the place of what it was."""
    from abele.sweep import table

    done = [rows[i] for i in sorted(rows)]
    keys = {row["key"] for row in done}
    kept = [row for row in known if row["key"] and row["key"] not in keys]
    write_file(out, table.contents([*kept, *done]), "--out")


def show(points: Sequence[Point], rows: Sequence[Row]) -> None:
    """Print the rows for people, and the fastest that fits."""
    from abele.report.console import rate, seconds, size

    names = varied(points) or list(points[0])
    table = Table(title=escape(heading(points, rows[0])), **TABLE)
    for name in names:
        table.add_column(name, justify="right", overflow="fold")
    for name in ("time", "throughput", "energy/sample", "fullest tile", "bound by"):
        table.add_column(name, justify="right")
    for row in rows:
        fields = [shown(row[name]) for name in names]
        if row["error"]:
            table.add_row(*fields, "error")
            continue
        memory = f"{size(row['memory_max'])}{'' if row['fits'] else ' of ' + size(row['memory_limit']) + '!'}"
        energy = f"{row['joules_per_sample']:.3g} J"
        table.add_row(*fields, seconds(row["seconds"]), f"{rate(row['throughput'])}/s", energy, memory, row["bound"])
    out = console()
    out.print(table)
    for row in rows:
        if row["error"]:
            out.print(f"{', '.join(f'{name} {shown(row[name])}' for name in names)}: {row['error']}", markup=False)
    fitting = [row for row in rows if row["fits"]]
    if fitting:
        best = max(fitting, key=lambda row: row["throughput"])
        where = ", ".join(f"{name} {shown(best[name])}" for name in names)
        out.print(f"fastest that fits: {where}, {rate(best['throughput'])} samples/s", markup=False)
    if any(row["fits"] is False for row in rows):
        out.print("! does not fit the tiles; the figures are those of a machine with room for it")

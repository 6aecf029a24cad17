"""``abele validate`` and ``abele vertices``: how true the model is, row by row, and what its cycles rest on."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Column, Table

from abele.cli.common import TABLE, Json, console, print_json, progress
from abele.errors import InvalidOption, suggest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from abele.cost.validate import Ratio, RatioSummary, Row, Summary


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(validate)
    app.command()(vertices)


def validate(
    cases: list[Path] = typer.Option([], "--cases", help="A CSV file of cases (docs/validation.md); may be repeated."),
    family: list[str] = typer.Option([], "--family", help="Only this family of cases; may be repeated."),
    match: str = typer.Option("", help="Only cases whose id contains this text."),
    strict: bool = typer.Option(False, "--strict", help="Exit status 1 when a case failed."),
    cache: bool = typer.Option(True, "--cache/--no-cache", help="Use the cache of executables on disk."),
    json: bool = Json,
):
    """Compile published measurements' cases for their machines and print prediction, publication and error of each."""
    from abele.compile.cache import Cache
    from abele.cost.validate import builtin_cases, ratios, read_cases, summarise, summarise_ratios
    from abele.cost.validate import validate as run

    chosen = [case for path in cases for case in read_cases(path)] if cases else builtin_cases()
    known = list(dict.fromkeys(case.family for case in chosen))
    for name in family:
        if name not in known:
            raise InvalidOption(f"No case has the family {name!r}", remedy=suggest(name, known))
    chosen = [c for c in chosen if (not family or c.family in family) and match in c.id]
    with progress(json) as tell:
        rows = run(chosen, cache=Cache() if cache else None, tell=tell)
    summary, pairs = summarise(rows), ratios(rows)
    lines = summarise_ratios(pairs)
    failed = sum(row.status == "failed" for row in rows)
    if json:
        print_json(
            {
                "rows": [r.to_json() for r in rows],
                "families": [s.to_json() for s in summary],
                "ratios": [r.to_json() for r in pairs],
                "ratio_summaries": [line.to_json() for line in lines],
            }
        )
    else:
        _show(rows, summary)
        if pairs:
            _show_ratios(pairs, lines)
    if strict and failed:
        raise typer.Exit(1)


def _show(rows: Sequence[Row], summary: Sequence[Summary]) -> None:
    out = console()
    for name in dict.fromkeys(row.case.family for row in rows):
        out.print(_family(name, [r for r in rows if r.case.family == name and r.status == "predicted"]))
    missing = [r for r in rows if r.status != "predicted"]
    if missing:
        table = Table(Column("case", no_wrap=True), "status", "why", title="Not predicted", **TABLE)
        for row in missing:
            table.add_row(row.case.id, row.status, row.reason)
        out.print(table)
    table = Table(title="Errors by family, in percent", **TABLE)
    table.add_column("family", no_wrap=True)
    table.add_column("rows", no_wrap=True)
    for name in ("n", "median", "p90", "bias", "noise"):
        table.add_column(name, justify="right")
    for s in summary:
        count = f"{s.predicted} of {s.rows}"
        table.add_row(s.family, s.group, count, _one(s.median), _one(s.p90), _one(s.bias, "+"), _one(s.noise))
    out.print(table)
    out.print(
        "known: configuration known and time bound by the device; other: the rest. error: predicted / published − 1. "
        "bias: median, plus means that the model is faster than the machine. noise: what the sources state. "
        "* after a case: guessed configuration; h: bound by the host, or not said; ! does not fit the tiles.",
        markup=False,
    )


def _show_ratios(pairs: Sequence[Ratio], lines: Sequence[RatioSummary]) -> None:
    """Pairs of cases that differ only in system or size."""
    out = console()
    table = Table(title="Ratios: another system, or more IPUs", **TABLE)
    table.add_column("cases", overflow="fold")
    table.add_column("what", overflow="fold")
    for column in ("predicted", "published", "error %"):
        table.add_column(column, justify="right", no_wrap=True)
    for r in pairs:
        over, under = r.over.case, r.under.case
        what = f"{over.model}: {over.system} over {under.system}"
        if over.system == under.system:
            what += f", {over.ipus} IPUs over {under.ipus}"
        table.add_row(f"{over.id} / {under.id}", what, f"{r.predicted:.3f}", f"{r.published:.3f}", _one(r.error, "+"))
    out.print(table)
    for line in lines:
        out.print(
            f"ratios of {line.kind}: {line.ratios}, median error {line.median:.1f} %, largest {line.largest:.1f} %",
            markup=False,
        )


def _family(name: str, rows: Sequence[Row]) -> Table:
    table = Table(title=name, **TABLE)
    table.add_column("case", no_wrap=True)
    table.add_column("what")
    for column in ("predicted", "published", "unit", "error %", "noise %"):
        table.add_column(column, justify="left" if column == "unit" else "right", no_wrap=True)
    for row in rows:
        case = row.case
        marks = "*" * (case.configuration == "guessed") + "h" * (case.bound != "device")
        marks += "!" * (row.outcome is not None and row.outcome.fits is False)
        table.add_row(
            f"{case.id} {marks}".rstrip(),
            describe(row),
            *_in_unit(row.predicted or 0.0, case.value, case.unit),
            _one(row.error, "+"),
            _one(case.noise or None),
        )
    return table


_TIMES = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))


def _in_unit(predicted: float, published: float, unit: str) -> tuple[str, str, str]:
    """Both values and their unit; a time is in that of which the published one is at least 1."""
    from abele.cost.validate.cases import UNITS

    quantity, scale = UNITS[unit]
    if quantity == "seconds" and unit != "min":
        unit, size = next((u for u in _TIMES if published / scale >= u[1]), _TIMES[-1])
        predicted, published = predicted / scale / size, published / scale / size
    return f"{predicted:,.5g}", f"{published:,.5g}", unit


def describe(row: Row) -> str:
    """A case in a few words."""
    case = row.case
    words = [case.model, case.system]
    words += [f"{case.ipus} IPUs"] if case.ipus > 1 else []
    words += [case.dtype + (f".{case.partials}" if case.partials else "")]
    if case.family in ("inference", "training"):
        words += [f"batch {case.micro_batch}"]
        words += [f"× {case.accumulation}"] if case.accumulation > 1 else []
        words += [f"× {case.replicas} replicas"] if case.replicas > 1 else []
        words += [f"seq {case.sequence_length}"] if case.sequence_length else []
    else:
        keys = ("field", "n", "in_chans", "out_chans", "channels", "kernel", "m", "k", "image", "grid")
        words += [f"{key} {case.options[key]}" for key in keys if key in case.options]
    return " ".join(words)


def _one(value: float | None, sign: str = "") -> str:
    return "–" if value is None else format(value, f"{sign},.1f")


_EXAMPLES: dict[str, Any] = {
    "n": 1024,
    "field": 96,
    "row": 14,
    "in_chans": 64,
    "out_chans": 64,
    "channels": 16,
    "kernel": 9,
    "outputs": 64,
    "depth": 32,
    "rows": 16,
    "cols": 64,
    "row_elements": 64,
    "width": 64,
    "loads": 5,
    "k": 16,
    "stats": 16,
    "steps": 64,
    "places": 32,
    "candidates": 64,
    "bytes": 4096,
    "ops": "add",
    "kind": "relu",
    "source": "f32",
    "to": "f16",
    "flops": 2000,
    "columns": 16,
}
"""Fields of the example of each vertex, where the vertex has no default of its own."""


def vertices(system: str = typer.Option("bow", help="Machine whose cycles the examples are for."), json: bool = Json):
    """List every vertex whose cycles are modelled: fields, source, confidence, and an example. Guesses say so."""
    from abele.machine.cycles import ESTIMATES
    from abele.machine.system import find_system

    chip = find_system(system).chip
    rows = []
    for name, estimate in sorted((dict(ESTIMATES) | dict(_own(chip))).items()):
        parameters = [p for p in inspect.signature(estimate.function).parameters.values() if p.name != "chip"]
        needed = [p.name for p in parameters if p.default is inspect.Parameter.empty]
        example = {name: _EXAMPLES[name] for name in needed if name in _EXAMPLES}
        complete = len(example) == len(needed)
        rows.append(
            {
                "vertex": name,
                "fields": [p.name if p.name in needed else f"{p.name}={p.default}" for p in parameters],
                "source": estimate.source,
                "confidence": estimate.confidence,
                "guess": estimate.confidence == "assumed",
                "code_bytes": estimate.code_bytes,
                "example": example,
                "cycles": float(chip.estimate(name, **example)) if complete else None,
            }
        )
    if json:
        print_json(rows)
        return
    table = Table(title=f"Vertices, cycles on a tile of {chip.name}", **TABLE)
    for column in ("vertex", "example", "cycles", "confidence", "source"):
        justify = "right" if column == "cycles" else "left"
        table.add_column(column, no_wrap=column == "vertex", justify=justify, overflow="fold")
    for row in rows:
        given = ", ".join(f"{k} {v}" for k, v in row["example"].items())
        confidence = "assumed: a guess" if row["guess"] else row["confidence"]
        cycles = "–" if row["cycles"] is None else f"{row['cycles']:,.0f}"
        table.add_row(row["vertex"], given, cycles, confidence, row["source"])
    console().print(table)
    console().print("--json has all fields of each vertex, with their defaults.")


def _own(chip: Any) -> dict[str, Any]:
    """The chip's own estimates, as records like the common ones."""
    from abele.machine.cycles import Estimate

    return {
        name: cost if isinstance(cost, Estimate) else Estimate(name, cost, f"the chip {chip.name}", "assumed")
        for name, cost in chip.vertex_costs.items()
    }

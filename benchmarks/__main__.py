"""``python -m benchmarks [NAME ...]``: runs the benchmarks and prints a Markdown table for each group."""

from __future__ import annotations

import importlib.metadata
import json as json_text
import os
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.base import Row, Settings
from benchmarks.runner import chosen, modules, run_module

PACKAGES = ("abele", "torch", "numpy", "llvmlite", "transformers")


def host() -> dict[str, Any]:
    """This computer and the versions of what is measured."""
    cpu = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                cpu = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": cpu,
        "cores": cores,
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": versions,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help="Parts of module.name, such as `compile.bert` or `engine`; none: all.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Also write everything to this file.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each measurement.")] = 7,
    quick: Annotated[bool, typer.Option("--quick", help="A smaller set in fewer rounds.")] = False,
    names_only: Annotated[bool, typer.Option("--list", help="Only list the benchmarks.")] = False,
) -> None:
    """Measure what Abele must reach."""
    settings = Settings(min(rounds, 3) if quick else rounds, quick)
    if names_only:
        for module in modules():
            for benchmark in chosen(module, names or (), settings):
                typer.echo(f"{module}.{benchmark.name}")
        return
    machine = host()
    typer.echo(introduction(machine, settings))
    groups: dict[str, list[dict[str, Any]]] = {}
    for module in modules():
        for group, name, rows in run_module(module, names or (), settings, _tell):
            if group not in groups:
                groups[group] = []
            groups[group] += [{"benchmark": f"{module}.{name}", **row} for row in rows]
    for group, rows in groups.items():
        typer.echo(f"\n## {group}\n\n{table(rows)}")
    if not groups:
        typer.echo(f"No benchmark is called {' or '.join(names or ['anything'])}; see --list.", err=True)
        raise typer.Exit(2)
    if json is not None:
        json.parent.mkdir(parents=True, exist_ok=True)
        document = {"host": machine, "rounds": settings.rounds, "quick": quick, "groups": groups}
        json.write_text(json_text.dumps(document, indent=1) + "\n")
    failed = [r["benchmark"] for rows in groups.values() for r in rows if "error" in r]
    if failed:
        typer.echo(f"\nThese ended in an error: {', '.join(failed)}", err=True)
        raise typer.Exit(1)


def _tell(name: str) -> None:
    typer.echo(name, err=True)


def introduction(machine: dict[str, Any], settings: Settings) -> str:
    """What is measured, where and with which versions."""
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items())
    return (
        f"# Benchmarks\n\n{machine['cpu']}, {machine['cores']} cores, load {machine['load']:.1f}, {machine['system']}; "
        f"Python {machine['python']}, {versions}; {machine['time']}.\n"
        f"CPU time; medians of {settings.rounds} rounds that take turns."
    )


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table; a row that failed shows its error in its last column."""
    columns = list(dict.fromkeys(c for row in rows for c in row if c not in ("benchmark", "error")))
    if any("error" in row for row in rows):
        columns = columns or ["benchmark"]
        columns.append("error")
    lines = [f"| {' | '.join(columns)} |", f"|{'|'.join('---' for _ in columns)}|"]
    for row in rows:
        cells = [_cell(row.get(c, "")) for c in columns]
        if "error" in row:
            cells[0] = cells[0] or row["benchmark"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value).splitlines()[0].replace("|", "/") if str(value) else ""


if __name__ == "__main__":
    sys.exit(typer.run(main))

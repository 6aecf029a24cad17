"""``python -m benchmarks [NAME ...]``: runs the benchmarks and prints a Markdown table for each group.

Each module runs in a process of its own, so that none inherits the memory, the threads or the memo tables of another.
"""

from __future__ import annotations

import fnmatch
import importlib
import importlib.metadata
import json as json_text
import multiprocessing
import os
import pkgutil
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

import benchmarks
from benchmarks.base import Benchmark, Row, Settings

PACKAGES = ("abele", "torch", "numpy", "llvmlite", "transformers")


def modules() -> list[str]:
    """The modules of this folder that may hold benchmarks."""
    found = (m.name for m in pkgutil.iter_modules(benchmarks.__path__))
    return sorted(n for n in found if not n.startswith("_") and n != "base")


def chosen(module: str, names: Sequence[str], settings: Settings) -> list[Benchmark]:
    """The benchmarks of a module that the names choose; ``*`` stands for anything."""
    listed = getattr(importlib.import_module(f"benchmarks.{module}"), "benchmarks", None)
    found: list[Benchmark] = listed() if listed is not None else []
    if names:
        return [b for b in found if any(fnmatch.fnmatch(f"{module}.{b.name}", f"*{n}*") for n in names)]
    return [b for b in found if b.quick or not settings.quick]


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
    names: list[str] = typer.Argument(None, help="Parts of module.name, such as `compile` or `engine_mlp`; none: all."),
    json: Path | None = typer.Option(None, help="Also write everything to this file."),
    rounds: int = typer.Option(7, min=1, help="Rounds of each measurement."),
    quick: bool = typer.Option(False, help="A smaller set in fewer rounds, to see that everything runs."),
    names_only: bool = typer.Option(False, "--list", help="Only list the benchmarks."),
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
        for group, name, rows in _run_module(module, names or (), settings):
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


def _run_module(module: str, names: Sequence[str], settings: Settings):
    """The results of one module, ``(group, name, rows)`` each. A process that dies costs one benchmark."""
    context = multiprocessing.get_context("spawn")
    skip = 0
    while True:
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_serve, args=(there, module, names, settings, skip))
        process.start()
        there.close()
        current = None
        try:
            while True:
                message = here.recv()
                if message is None:
                    break
                kind, *content = message
                if kind == "begin":
                    current = content
                    typer.echo(f"{module}.{content[1]} ...", err=True)
                    continue
                skip, current = skip + 1, None
                yield tuple(content)
        except EOFError:
            process.join()
            error = f"the process died with status {process.exitcode}"
            group, name = current or (f"Module {module}", "import")
            yield group, name, [{"error": error}]
            if current is None:
                return
            skip += 1
            continue
        finally:
            here.close()
        process.join()
        return


def _serve(there: Any, module: str, names: Sequence[str], settings: Settings, skip: int) -> None:
    for benchmark in chosen(module, names, settings)[skip:]:
        there.send(("begin", benchmark.group, benchmark.name))
        try:
            rows = [dict(row) for row in benchmark.run(settings)]
        except Exception as error:
            rows = [{"error": f"{type(error).__name__}: {error}"}]
        there.send(("done", benchmark.group, benchmark.name, rows))
    there.send(None)


if __name__ == "__main__":
    sys.exit(typer.run(main))

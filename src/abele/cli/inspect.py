"""Commands that show what there is: systems, models, passes, graphs, and whether the installation is sound."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
from dataclasses import fields
from pathlib import Path

import typer
from rich.table import Column, Table

from abele.cli.common import TABLE, Json, console, print_json
from abele.errors import InvalidOption, suggest


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(systems)
    app.command()(zoo)
    app.command()(passes)
    app.command()(opt)
    app.command()(doctor)


def systems(
    name: str = typer.Argument("", help="Show every constant of this one, with its source."), json: bool = Json
):
    """List the machines, or all constants of one of them with source and confidence."""
    from abele.machine.system import find_system, list_systems

    if name:
        system = find_system(name)
        constants = {f"chip.{k}": c for k, c in system.chip.constants.items()} | dict(system.constants)
        if json:
            print_json(
                {"name": system.name, "chip": system.chip.name, "ipus": system.ipus}
                | {"constants": {k: {f.name: getattr(c, f.name) for f in fields(c)} for k, c in constants.items()}}
            )
            return
        table = Table(title=f"{system.name} (IPUs: {system.ipus}, machines: {system.machines})", **TABLE)
        table.add_column("constant", min_width=29, overflow="fold")
        table.add_column("value", max_width=18)
        table.add_column("confidence: source", overflow="fold")
        for key, c in constants.items():
            source = c.source if c.source.startswith(c.confidence) else f"{c.confidence}: {c.source}"
            table.add_row(key, f"{c.value:g} {c.unit}", source)
        console().print(table)
        return
    rows = [
        {
            "name": s.name,
            "chip": s.chip.name,
            "ipus": s.ipus,
            "tiles": s.tiles,
            "clock_hz": s.chip.clock_hz,
            "tile_memory_bytes": s.memory(),
            "peak_half_flops": s.peak_flops("f16"),
            "peak_float_flops": s.peak_flops("f32"),
            "watts": s.watts,
        }
        for s in list_systems()
    ]
    if json:
        print_json(rows)
        return
    names = Column("system", no_wrap=True), Column("chip", no_wrap=True)
    table = Table(*names, **TABLE)
    for name in ("IPUs", "tiles", "GHz", "GiB", "half\nPFLOPS", "float\nPFLOPS", "kW"):
        table.add_column(name, justify="right", no_wrap=True)
    for r in rows:
        scaled = {
            "tile_memory_bytes": 2**30,
            "peak_half_flops": 1e15,
            "peak_float_flops": 1e15,
            "watts": 1e3,
        }
        figures = (_figure(r[name] / unit) for name, unit in scaled.items())
        table.add_row(r["name"], r["chip"], str(r["ipus"]), str(r["tiles"]), f"{r['clock_hz'] / 1e9:.3f}", *figures)
    console().print(table)
    console().print("Your own: `file.py:name` of a System or a Chip (docs/add_a_chip.md).", markup=False)


def _figure(value: float) -> str:
    """Two digits behind the point, or from 100 on none."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def zoo(json: bool = Json):
    """List the models that come with Abele."""
    from abele.zoo import ZOO

    rows = [{"name": m.name, "description": m.description} for m in ZOO.values()]
    if json:
        print_json(rows)
        return
    table = Table(Column("model", no_wrap=True), "what it is", **TABLE)
    for r in rows:
        table.add_row(r["name"], r["description"])
    console().print(table)


def passes(train: bool = typer.Option(False, "--train", help="Show the order for training."), json: bool = Json):
    """List the compiler's passes in the order in which they run, with what each does."""
    from abele.compile.passes.update import Optimiser
    from abele.compile.pipelines import CompileOptions, passes_for
    from abele.machine.system import find_system

    optimiser = Optimiser("sgd", ((),)) if train else None
    options = CompileOptions(
        find_system("bow-2000"), replicas=2, accumulation=2, stages=2, split=True, optimiser=optimiser
    )
    rows = []
    for p in passes_for(options):
        module = importlib.import_module(type(p).__module__)
        rows.append({"name": p.name, "what": (module.__doc__ or "").strip().splitlines()[0].replace("``", "")})
    if json:
        print_json(rows)
        return
    table = Table("", Column("pass", no_wrap=True), "what it does", **TABLE)
    for i, r in enumerate(rows):
        table.add_row(str(i + 1), r["name"], r["what"])
    console().print(table)


def opt(
    model: str = typer.Argument(
        help="A zoo name, file.py:function (of the batch size), or a file with a graph in text form."
    ),
    after: str = typer.Option(
        "", help="Print the graph after this pass (default: after the last; `capture`: before all)."
    ),
    train: bool = typer.Option(False, "--train", help="Compile for training."),
    batch: int = typer.Option(1, min=1, help="Micro-batch size."),
    half: bool = typer.Option(False, "--half", help="Half precision."),
    system: str = typer.Option("bow-2000", help="Machine to compile for."),
    small: bool = typer.Option(False, "--small", help="The model's tiny configuration."),
    json: bool = Json,
):
    """Print the graph as it stands after any pass, or the schedule (`--after lower`)."""
    from abele.compile.executable import compile_graph
    from abele.compile.pipelines import passes_for
    from abele.programs import compile_options, load
    from abele.schedule.text import print_schedule

    loaded = load(model, batch=batch, train=train, half=half, small=small)
    options = compile_options(loaded, system=system)
    names = ["capture", *(p.name for p in passes_for(options)), "lower"]
    wanted = after or names[-2]
    if wanted not in names:
        raise InvalidOption(f"There is no pass {wanted!r} in this order", remedy=suggest(wanted, names))
    seen = {"capture": str(loaded.graph)}
    executable = compile_graph(loaded.graph, options, watch=lambda name, graph: seen.update({name: str(graph)}))
    text = print_schedule(executable.schedule) if wanted == "lower" else seen[wanted]
    if json:
        print_json({"model": model, "after": wanted, "passes": names, "text": text})
    else:
        print(text)


def doctor(json: bool = Json):
    """Check the installation: versions, the host's vector units, kernel providers, the cache."""
    from abele.codegen import host
    from abele.compile.cache import default_directory

    def version(name: str) -> str | None:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return None

    here = host()
    directory = default_directory()
    entries = list(directory.glob("*/*.abele")) if directory.is_dir() else []
    found = {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "host": {f.name: getattr(here, f.name) for f in fields(here) if f.name != "features"},
        "versions": {n: version(n) for n in ("abele", "numpy", "llvmlite", "torch", "transformers", "scikit-learn")},
        "providers": {"llvm": True, "numpy": True, "onednn": version("torch") is not None},
        "cache": {
            "directory": str(directory),
            "entries": len(entries),
            "bytes": sum(e.stat().st_size for e in entries),
        },
        "cache_writable": _writable(directory),
    }
    if json:
        print_json(found)
        return
    table = Table(show_header=False, **TABLE)
    for key, value in found.items():
        shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
        table.add_row(key, shown)
    console().print(table)
    if not found["providers"]["onednn"]:
        console().print("Without torch there is no importer and no oneDNN: pip install 'abele[torch]'.", markup=False)


def _writable(directory: Path) -> bool:
    existing = next(p for p in (directory, *directory.parents) if p.exists())
    return os.access(existing, os.W_OK)

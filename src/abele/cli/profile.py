"""``abele profile``: compile a model for a machine, charge it, and run it here too when asked."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from abele import programs
from abele.cli.common import Json, console, print_json, progress, reported
from abele.errors import InvalidOption

if TYPE_CHECKING:
    from abele.cost import Profile


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(profile)


def profile(
    model: str = typer.Argument(help="A zoo name (`abele zoo`), or file.py:function returning (module, inputs)."),
    train: bool = typer.Option(False, "--train", help="Profile a training step (default: inference)."),
    batch: int = typer.Option(1, min=1, help="Samples in a micro-batch."),
    half: bool = typer.Option(False, "--half", help="Half precision weights and activations."),
    accumulate: int = typer.Option(
        1, min=1, help="Micro-batches in a training step (turns, in a pipelined inference)."
    ),
    replicas: int = typer.Option(1, min=1, help="Copies side by side on different data."),
    stages: int = typer.Option(1, min=1, help="Pipeline stages; the compiler cuts the model."),
    system: str = typer.Option("bow-2000", help="Machine: a name (`abele systems`) or file.py:name."),
    optimizer: str = typer.Option("sgd", help="sgd, adam, adamw, rmsprop or lamb."),
    recompute: str = typer.Option("checkpoints", help="none, checkpoints or layers."),
    offload: bool = typer.Option(False, "--offload", help="Keep the optimizer's state in streaming memory."),
    run: int = typer.Option(0, min=0, help="Also run this many real steps on this computer."),
    small: bool = typer.Option(False, "--small", help="The zoo model's tiny configuration."),
    cache: bool = typer.Option(True, "--cache/--no-cache", help="Use the cache of executables on disk."),
    report: Path | None = typer.Option(None, help="Folder for report.html and profile.json."),
    json: bool = Json,
):
    """Say what a model costs on a machine: does it fit, how fast, where the time goes."""
    settings = {
        "batch": batch,
        "train": train,
        "half": half,
        "accumulate": accumulate,
        "replicas": replicas,
        "stages": stages,
        "optimizer": optimizer,
        "recompute": recompute,
        "offload": offload,
        "small": small,
    }
    if stages > 1 and accumulate == 1:
        settings["accumulate"] = 2 * stages
    with progress(json) as tell:
        document, program = _profiled(model, system, settings, weights=run > 0, cache=cache, tell=tell)
        if run:
            document |= _measured(program, run, tell, cache)
        if not document["tile_memory"]["fits"]:
            from abele.cost import explain

            def attempt(**changes: Any) -> Profile:
                return _profiled(model, system, settings | changes, weights=False, cache=cache, tell=tell)[1]["profile"]

            document["explanation"] = explain(program["profile"]).to_json()
            document["levers"] = _levers(settings, program["compiled"], attempt)
    with reported(report, [document]) as page:
        if page is not None:
            document["report"] = str(page)
        if json:
            print_json(document)
        else:
            show(document)


def _levers(settings: Mapping[str, Any], compiled: Any, attempt: Any) -> list[dict[str, Any]]:
    """What would help: smaller micro-batches and half precision, which capture again, and other options."""
    from abele.cost.levers import candidates, pull

    batch = settings["batch"]
    sizes = [batch // divisor for divisor in (2, 4, 8) if batch >= divisor]
    changes = [(f"micro-batch {n} instead of {batch}", {"batch": n}) for n in sizes]
    if not settings["half"]:
        changes.append(("half precision", {"half": True}))
    again = [(change, changed, partial(attempt, **changed)) for change, changed in changes]
    return [lever.to_json() for lever in pull([*again, *candidates(compiled.graph, compiled.options, batch)])]


def show(document: Mapping[str, Any]) -> None:
    """Print one profile for people."""
    from abele.report import summary

    out = console()
    out.print(summary(document))
    if document["stages"] > 1:
        turns = document["accumulation"]
        out.print(f"{document['stages']} pipeline stages, {turns} micro-batches in a step", markup=False)
    how = "from the cache" if document["cached"] else f"{document['compile_seconds']:.2f} s of CPU"
    out.print(f"compiled {how}; captured in {document['capture_seconds']:.2f} s", markup=False)
    if "wall_seconds" in document:
        out.print(
            f"run here: {document['wall_seconds'] * 1e3:.2f} ms of wall time a run "
            f"({document['cpu_seconds'] * 1e3:.2f} ms of CPU), median of {document['runs']}; "
            "this is this computer's clock, the figures above are the modelled machine's",
            markup=False,
        )
    show_fit(document)
    if "report" in document:
        out.print(f"report: {document['report']}", markup=False)


def show_fit(document: Mapping[str, Any]) -> None:
    """Why a program does not fit, and what would help; nothing when it fits."""
    from abele.report.console import size

    if "explanation" not in document:
        return
    out = console()
    out.print(document["explanation"]["text"], markup=False)
    out.print("What would help (each was compiled):")
    for lever in document["levers"]:
        figures = lever.get("error")
        if not figures:
            verdict = "fits" if lever["fits"] else "does not fit"
            figures = f"fullest tile {size(lever['max'])}, {verdict}, {lever['throughput']:,.1f} samples/s"
        out.print(f"  {lever['change']}: {figures}", markup=False)


def _profiled(
    model: str, system: str, settings: Mapping[str, Any], *, weights: bool, cache: bool, tell: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Capture, compile and charge; returns the document and what running needs."""
    from abele.compile.cache import Cache
    from abele.compile.session import Session, opened
    from abele.cost import cost
    from abele.machine.system import find_system

    s = settings
    tell(model, "capture")
    loaded = programs.load(model, batch=s["batch"], train=s["train"], half=s["half"], small=s["small"], weights=weights)
    options = programs.compile_options(
        loaded,
        system=system,
        replicas=s["replicas"],
        accumulate=s["accumulate"],
        stages=s["stages"],
        optimizer=s["optimizer"],
        recompute=s["recompute"],
        offload=s["offload"],
    )
    samples = loaded.batch * s["accumulate"] * s["replicas"]
    session = Session(find_system(system), Cache() if cache else None, tell)
    with opened(session):
        compiled = session.compile(model, loaded.graph, options, samples=samples)
    charged = cost(compiled.executable.schedule, options.system, samples=samples)
    document = charged.to_json() | {
        "model": model,
        "mode": "training" if s["train"] else "inference",
        "batch": loaded.batch,
        "accumulation": s["accumulate"],
        "stages": s["stages"],
        "half": s["half"],
        "compile_seconds": compiled.executable.compile_seconds,
        "capture_seconds": loaded.capture_seconds,
        "cached": compiled.executable.cached,
        "passes": [
            {"name": r.name, "before": r.before, "after": r.after, "seconds": r.seconds}
            for r in compiled.executable.passes
        ],
    }
    return document, {"profile": charged, "loaded": loaded, "compiled": compiled}


def _measured(program: Mapping[str, Any], runs: int, tell: Any, cache: bool) -> dict[str, Any]:
    """Run the program for real; wall and CPU seconds of a run (medians)."""
    import numpy as np

    from abele.compile.cache import Cache
    from abele.engine.engine import Engine

    loaded, compiled = program["loaded"], program["compiled"]
    if not loaded.inputs:
        raise InvalidOption(f"{loaded.name!r} has no data to run on", remedy="Give a zoo model or file.py:function.")
    engine = Engine(compiled.executable.schedule, cache=Cache().native if cache else None)
    for name, value in loaded.state.items():
        engine.write(name, value)
    for name in engine.states:
        if name.startswith("learning_rate"):
            engine.write(name, np.array(0.01, np.float32))
    turns, replicas = compiled.options.accumulation, compiled.options.replicas
    streams = {n: np.broadcast_to(a, (turns, replicas, *a.shape)) for n, a in loaded.inputs.items()}
    wall, cpu = [], []
    engine.run(streams)  # the first run also packs weights
    for i in range(runs):
        tell(loaded.name, f"run {i + 1} of {runs}")
        started, used = time.perf_counter(), time.process_time()
        engine.run(streams)
        wall.append(time.perf_counter() - started)
        cpu.append(time.process_time() - used)
    return {
        "runs": runs,
        "wall_seconds": statistics.median(wall),
        "cpu_seconds": statistics.median(cpu),
        "providers": engine.report(),
    }

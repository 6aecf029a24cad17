"""``abele tune``: search for the best settings of a model on a machine, and write them down."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from abele.cli.common import TABLE, Json, Output, Planner, console, print_json
from abele.errors import InvalidOption
from abele.report.files import write_file

if TYPE_CHECKING:
    from rich.table import Table

    from abele.tune.search import Outcome
    from abele.tune.space import Wanted
    from abele.tune.trial import Trial
    from abele.tune.tune import Tuned

INTERRUPTED = 130


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(tune)


def tune(
    model: str = typer.Argument(
        help="A zoo name (`abele zoo`), or file.py:function, where function(batch) returns (module, inputs)."
    ),
    system: str = typer.Option("bow-2000", help="Machine: a name (`abele systems`) or file.py:name."),
    train: bool = typer.Option(False, "--train", help="Tune a training step (default: inference)."),
    goal: str = typer.Option("throughput", "--for", help="throughput, latency or energy (joules a sample)."),
    batch: str = typer.Option("", help="Micro-batches to search, with commas (default: powers of two)."),
    global_batch: int | None = typer.Option(
        None, min=1, help="Samples in a step, exactly: micro-batch times accumulation times replicas."
    ),
    largest_batch: int = typer.Option(
        1024,
        min=1,
        help="Samples in a step, at most, where --global-batch is not given; the step found may take an odd number: "
        "--global-batch 1024 fixes it.",
    ),
    only: list[str] = typer.Option(
        [], help="Restrict a setting, as in stages=2,4; repeat for others. The names are those of the result."
    ),
    half: bool = typer.Option(False, "--half", help="Half precision weights and activations."),
    optimizer: str = typer.Option("sgd", help="sgd, adam, adamw, rmsprop or lamb."),
    planner: str = Planner,
    output: str = Output,
    small: bool = typer.Option(False, "--small", help="The zoo model's tiny configuration."),
    minutes: float = typer.Option(3.0, min=0.0, help="Stop after this long with the best so far; 0 for no limit."),
    exhaustive: bool = typer.Option(False, "--exhaustive", help="Try every point that bounds do not exclude."),
    jobs: int = typer.Option(0, min=0, help="Processes (default: one for each core)."),
    write: Path | None = typer.Option(None, help="The options file (default: MODEL.options here)."),
    cache: bool = typer.Option(True, "--cache/--no-cache", help="Use the cache on disk."),
    json: bool = Json,
):
    """Search for the settings with which a model is fastest and fits, and write them to an options file.

    Searched are stages, micro-batch, accumulation, replicas, recomputation, the optimizer's place, partials and memory
    proportion. Ctrl-C keeps the best so far (exit status 130). Exit status 1: nothing fits.
    """
    from abele.compile.cache import Cache
    from abele.machine.system import find_system
    from abele.tune.space import Wanted, parse_only
    from abele.tune.tune import tune as search

    restrictions = [parse_only(text) for text in (*([f"batch={batch}"] if batch else []), *only)]
    restricted = dict(restrictions)
    if len(restricted) < len(restrictions):
        raise InvalidOption("A setting is restricted twice", remedy="Give all its values at once, as in stages=2,4.")
    wanted = Wanted(
        model,
        find_system(system),
        train=train,
        half=half,
        small=small,
        optimizer=optimizer,
        goal=goal,
        global_batch=global_batch,
        largest_batch=largest_batch,
        only=restricted,
        planner=planner,
        output=output,
    )
    with _progress(json, minutes) as tell:
        tuned = search(
            wanted,
            cache=Cache() if cache else None,
            jobs=jobs or None,
            minutes=minutes or None,
            exhaustive=exhaustive,
            tell=tell,
        )
    asked = _command(wanted, system)
    path = _written(tuned, write or _default_file(model), asked, system)
    if json:
        print_json(tuned.to_json() | {"options_file": str(path) if path else None})
    else:
        show(tuned, path, asked, system)
    if tuned.interrupted:
        kept = f"The best so far is in {path}." if path else "Nothing that fits had been found."
        console(stderr=True).print(f"Interrupted after {len(tuned.outcome.trials)} points. {kept}", markup=False)
        raise typer.Exit(INTERRUPTED)
    if tuned.best is None:
        raise typer.Exit(1)


def _default_file(model: str) -> Path:
    name = model.rsplit(":", 1)[-1] if ".py:" in model else Path(model).stem
    return Path(re.sub(r"[^\w.-]+", "-", name) + ".options")


def _command(wanted: Wanted, system: str) -> str:
    """The arguments that name the model, as `abele profile` takes them."""
    w = wanted
    words = [w.model, "--system", system]
    words += [flag for flag, given in (("--train", w.train), ("--half", w.half), ("--small", w.small)) if given]
    words += ["--optimizer", w.optimizer] if w.train and w.optimizer != "sgd" else []
    words += ["--planner", w.planner] if w.planner != "best" else []
    words += ["--output", w.output] if w.train and w.output != "loss" else []
    return shlex.join(words)


def _written(tuned: Tuned, path: Path, asked: str, system: str) -> Path | None:
    from abele.tune.options_file import write_options

    best = tuned.best
    if best is None:
        return None
    wanted = tuned.outcome.space.wanted
    comments = (
        f"Found by abele tune {asked} --for {wanted.goal}; try abele profile {asked} --options {path}",
        f"Modelled: {_figures(best)}",
    )
    return write_file(path, write_options(best.point.settings(), wanted.train, comments, system), "--write")


def _figures(trial: Trial) -> str:
    from abele.report.console import rate, seconds, size

    energy = f"{trial.joules / trial.point.samples:.3g} J/sample"
    held = f"fullest tile {size(trial.max)} of {size(trial.limit)}"
    return f"{rate(trial.throughput)} samples/s, {seconds(trial.seconds)} a step, {energy}, {held}"


@contextmanager
def _progress(quiet: bool, minutes: float) -> Iterator[Callable[[Outcome, Trial], None] | None]:
    """A bar on the standard error: points tried, and the best so far."""
    from abele.report.console import rate

    out = console(stderr=True)
    if quiet or not out.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task("Capturing …", total=None)

        def tell(outcome: Outcome, trial: Trial) -> None:
            whole = len(outcome.space.points) - outcome.excluded
            best = outcome.best
            found = f"best {rate(best.throughput)} samples/s" if best else "nothing fits yet"
            shown = f"{len(outcome.trials)} of {whole} points tried, {found}"
            bar.update(task, description=shown, completed=len(outcome.trials), total=whole)

        yield tell


def show(tuned: Tuned, path: Path | None, asked: str, system: str) -> None:
    """Print what was found for people."""
    from abele.report.console import many, size
    from abele.tune.explain import NOT_TRIED, coverage, worded

    out, outcome = console(), tuned.outcome
    wanted = outcome.space.wanted
    mode = "training" if wanted.train else "inference"
    out.print(f"{wanted.model}, {mode} on {wanted.system.name}, for {wanted.goal}", style="bold", markup=False)
    out.print(f"{coverage(outcome)}\n", markup=False)
    if tuned.nothing is not None:
        out.print(tuned.nothing.text, markup=False)
        if tuned.nothing.advice:
            out.print("What would help (each was compiled):")
        for advice in tuned.nothing.advice:
            over = f"does not fit by {size(advice.bytes - tuned.nothing.bound)} a tile"
            out.print(f"  {advice.text}: {advice.error or ('fits' if advice.fits else over)}", markup=False)
        return
    if tuned.best is None:
        return
    frontier = outcome.frontier()
    what = "latency and throughput" if wanted.goal == "latency" else f"{wanted.goal} and memory"
    out.print(f"Frontier of {what}, the best first (samples: micro-batch × accumulation × replicas):", markup=False)
    out.print(_table(frontier[:12], wanted.goal))
    if len(frontier) > 12:
        out.print(f"… {len(frontier) - 12} more; --json lists all", markup=False)
    out.print(f"\nBest: {', '.join(worded(n, v) for n, v in tuned.best.point.settings().items())}", markup=False)
    for line in tuned.reasons:
        out.print(f"  {line}", markup=False)
    out.print("Beside it:")
    for neighbour in tuned.neighbours:
        if neighbour.verdict != NOT_TRIED:
            out.print(f"  {neighbour.change}: {neighbour.verdict}", markup=False)
    unknown = sum(neighbour.verdict == NOT_TRIED for neighbour in tuned.neighbours)
    if unknown:
        out.print(f"  {many(unknown, 'neighbour')} not tried: run longer (--minutes)", markup=False)
    if path is not None:
        out.print(f"\nWritten to {path}. Use it with", markup=False)
        out.print(f"  abele profile {asked} --options {path}", markup=False)
        out.print(f"  abele run --system {shlex.quote(system)} --options {path} your_program.py", markup=False)
        out.print(f'  poptorch.Options().loadFromFile("{path}")', markup=False)


def _table(trials: list[Trial], goal: str) -> Table:
    """A row for each trial. A step is micro-batch × accumulation × replicas samples."""
    from rich.table import Table

    from abele.report.console import rate, seconds, size

    table = Table(**TABLE)
    for name in ("samples/s", "J/sample" if goal == "energy" else "step", "fullest tile", "samples", "stages"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("besides", overflow="fold")
    for t in trials:
        p = t.point
        second = f"{t.joules / p.samples:.3g}" if goal == "energy" else seconds(t.seconds)
        besides = [f"proportion {p.memory_proportion:g}"]
        besides += [p.pipeline] if p.stages > 1 else []
        besides += [p.recompute] if p.recompute != "checkpoints" else []
        besides += [word for word, so in (("offload", p.offload), ("shard", p.shard)) if so]
        besides += [f"{p.partials} partials"] if p.partials else []
        samples = f"{p.batch}×{p.accumulate}×{p.replicas}"
        table.add_row(rate(t.throughput), second, size(t.max), samples, str(p.stages), ", ".join(besides))
    return table

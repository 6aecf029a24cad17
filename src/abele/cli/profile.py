"""``abele profile``: compile a model for a machine, charge it, and run it here too when asked."""

from __future__ import annotations

import json
import shlex
import statistics
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from abele import programs
from abele.cli.common import (
    Advice,
    Json,
    Output,
    Planner,
    Sources,
    console,
    in_lines,
    passes_of,
    plain,
    planned,
    print_json,
    progress,
    reported,
    say_report,
    was_given,
)
from abele.compile.cache import Cache
from abele.compile.executable import key_of, source_digest
from abele.compile.passes.recompute import HOW
from abele.compile.passes.split import heaviest, shares
from abele.compile.session import CompiledProgram, Session
from abele.errors import InvalidOption
from abele.tune.options_file import read_options

if TYPE_CHECKING:
    from abele.advice import Program
    from abele.cost import Detail, Profile


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(profile)


def profile(
    context: typer.Context,
    model: str = typer.Argument(
        help="A zoo name (`abele zoo`), or file.py:function, where function(batch) returns (module, inputs)."
    ),
    train: bool = typer.Option(False, "--train", help="Profile a training step (default: inference)."),
    batch: int = typer.Option(1, min=1, help="Samples in a micro-batch."),
    half: bool = typer.Option(False, "--half", help="Half precision weights and activations."),
    accumulate: int | None = typer.Option(
        None,
        min=1,
        help="Micro-batches in a training step (turns, in a pipelined inference); default: 2 × stages in a pipeline, "
        "else 1.",
    ),
    replicas: int = typer.Option(1, min=1, help="Copies side by side on different data."),
    stages: int = typer.Option(1, min=1, help="Pipeline stages; the compiler cuts the model."),
    pipeline: str = typer.Option("grouped", help="How stages take turns: grouped, interleaved or sequential."),
    system: str = typer.Option("bow-2000", help="Machine: a name (`abele systems`) or file.py:name."),
    optimizer: str = typer.Option("sgd", help="sgd, adam, adamw, rmsprop or lamb."),
    recompute: str = typer.Option("checkpoints", help=f"What the backward pass computes again: {', '.join(HOW)}."),
    offload: bool = typer.Option(False, "--offload", help="Keep the optimizer's state in streaming memory."),
    offload_weights: bool = typer.Option(
        False, "--offload-weights", help="Keep the weights in streaming memory; each module loads its own when it runs."
    ),
    offload_activations: bool = typer.Option(
        False, "--offload-activations", help="Keep in streaming memory what the backward pass reads of the forward."
    ),
    shard: int = typer.Option(
        0,
        min=0,
        metavar="ELEMENTS",
        help="Spread the optimizer's state over the replicas, for weights of at least so many elements (8192 is usual; "
        "0: for none).",
    ),
    partials: str = typer.Option("", help="f16 or f32: the type in which products are summed (default: the model's)."),
    float8: str = typer.Option(
        "", help="f143 or f152: with --half, products of weights in 8-bit floats (chips that have them: c600)."
    ),
    memory_proportion: float = typer.Option(
        0.6, min=0.0, max=1.0, help="Share of tile memory that the temporaries of one operation may take."
    ),
    options: Path | None = typer.Option(
        None, help="A file of settings, as `abele tune` writes it; what the command line gives has the last word."
    ),
    planner: str = Planner,
    phased: str = typer.Option(
        "", help="Phased execution, serial or parallel: the stages are phases, swapped through streaming memory."
    ),
    io_tiles: int = typer.Option(
        0, min=0, help="Tiles of each IPU set aside for transfers, which then run beside compute."
    ),
    accumulator: str = typer.Option("", help="Type of gradient accumulators: f16 or f32 (default: the gradient's)."),
    output: str = Output,
    run: int = typer.Option(0, min=0, help="Also run this many real steps on this computer."),
    small: bool = typer.Option(False, "--small", help="The zoo model's tiny configuration."),
    advice: bool | None = Advice,
    cache: bool = typer.Option(True, "--cache/--no-cache", help="Use the cache of executables on disk."),
    report: Path | None = typer.Option(None, help="Folder for the report: profile.pop, report.html, profile.json."),
    sources: bool = Sources,
    as_json: bool = Json,
):
    """Say what a model costs on a machine: does it fit, how fast, where the time goes."""
    settings = {name: value for name, value in context.params.items() if name not in _NOT_SETTINGS}
    if options is not None:
        given = {name for name in settings if was_given(context, name)}
        read = read_options(options, train)
        if not was_given(context, "system"):
            system = read.get("system", system)
        settings |= {name: v for name, v in read.items() if name in settings and name not in given}
    if settings["accumulate"] is None:
        settings["accumulate"] = programs.usual_accumulation(settings["stages"], settings["phased"])
    with progress(as_json) as tell:
        asked = _Asked(model, system, settings, Cache() if cache else None, tell, weights=run > 0)
        document = asked.document()
        if run:
            document |= asked.measured(run)
    if not as_json:
        show(document)
    fits = document["tile_memory"]["fits"]
    if not fits if advice is None else advice:
        with progress(as_json) as tell:
            document["advice"] = asked.advice(in_lines(tell, as_json, model))
        if not fits and not any(each["fits"] for each in document["advice"]):
            document["least_state"] = asked.least()
        if not as_json:
            show_advice(document)
            console().print(f"`abele tune {_tuned(context, model, system)}` searches combinations", markup=False)
    with reported(report, [document], lambda: [asked.detail()], sources) as page:
        if page is not None:
            document["report"] = str(page)
        if as_json:
            print_json(document)
        elif page is not None:
            say_report(page)


_NOT_SETTINGS = ("model", "system", "options", "run", "advice", "cache", "report", "sources", "as_json")
"""Parameters of the command that are no settings of the program."""


SHOWN = 8
"""Lines of advice on the console."""


def _tuned(context: typer.Context, model: str, system: str) -> str:
    """Arguments with which ``abele tune`` searches the same program."""
    words = [model, "--system", system]
    words += [f"--{name}" for name in ("train", "half", "small") if context.params[name]]
    words += [
        w for n in ("optimizer", "planner", "output") if was_given(context, n) for w in (f"--{n}", context.params[n])
    ]
    return shlex.join(words)


def show(document: Mapping[str, Any]) -> None:
    """Print one profile for people."""
    from abele.report import summary

    out = console()
    out.print(summary(document))
    if document["stages"] > 1:
        turns = document["accumulation"]
        parts = "phases" if document["phased"] else "pipeline stages"
        out.print(
            f"{document['stages']} {parts}, {turns} micro-batch{'' if turns == 1 else 'es'} in a step", markup=False
        )
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


def show_fit(document: Mapping[str, Any]) -> None:
    """Why a program does not fit, where it does not, and the advice where there is any."""
    if "explanation" in document:
        console().print(document["explanation"]["text"], markup=False)
    if "advice" in document:
        show_advice(document)


def show_advice(document: Mapping[str, Any]) -> None:
    """What would make a program fit, or what would make one faster that fits; each with its command."""
    from abele.report.console import rate, size

    out, advice, memory = console(), document["advice"], document["tile_memory"]
    fits, limit = memory["fits"], memory["limit"]
    compiled = [each for each in advice if not each["error"]]
    if document.get("least_state", 0) > limit:
        out.print(
            f"No advice can make it fit: with all changed that advice changes, its state alone takes "
            f"{size(document['least_state'])} of every tile, which has {size(limit)}. It needs a larger system.",
            markup=False,
        )
    if not advice:
        out.print("Nothing that was compiled " + ("would make it faster." if fits else "brings it nearer to fitting."))
        return
    what = "would make it faster" if fits else "would help"
    if not fits and not any(each["fits"] for each in advice):
        what = "would help, though not enough" if compiled else "was tried, and cannot be compiled"
    out.print(f"What {what} (each was compiled):" if compiled else f"What {what}:")
    for each in advice[:SHOWN]:
        figures = each["error"]
        if not figures:
            over = f"does not fit, {size(each['bytes'] - limit)} over, "
            verdict = "" if fits else "fits, " if each["fits"] else over
            figures = f"{verdict}fullest tile {size(each['bytes'])}, {rate(each['throughput'])} samples/s"
            figures += f", {each['gain_cycles']:,.0f} cycles a sample less" if each["gain_cycles"] > 0 else ""
        out.print(f"  {each['text']}: {figures}", markup=False)
        if each["command"] and not each["error"]:
            out.print(f"    {each['command']}", markup=False, style="dim")
    if len(advice) > SHOWN:
        out.print(f"… {len(advice) - SHOWN} more; --json lists all", markup=False)


class _Asked:
    """A model, a machine and settings: captured at once, compiled and charged when that is needed."""

    def __init__(
        self,
        model: str,
        system: str,
        settings: Mapping[str, Any],
        cache: Cache | None,
        tell: Callable[[str, str], None],
        weights: bool = False,
        loaded: programs.Loaded | None = None,
    ) -> None:
        self.model, self.system, self.settings, self.cache, self.tell = model, system, settings, cache, tell
        tell(model, "capture")
        captured = {name: settings[name] for name in programs.CAPTURED}
        self.loaded = loaded or programs.load(model, weights=weights, **captured)
        others = {name: value for name, value in settings.items() if name not in captured}
        self.options = programs.compile_options(self.loaded, system=system, **others)
        self.samples = self.loaded.batch * settings["accumulate"] * settings["replicas"]

    @cached_property
    def compiled(self) -> CompiledProgram:
        session = Session(self.options.system, self.cache, self.tell)
        return session.compile(self.model, self.loaded.graph, self.options, samples=self.samples)

    @cached_property
    def charged(self) -> Profile:
        from abele.cost import cost

        return cost(self.compiled.executable.schedule, self.options.system, samples=self.samples)

    def detail(self) -> Detail:
        """The profile in full."""
        from abele.cost import detail

        return detail(self.charged, self.compiled.executable.schedule, self.options.system)

    def document(self) -> dict[str, Any]:
        """What ``--json`` prints, from the cache where it has been asked before."""
        started = time.process_time()
        if self.cache is not None and self.cache.get(key_of(self.loaded.graph, self.options)) is not None:
            stored = self.cache.profiles.get(self._key)
            if stored is not None:
                return json.loads(stored) | self._told(True, time.process_time() - started)
        document = self._made() | self._told(self.compiled.executable.cached, self.compiled.executable.compile_seconds)
        if self.cache is not None:
            self.cache.profiles.put(self._key, json.dumps(document, default=plain))
        return document

    @cached_property
    def _key(self) -> str:
        """Of the document in the cache of profiles."""
        executable = key_of(self.loaded.graph, self.options)
        return f"{executable}-{source_digest('cost', 'cli')[:16]}-{self.samples}"

    def _told(self, cached: bool, seconds: float) -> dict[str, Any]:
        return {"cached": cached, "compile_seconds": seconds, "capture_seconds": self.loaded.capture_seconds}

    def _made(self) -> dict[str, Any]:
        from abele.cost import explain

        s = self.settings
        document = planned(self.charged.to_json(), s["planner"]) | {
            "model": self.model,
            "mode": "training" if s["train"] else "inference",
            "batch": self.loaded.batch,
            "accumulation": s["accumulate"],
            "stages": s["stages"],
            "phased": s["phased"],
            "half": s["half"],
            "passes": passes_of(self.compiled.executable),
        }
        if not self.charged.memory.fits:
            document["explanation"] = explain(self.charged).to_json()
        return document

    def advice(self, tell: Callable[[str], None]) -> list[dict[str, Any]]:
        """What would make it fit, or faster; from the cache where it has been asked before."""
        from abele.advice import advise

        key = f"{self._key}-{source_digest('advice')[:16]}-advice"
        stored = self.cache.profiles.get(key) if self.cache is not None else None
        if stored is None:
            found = advise(self._program(), tell)
            stored = json.dumps([each.to_json() for each in found])
            if self.cache is not None:
                self.cache.profiles.put(key, stored)
        # Commands name the model and the machine as they were given now.
        return [each | {"command": self._command(each["settings"])} for each in json.loads(stored)]

    def least(self) -> int:
        """Bytes of every tile that the state takes at least, whatever advice changes."""
        from abele.advice import least

        return least(self._program())

    def _program(self) -> Program:
        from abele.advice import DEFAULTS, Program

        placed = any(op.origin.ipu for op in self.loaded.graph.operations)
        free = frozenset(DEFAULTS) - ({"batch"} if self.loaded.fixed_batch else set())
        train, ipus, tiles = self.loaded.train, self.options.system.ipus, self.options.system.chip.tiles
        cut = {n: heaviest(self.loaded.graph, n) for n in shares(self.loaded.graph, ipus)}
        return Program(self.charged, self.settings, train, ipus, tiles, placed, free, cut, self._changed, self._command)

    def _command(self, changed: Mapping[str, Any]) -> str:
        from abele.advice import profile_command

        return profile_command(self.model, self.system, {**self.settings, **changed})

    def _changed(self, changed: Mapping[str, Any]) -> Profile:
        """The profile with changed settings; the model is captured again where they say so."""

        def quiet(program: str, step: str) -> None:
            """The advice's own words stay in sight."""

        settings, loaded = {**self.settings, **changed}, self.loaded
        if any(name in programs.CAPTURED for name in changed):
            loaded = None
        return _Asked(self.model, self.system, settings, self.cache, quiet, loaded=loaded).charged

    def measured(self, runs: int) -> dict[str, Any]:
        """Run the program for real; wall and CPU seconds of a run (medians)."""
        import numpy as np

        from abele.engine.engine import Engine

        loaded, options = self.loaded, self.options
        if not loaded.inputs:
            raise InvalidOption(
                f"{loaded.name!r} has no data to run on", remedy="Give a zoo model or file.py:function."
            )
        native = self.cache.native if self.cache is not None else None
        engine = Engine(self.compiled.executable.schedule, cache=native)
        for name, value in loaded.state.items():
            engine.write(name, value)
        for name in engine.states:
            if name.startswith("learning_rate"):
                engine.write(name, np.array(0.01, np.float32))
        turns, replicas = options.accumulation, options.replicas
        streams = {n: np.broadcast_to(a, (turns, replicas, *a.shape)) for n, a in loaded.inputs.items()}
        wall, cpu = [], []
        engine.run(streams)  # the first run also packs weights
        for i in range(runs):
            self.tell(loaded.name, f"run {i + 1} of {runs}")
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

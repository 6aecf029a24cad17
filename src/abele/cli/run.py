"""``abele run``: run a user's Python program, unmodified, and say what it would cost on each machine."""

from __future__ import annotations

import runpy
import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import typer

from abele.cli.common import Json, Planner, console, planned, print_json, progress, reported, systems
from abele.cli.profile import show_fit
from abele.errors import AbeleError, InvalidOption, UserProgramError


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(run)


def run(
    context: typer.Context,
    script: Path = typer.Argument(
        help="The program. Options that are not abele's are passed on to it; after -- all are."
    ),
    system: list[str] = typer.Option(
        ["bow-2000"], help="Machine to compile for; repeat it to compare machines (the first is the one that runs)."
    ),
    options: Path | None = typer.Option(
        None, help="A file of poptorch options, as `abele tune` writes it; it has the last word over the program's own."
    ),
    planner: str = Planner,
    report: Path | None = typer.Option(None, help="Folder for report.html and profile.json."),
    cache: bool = typer.Option(True, "--cache/--no-cache", help="Use the cache of executables on disk."),
    json: bool = Json,
):
    """Run a Python program on a chosen machine: real numbers here, and the modelled cost there."""
    from abele.compile.cache import Cache
    from abele.compile.session import Session, opened
    from abele.ops.plans.planning import PlanOptions
    from abele.tune.options_file import read_options

    if not script.is_file():
        raise InvalidOption(f"There is no program {str(script)!r}", remedy="Give the path of a Python file.")
    machines = systems(system)
    if options is not None:
        read_options(options, train=True)  # a file that cannot be read is refused before the program runs
    plan = PlanOptions(planner=planner)
    session = Session(machines[0], Cache() if cache else None, plan=plan, options_file=options)
    # The program's own lines go to the standard error when ours is to be the only document on the standard output.
    with opened(session), redirect_stdout(sys.stderr) if json else nullcontext():
        _execute(script, context.args)
    ran = [p for p in session.programs if p.runs]
    documents = []
    with progress(json) as tell:
        for program in ran:
            for machine in machines:
                tell(program.name, machine.name)
                documents.append(_charged(program, machine, session))
    with reported(report, documents) as page:
        if json:
            print_json({"script": str(script), "programs": documents} | ({"report": str(page)} if page else {}))
        else:
            _show(documents, len(machines), page)


def _execute(script: Path, arguments: list[str]) -> None:
    """The program as ``python script arguments`` would run it; its own exit status is kept."""
    before = sys.argv, sys.path[:]
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent.resolve()))
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as stop:
        if stop.code not in (None, 0):
            raise typer.Exit(stop.code if isinstance(stop.code, int) else 1) from None
    except (AbeleError, KeyboardInterrupt):
        raise
    except Exception as error:
        import traceback

        traceback.print_exc()
        raise UserProgramError(
            f"{script} raised {type(error).__name__}: {error}", remedy="Its traceback is above."
        ) from error
    finally:
        sys.argv, sys.path[:] = before


def _charged(program: Any, machine: Any, session: Any) -> dict[str, Any]:
    """One program on one machine: compiled for it unless it is the one that ran."""
    from abele.compile.executable import compile_graph
    from abele.cost import cost, explain
    from abele.cost.levers import candidates, pull

    executable = program.executable
    if machine.key() != program.options.system.key():
        executable = compile_graph(program.graph, replace(program.options, system=machine), cache=session.cache)
    charged = cost(executable.schedule, machine, samples=program.samples)
    document = planned(charged.to_json(), program.options.plan.planner)
    if not charged.memory.fits:
        options = replace(program.options, system=machine)
        batch = program.samples // (options.accumulation * options.replicas)
        compiler = partial(compile_graph, cache=session.cache)
        document["explanation"] = explain(charged).to_json()
        document["levers"] = [lever.to_json() for lever in pull(candidates(program.graph, options, batch, compiler))]
    return document | {
        "name": program.name,
        "cached": executable.cached,
        "compile_seconds": executable.compile_seconds,
        "runs": program.runs,
        "wall_seconds": program.wall_seconds / program.runs,
    }


def _show(documents: list[dict[str, Any]], machines: int, page: Path | None) -> None:
    from abele.report import comparison, summary
    from abele.report.console import seconds

    out = console()
    if not documents:
        out.print("The program ran nothing through poptorch, so there is nothing to charge.", markup=False)
        return
    for i in range(0, len(documents), machines):
        group = documents[i : i + machines]
        out.print(summary(group[0]))
        show_fit(group[0])
        if machines > 1:
            out.print(comparison(group))
        wall = group[0]["wall_seconds"]
        out.print(
            f"runs here: {group[0]['runs']}, {seconds(wall)} of wall time each (this computer's clock)\n",
            markup=False,
        )
    if page is not None:
        out.print(f"report: {page}", markup=False)

"""``abele run``: run a user's Python program, unmodified, and say what it would cost on each machine."""

from __future__ import annotations

import difflib
import runpy
import shlex
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from abele.cli.common import (
    Advice,
    Json,
    Planner,
    Sources,
    console,
    in_lines,
    passes_of,
    planned,
    print_json,
    progress,
    reported,
    say_report,
    systems,
    was_given,
)
from abele.cli.live import recorded, tell_end
from abele.cli.profile import show_fit
from abele.errors import AbeleError, InvalidOption, UserProgramError, suggest
from abele.user import is_own

if TYPE_CHECKING:
    from abele.compile.session import CompiledProgram, Session
    from abele.cost import Profile
    from abele.machine import System
    from abele.schedule import Schedule


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
    option: list[str] = typer.Option(
        [], metavar="LINE", help="A line as of such a file, as `replicationFactor(2)`; repeat it for several."
    ),
    planner: str = Planner,
    advice: bool | None = Advice,
    report: Path | None = typer.Option(None, help="Folder for the report: profile.pop, report.html, profile.json."),
    sources: bool = Sources,
    live: bool = typer.Option(
        False, "--live", help="Show in the browser what happens while it runs, and the report when it has ended."
    ),
    cache: bool = typer.Option(True, "--cache/--no-cache", help="Use the cache of executables on disk."),
    all_lines: bool = typer.Option(
        False, "--traceback", help="Where the program raises, show all lines on the way, not only its own."
    ),
    json: bool = Json,
):
    """Run a Python program on a chosen machine: real numbers here, and the modelled cost there.

    The exit status is the program's own. One that is interrupted or raises is charged for what it has compiled and run.
    """
    from abele.compile.cache import Cache
    from abele.compile.session import Session, opened
    from abele.ops.plans.planning import PlanOptions
    from abele.tune.options_file import read_lines, read_options

    _look_for_mistyped(context, script)
    if options is not None:
        read = read_options(options, train=True)  # a file that cannot be read is refused before the program runs
        if "system" in read and not was_given(context, "system"):
            system = [read["system"]]
    read_lines(option, "--option", train=True)
    machines = systems(system)
    session = Session(
        machines[0],
        Cache() if cache else None,
        plan=PlanOptions(planner=planner),
        options_file=options,
        option_lines=tuple(option),
    )
    # The program's own lines go to the standard error when ours is to be the only document on the standard output.
    stop: BaseException | None = None
    with recorded(live, report, script) as folder:
        with opened(session), redirect_stdout(sys.stderr) if json else nullcontext():
            try:
                _execute(script, context.args)
            except (AbeleError, KeyboardInterrupt, typer.Exit) as error:
                stop = error
        tell_end(stop)
        shown = [p for p in session.programs if p.runs or stop is not None]
        if shown or stop is None:
            command = _Command(script, tuple(context.args), options, tuple(option), planner)
            _charge(command, shown, dict(zip(system, machines)), session, advice, folder, sources, json)
    if stop is None:
        return
    if isinstance(stop.__cause__, Exception):
        sys.stderr.write(_lines_of(stop.__cause__, everything=all_lines))
    raise stop


def _look_for_mistyped(context: typer.Context, script: Path) -> None:
    """Refuse what is no program; say where an option that goes to the program looks like one of the command."""
    known = [name for parameter in context.command.params for name in parameter.opts if name.startswith("--")]
    if str(script).startswith("-"):
        remedy = f"{suggest(str(script), known)} Options of the program stand behind it."
        raise InvalidOption(f"There is no option {str(script)!r}", remedy=remedy.lstrip())
    if not script.is_file():
        raise InvalidOption(f"There is no program {str(script)!r}", remedy="Give the path of a Python file.")
    for argument in () if "--" in sys.argv else context.args:
        name = argument.partition("=")[0]
        if name.startswith("--") and difflib.get_close_matches(name, known, n=1, cutoff=0.8):
            console(stderr=True).print(
                f"Note: {name} is passed on to {script}. {suggest(name, known)} After -- all is the program's.",
                markup=False,
            )


@dataclass(frozen=True)
class _Command:
    """The command as it was given, to be said again with changed settings."""

    script: Path
    arguments: tuple[str, ...]
    options: Path | None
    lines: tuple[str, ...]
    planner: str

    def changed(self, system: str, settings: Mapping[str, Any], train: bool, changed: Mapping[str, Any]) -> str:
        """The command on a system for a program with these settings, of which some are changed."""
        from abele.tune.options_file import option_lines

        words = ["abele", "run", "--system", system]
        words += ["--options", str(self.options)] if self.options is not None else []
        planner = changed.get("planner", self.planner)
        words += ["--planner", planner] if planner != "best" else []
        added = option_lines({**settings, **changed}, train, changed)
        for line in (*self.lines, *added):
            words += ["--option", line]
        words.append(str(self.script))
        return shlex.join([*words, "--", *self.arguments] if self.arguments else words)


def _charge(
    command: _Command,
    shown: list[CompiledProgram],
    machines: Mapping[str, System],
    session: Session,
    advice: bool | None,
    report: Path | None,
    sources: bool,
    json: bool,
) -> None:
    """Charge the programs of a script on every machine, and show that."""
    from abele.cost import detail

    documents: list[dict[str, Any]] = []
    charged: list[tuple[Profile, Schedule, System]] = []
    with progress(json) as tell:
        for program in shown:
            for name, machine in machines.items():
                tell(program.name, machine.name)
                said = in_lines(tell, json, f"{program.name} on {machine.name}")
                document, profile, schedule = _charged(
                    program, machine, session, partial(command.changed, name), advice, said
                )
                documents.append(document)
                charged.append((profile, schedule, machine))
    with reported(report, documents, lambda: [detail(*each) for each in charged], sources) as page:
        if json:
            print_json({"script": str(command.script), "programs": documents} | ({"report": str(page)} if page else {}))
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
            if not isinstance(stop.code, int):
                sys.stderr.write(f"{stop.code}\n")
            raise typer.Exit(stop.code if isinstance(stop.code, int) else 1) from None
    except (AbeleError, KeyboardInterrupt):
        raise
    except Exception as error:
        raised = UserProgramError(f"{script} raised {type(error).__name__}: {error}")
        raised.exit_status = 1  # as without the command
        raise raised from error
    finally:
        sys.argv, sys.path[:] = before


def _lines_of(error: Exception, everything: bool) -> str:
    """The lines of the user's on the way to an error, its message apart; or the whole traceback.

    What led to the error is shown too where it came up in the user's own lines.
    """
    if everything:
        return "".join(traceback.format_exception(error))
    earlier = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    text = ""
    if isinstance(earlier, Exception) and earlier.__traceback__ is not None:
        innermost = traceback.extract_tb(earlier.__traceback__)[-1]
        if is_own(innermost.filename):
            text = f"{_lines_of(earlier, everything)}{''.join(traceback.format_exception_only(earlier))}\nand then\n\n"
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if is_own(frame.filename)]
    lines = traceback.format_list(own)
    if isinstance(error, SyntaxError):
        lines += traceback.format_exception_only(error)[:-1]
    return text + ("The program's own lines (--traceback shows all):\n" + "".join(lines) if lines else "")


def _charged(
    program: CompiledProgram,
    machine: System,
    session: Session,
    command: Callable[..., str],
    advice: bool | None,
    tell: Callable[[str], None],
) -> tuple[dict[str, Any], Profile, Schedule]:
    """One program on one machine: compiled for it unless it is the one that ran."""
    from abele.advice import advise, least, of_compiled
    from abele.compile.executable import compile_graph
    from abele.cost import cost, explain

    executable, options = program.executable, replace(program.options, system=machine)
    if machine.key() != program.options.system.key():
        executable = compile_graph(program.graph, options, cache=session.cache)
    charged = cost(executable.schedule, machine, samples=program.samples)
    document = planned(charged.to_json(), program.options.plan.planner)
    fits = charged.memory.fits
    if not fits:
        document["explanation"] = explain(charged).to_json()
    if not fits if advice is None else advice:
        subject = of_compiled(program.graph, options, charged, session.cache, command, program.iterations)
        document["advice"] = [each.to_json() for each in advise(subject, tell)]
        if not fits and not any(each["fits"] for each in document["advice"]):
            document["least_state"] = least(subject)
    document |= {
        "name": program.name,
        "passes": passes_of(executable),
        "cached": executable.cached,
        "compile_seconds": executable.compile_seconds,
        "runs": program.runs,
        "wall_seconds": program.wall_seconds / program.runs if program.runs else None,
    }
    return document, charged, executable.schedule


def _show(documents: list[dict[str, Any]], machines: int, page: Path | None) -> None:
    from abele.report import comparison, summary
    from abele.report.console import many, seconds

    out = console()
    if not documents:
        out.print("The program ran nothing through poptorch, so there is nothing to charge.", markup=False)
        return
    said: set[str] = set()
    for i in range(0, len(documents), machines):
        group = documents[i : i + machines]
        out.print(summary(group[0], said=said))
        show_fit(group[0])
        if machines > 1:
            out.print(comparison(group))
        runs, wall = group[0]["runs"], group[0]["wall_seconds"]
        each = f"{many(runs, 'device iteration')}, {seconds(wall)} of wall time each (this computer's clock)"
        out.print(f"ran here: {each if runs else 'nothing to its end'}\n", markup=False)
    if page is not None:
        say_report(page)

"""The command ``abele``: one module for each group of commands, thin over the rooms that do the work."""

from __future__ import annotations

import errno
import os
import sys
from inspect import signature
from io import TextIOWrapper
from typing import Any

import typer

from abele import __version__
from abele.cli import inspect, profile, report, run, sweep, tune, validate, view
from abele.cli.common import console, fail
from abele.errors import AbeleError, InvalidOption

app = typer.Typer(
    help="Compile a model for a described tile-parallel machine, run it, see its cycles, memory and energy.\n\n"
    "Begin with:  abele profile mnist-cnn --train   or   abele run your_poptorch_program.py",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(asked: bool) -> None:
    if asked:
        console().print(f"abele {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _abele(
    version: bool = typer.Option(
        False, "--version", metavar="", help="Print the version.", callback=_say_version, is_eager=True
    ),
) -> None:
    """Options of no command."""


run.register(app)
profile.register(app)
report.register(app)
sweep.register(app)
tune.register(app)
inspect.register(app)
view.register(app)
validate.register(app)
for command in app.registered_commands:
    assert command.callback is not None
    for parameter in signature(command.callback).parameters.values():
        if parameter.annotation in (bool, "bool"):  # the help of a flag names no type: there is nothing to give
            parameter.default.metavar = ""


INTERRUPTED = 130

_UsageError: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
"""What typer raises on a bad command line; it has been click's own, and a copy of it."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point: errors become one clear paragraph and exit status 2, Ctrl-C status 130."""
    if "torch" not in sys.modules:  # torch reads this when it is loaded, see engine.threads
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")  # a terminal without a character shows ? in its place
    try:
        status = app(args=arguments, prog_name="abele", standalone_mode=False)
    except AbeleError as error:
        sys.exit(fail(error))
    except _UsageError as error:
        if error.format_message():  # else it was `abele` alone, which shows the help
            fail(_explained(error))
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except BrokenPipeError:
        sys.exit(141)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        remedy = "Make room on the disk, or send the output elsewhere."
        sys.exit(fail(InvalidOption("The output cannot be written: no space is left on the device", remedy=remedy)))
    if status == INTERRUPTED:  # typer makes it of Ctrl-C
        console(stderr=True).print("Interrupted. Nothing was left half-written; the cache is intact.")
    if isinstance(status, int) and status:  # of a typer.Exit
        sys.exit(status)


def _explained(error: Any) -> InvalidOption:
    """A mistake on the command line as an error of our own."""
    what, _, remedy = error.format_message().partition(". ")
    command = error.ctx.command_path if error.ctx is not None else "abele"
    return InvalidOption(what, remedy=f"{remedy} See `{command} --help`.".lstrip())

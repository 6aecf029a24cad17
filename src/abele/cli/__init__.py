"""The command ``abele``: one module for each group of commands, thin over the rooms that do the work."""

from __future__ import annotations

import sys

import typer

from abele.cli import inspect, profile, run
from abele.cli.common import console, fail
from abele.errors import AbeleError

app = typer.Typer(
    help="Compile a model for a described tile-parallel machine, run it, see its cycles, memory and energy.\n\n"
    "Begin with:  abele profile mnist-cnn --train   or   abele run your_poptorch_program.py",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
run.register(app)
profile.register(app)
inspect.register(app)


def main(arguments: list[str] | None = None) -> None:
    """Entry point: errors become one clear paragraph and exit status 2, Ctrl-C status 130."""
    try:
        app(args=arguments, standalone_mode=False)
    except AbeleError as error:
        sys.exit(fail(error))
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        console(stderr=True).print("Interrupted. Nothing was left half-written; the cache is intact.")
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)
    except Exception as error:
        import click

        if isinstance(error, click.ClickException):
            error.show()
            sys.exit(error.exit_code)
        raise

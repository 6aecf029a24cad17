"""What the commands share: consoles, progress, JSON output, errors, writing reports."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.text import Text

from abele.errors import AbeleError, InvalidOption
from abele.machine.system import System, find_system
from abele.report.console import visible
from abele.report.files import write_file

if TYPE_CHECKING:
    from abele.compile.executable import Executable
    from abele.cost import Detail

Json = typer.Option(False, "--json", help="Print one JSON object (or list) to the standard output, and nothing else.")


Planner = typer.Option(
    "best", help="How the compiler plans: best, or poplibs (only what the vendor's libraries did, for comparison)."
)

Output = typer.Option(
    "loss",
    help="What a training step returns to the host for every micro-batch: loss, or all that the model returns.",
)

Advice = typer.Option(
    None,
    "--advice/--no-advice",
    help="Compile changes that would make it fit, or faster, and say what each gives with the command that applies it. "
    "Where neither is said: for what does not fit.",
    show_default=False,
    metavar="",
)


Sources = typer.Option(
    True, "--sources/--no-sources", help="Keep in the report the text of the files of yours that operations come from."
)


def was_given(context: typer.Context, name: str) -> bool:
    """Whether a parameter stands on the command line."""
    return str(getattr(context.get_parameter_source(name), "name", "")) != "DEFAULT"


def planned(document: dict[str, Any], planner: str) -> dict[str, Any]:
    """A profile with its planner, and a note where that is not the best."""
    notes = [*document["notes"]]
    if planner != "best":
        notes.append(f"Planned in the mode {planner}: as the vendor's libraries did, and no better.")
    return document | {"planner": planner, "notes": notes}


TABLE: dict[str, Any] = {"box": SIMPLE_HEAD, "title_justify": "left", "padding": (0, 1, 0, 0), "pad_edge": False}
"""How every table of a command looks."""


class _Console(Console):
    """A console to which no name, from a model or of a file, gets a control character."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text, kept="\n\t"), **options)


def console(stderr: bool = False) -> Console:
    """A console on the current streams."""
    return _Console(stderr=stderr, highlight=False, soft_wrap=True)


def fail(error: AbeleError) -> int:
    """Say what is wrong in one paragraph; returns the exit status."""
    out = console(stderr=True)
    out.print(f"[bold red]{type(error).__name__}[/]: ", end="")
    out.print(str(error), markup=False)
    return error.exit_status


def print_json(value: Any) -> None:
    """One JSON document on the standard output."""
    sys.stdout.write(json.dumps(value, indent=2, default=plain) + "\n")


def plain(value: Any) -> Any:
    for convert in ("tolist", "item"):
        if hasattr(value, convert):
            return getattr(value, convert)()
    return str(value)


def systems(names: list[str]) -> list[System]:
    """The systems of these names; an unknown one raises ``InvalidOption`` with a suggestion."""
    return [find_system(name) for name in names]


@contextmanager
def progress(quiet: bool) -> Iterator[Any]:
    """A spinner on the standard error with the step that is under way; yields ``tell(program, step)``."""
    out = console(stderr=True)
    if quiet or not out.is_terminal:
        yield lambda program, step: None
        return
    with out.status("Starting …") as status:
        yield lambda program, step: status.update(f"{program}: {step} …")


def in_lines(tell: Callable[[str, str], None], quiet: bool, program: str) -> Callable[[str], None]:
    """Told the long steps of a program: a line on the standard error for each where no spinner can show it."""
    out = console(stderr=True)
    if quiet or out.is_terminal:
        return lambda step: tell(program, step)
    return lambda step: out.print(f"{program}: {step}", markup=False)


def passes_of(executable: Executable) -> list[dict[str, Any]]:
    """What the compiler's passes changed, as documents have it: operations before and after, and seconds."""
    fields = ("name", "before", "after", "seconds")
    return [{field: getattr(each, field) for field in fields} for each in executable.passes]


@contextmanager
def reported(
    folder: Path | None, documents: list[dict[str, Any]], details: Callable[[], list[Detail]], sources: bool = True
) -> Iterator[Path | None]:
    """Write ``profile.pop``, the same as one page ``report.html``, and ``profile.json`` into a folder around showing it
    on the console.

    Yields the path of the page, ``None`` when there is none. What cannot be written is an error only after the block,
    so that the result of long work is shown all the same. ``details`` makes the full profiles of the documents; the
    text of the user's files is kept with ``sources``.
    """
    if folder is None or not documents:
        yield None
        return
    from abele.report.saved import saved_page
    from abele.report.shown import NAME, Shown
    from abele.report.store import record, sources_of, write

    try:
        text = json.dumps(documents, indent=2, default=plain)
        write_file(folder / "profile.json", text + "\n")
        records = [record(document, each) for document, each in zip(documents, details(), strict=True)]
        write(folder / NAME, records, title=records[0].name, sources=sources_of(records) if sources else None)
        page = write_file(folder / "report.html", saved_page(Shown(folder / NAME)))
    except InvalidOption as error:
        yield None
        raise error
    yield page


def say_report(page: Path) -> None:
    """Where a report is, and how it is opened."""
    console().print(f"report: {page}\nopen it in the browser: abele view {shlex.quote(str(page.parent))}", markup=False)

"""The page of torch's operations in the documentation, written from the catalogue.

python -m tests.torchops.page          # writes docs/torch_operations.md
python -m tests.torchops.page --check  # says whether it is up to date
"""

from __future__ import annotations

import sys
from pathlib import Path

from abele.importers.torch import dependent
from tests.torchops.cases import Case
from tests.torchops.cases_random import RANDOM
from tests.torchops.catalogue import CATALOGUE

PAGE = Path(__file__).parents[2] / "docs" / "torch_operations.md"
HEAD = """\
# Operations of torch

What a captured model may use. Each row is tried by `tests/torchops`: the result and the gradient of every float operand
are held against torch in double precision, in float and in half. Forms in place, `out=` and methods of tensors go the
same way as the functions named here. What is not named may work too: an operation without a rule of its own is taken
apart by torch, and if that ends at one that has none, the error names it and your line.

This page is written by `python -m tests.torchops.page` from the tables that the tests run.

Complex tensors live inside a model only: they go in and out as pairs of reals (`torch.view_as_complex`,
`torch.view_as_real`). A buffer or constant of the model may be complex. Integers have 32 bits, and double is float.
"""


def remark(cases: list[Case]) -> str:
    """What is not tried, and why."""
    notes = []
    for what, reasons in (("half", {c.half for c in cases}), ("gradient", {c.gradient for c in cases})):
        missing = reasons - {""}
        if missing:
            some = "in some forms, " if "" in reasons else ""
            notes.append(f"{what} not tried: {some}{'; '.join(sorted(missing))}")
    return ". ".join(notes)


def text() -> str:
    """The whole page."""
    lines = [HEAD]
    for section, rows in CATALOGUE.items():
        lines += [f"## {section}", ""]
        plain = [f"`{name}`" for name, cases in rows.items() if not remark(cases)]
        if plain:
            lines += [_wrapped(", ".join(plain) + "."), ""]
        lines += [f"- `{name}` ({remark(cases)})" for name, cases in rows.items() if remark(cases)]
        if lines[-1]:
            lines.append("")
    lines += [
        "## Random numbers",
        "",
        "Drawn on the device with torch's distributions, in other numbers than torch's:",
        "",
    ]
    lines += [_wrapped(", ".join(f"`{name}`" for name in RANDOM) + "."), ""]
    lines += ["## What cannot be, and what to write instead", ""]
    lines += ["| operation | why | instead |", "|---|---|---|"]
    for name, (why, instead) in sorted(dependent.OPERATIONS.items()):
        if not name.startswith("_"):
            lines.append(f"| `{name}` | {why} | {instead} |")
    for name, instead in sorted(dependent.INSTEAD.items()):
        lines.append(f"| `{name.lstrip('_')}` | has no rule | {instead} |")
    return "\n".join(lines) + "\n"


def _wrapped(line: str, width: int = 118) -> str:
    """Names broken between lines, never inside a name."""
    done, current = [], ""
    for word in line.split(", "):
        if current and len(current) + len(word) + 2 > width:
            done.append(current + ",")
            current = word
        else:
            current = f"{current}, {word}" if current else word
    return "\n".join([*done, current])


def main(argv: list[str]) -> int:
    if "--check" in argv:
        same = PAGE.read_text(encoding="utf-8") == text()
        print("up to date" if same else f"{PAGE} is old: run python -m tests.torchops.page")
        return 0 if same else 1
    PAGE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

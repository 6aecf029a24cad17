"""The summary of a profile on the console, in the manner of a vendor's profile summary. It fits 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from abele.charge.records import PARTS

Document = Mapping[str, Any]
"""What ``Profile.to_json`` gives."""


def scaled(value: float, digits: int, least: float, units: Sequence[tuple[str, float]]) -> str:
    """``value`` in the first unit of which it is at least ``least``, else in the last; the unit 1 takes no digits."""
    unit, factor = next((u for u in units if abs(value) >= u[1] * least), units[-1])
    return f"{value / factor:,.{0 if factor == 1 and unit != 's' else digits}f} {unit}"


def seconds(value: float) -> str:
    """A time with a unit that suits it."""
    return scaled(value, 2, 1, (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)))


def size(value: float) -> str:
    """Bytes, in a unit from four of it on, so that a tile's bytes and its limit are in the same one."""
    return scaled(value, 1, 4, (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1)))


def arithmetic(value: float) -> str:
    """Floating-point operations with a unit that suits them."""
    return scaled(value, 2, 1, (("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6), ("FLOP", 1)))


def share(part: float, whole: float) -> str:
    """``part`` of ``whole`` in percent."""
    return f"{100 * part / whole:.1f}%" if whole else "–"


def rate(value: float) -> str:
    """Samples a second: whole from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def many(count: int, word: str) -> str:
    """``1 sample``, ``2 samples``."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def summary(profile: Document, operations: int = 10, said: set[str] | None = None) -> RenderableType:
    """Verdict, time, memory and the most costly operations of one profile.

    Notes that were ``said`` before are left out; those of this profile are added to them.
    """
    total = profile["cycles"]
    facts = Table.grid(padding=(0, 2))
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")
    used, tiles = many(profile["ipus"], "IPU"), many(profile["tiles"], "tile")
    facts.add_row("machine", printable(f"{profile['system']}: {used} in use, {tiles} each"))
    facts.add_row("tile memory", _memory(profile["tile_memory"]))
    samples = many(profile["samples"], "sample")
    facts.add_row("modelled time", f"{seconds(profile['seconds'])} for {samples} ({total:,.0f} cycles)")
    unless = "" if profile["tile_memory"]["fits"] else ", if it fitted"
    facts.add_row("throughput", f"{rate(profile['throughput'])} samples/s{unless}")
    facts.add_row("arithmetic", f"{arithmetic(profile['flops'])}, {100 * profile['peak_fraction']:.1f}% of peak")
    facts.add_row("energy", f"{profile['energy_joules']:.3g} J")
    facts.add_row("cycles", _parts(profile["cycles_by"], total, 1))
    heaviest = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    heaviest.add_column("operation", overflow="fold")
    for name in ("times", "cycles", "share"):
        heaviest.add_column(name, justify="right", no_wrap=True)
    heaviest.add_column("spent in")
    rows = [row for row in profile["by_operation"] if row["cycles"]]
    for row in rows[:operations]:
        heaviest.add_row(
            printable(row["key"] + _streamed(profile["steps"], row["key"])),
            f"{row['times']:,}",
            f"{row['cycles']:,.0f}",
            share(row["cycles"], total),
            _parts(row["cycles_by"], row["cycles"], 0, least=0.05),
        )
    parts: list[RenderableType] = [printable(profile["name"], style="bold"), facts, heaviest]
    if len(rows) > operations:
        rest = sum(row["cycles"] for row in rows[operations:])
        parts.append(printable(f"and {many(len(rows) - operations, 'other')}, {share(rest, total)} of the time", "dim"))
    notes = [f"Energy: {profile['energy']['basis']}.", *profile["notes"]]
    if sum(row["cycles"] for row in rows) > 1.01 * total:
        notes.append("Operations of several IPUs overlap in the pipeline: their shares add up to more than 100%.")
    said = set() if said is None else said
    parts += [printable(f"Note: {note}", "dim") for note in notes if note not in said]
    said.update(notes)
    return Group(*parts)


def printable(text: str, style: str = "") -> Text:
    """Text as it is: a name from a model may hold what looks like markup; a terminal takes no control characters."""
    return Text(visible(text), style=style)


def visible(text: str, kept: str = "") -> str:
    """Text with a sign in the place of each control character that is not ``kept``."""
    return "".join(c if c.isprintable() or c in kept else "�" for c in text)


def _streamed(steps: Sequence[Document], name: str) -> str:
    """Of transfers with the host: the largest tensor, which turn it is of apart."""
    found = [step for step in steps if step["name"] == name and step.get("streamed_bytes")]
    if not found:
        return ""
    most = max(found, key=lambda step: step["streamed_bytes"])
    stream = most["stream"]
    what = f"output {stream}" if stream.isdigit() else stream or "output"
    return f" ({'largest: ' if len(found) > 1 else ''}{what} {most['types']}, {size(most['streamed_bytes'])})"


def _parts(by: Mapping[str, float], whole: float, digits: int, least: float = 0.0) -> str:
    """Kinds of cycles with their shares; those below ``least`` of the whole are left out."""
    return ", ".join(
        f"{kind} {100 * by[kind] / whole:.{digits}f}%" for kind in PARTS if by[kind] and by[kind] >= least * whole
    )


def fit(memory: Document) -> str:
    """Whether a program fits, in words; of its ``tile_memory``."""
    return "fits" if memory["fits"] else f"does not fit, {size(memory['gap'])} over"


def _memory(memory: Document) -> Text:
    text = Text(fit(memory), style="green" if memory["fits"] else "bold red")
    held = f": fullest tile {size(memory['max'])} of {size(memory['limit'])}, mean {size(memory['mean'])}"
    return text.append(held, style="default not bold")


def comparison(profiles: Sequence[Document]) -> RenderableType:
    """One program on several machines, a row for each; ratios are to the first."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("machine", overflow="fold")
    for name in ("IPUs", "time", "samples/s", "", "energy", "fullest tile"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("fits", no_wrap=True)
    first = profiles[0]
    for p in profiles:
        faster = "" if p is first or not first["throughput"] else f"×{p['throughput'] / first['throughput']:.2f}"
        memory = p["tile_memory"]
        table.add_row(
            printable(p["system"]),
            f"{p['ipus']:,}",
            seconds(p["seconds"]),
            rate(p["throughput"]),
            faster,
            f"{p['energy_joules']:.3g} J",
            size(memory["max"]),
            "yes" if memory["fits"] else "no",
        )
    title = printable(f"{first['name']}, {many(first['samples'], 'sample')} a run; × is to {first['system']}", "bold")
    return Group(title, table)

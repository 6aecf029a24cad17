"""The summary of a profile on the console, in the manner of a vendor's profile summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

Document = Mapping[str, Any]
"""What ``Profile.to_json`` gives."""

KINDS = ("compute", "exchange", "links", "sync", "host", "bubble")


def seconds(value: float) -> str:
    """A time with a unit that suits it."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * factor >= 1:
            return f"{value * factor:,.2f} {unit}"
    return f"{value * 1e9:,.1f} ns"


def size(value: float) -> str:
    """Bytes with a unit that suits them."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(value) >= factor:
            return f"{value / factor:,.1f} {unit}"
    return f"{value:,.0f} B"


def share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


def summary(profile: Document, operations: int = 10) -> RenderableType:
    """Verdict, time, memory and the most costly operations of one profile."""
    memory = profile["tile_memory"]
    total = profile["cycles"]
    facts = Table.grid(padding=(0, 2))
    facts.add_row("machine", f"{profile['system']}: {profile['ipus']} IPU(s) in use, {profile['tiles']} tiles each")
    facts.add_row(
        "modelled time", f"{total:,.0f} cycles, {seconds(profile['seconds'])} for {profile['samples']} sample(s)"
    )
    facts.add_row("throughput", f"{profile['throughput']:,.1f} samples/s")
    facts.add_row("arithmetic", f"{profile['flops'] / 1e9:,.3f} GFLOP, {100 * profile['peak_fraction']:.1f} % of peak")
    facts.add_row("energy", f"{profile['energy_joules']:.4g} J ({profile['energy']['basis']})")
    facts.add_row(
        "cycles", ", ".join(f"{kind} {share(by, total)}" for kind in KINDS if (by := profile["cycles_by"][kind]))
    )
    facts.add_row("tile memory", _memory(memory))
    heaviest = Table("operation", "times", "cycles", "share", "compute", "exchange", "links", "sync")
    for row in profile["by_operation"][:operations]:
        by = row["cycles_by"]
        heaviest.add_row(
            row["key"],
            f"{row['times']:,}",
            f"{row['cycles']:,.0f}",
            share(row["cycles"], total),
            *(f"{by[kind]:,.0f}" for kind in KINDS[:4]),
        )
    parts: list[RenderableType] = [Text(profile["name"], style="bold"), facts, heaviest]
    parts += [Text(f"Note: {note}", style="dim") for note in profile["notes"]]
    return Group(*parts)


def _memory(memory: Document) -> Text:
    verdict = "fits" if memory["fits"] else f"does not fit: {size(memory['gap'])} over"
    text = Text(f"fullest tile {size(memory['max'])} of {size(memory['limit'])}, mean {size(memory['mean'])}: ")
    return text.append(verdict, style="green" if memory["fits"] else "bold red")


def comparison(profiles: Sequence[Document]) -> RenderableType:
    """One program on several machines, side by side; ratios are to the first."""
    table = Table("", *(p["system"] for p in profiles))
    first = profiles[0]

    def row(name: str, shown: Sequence[str], values: Sequence[float] = ()) -> None:
        ratios = ["", *(f"  ({v / values[0]:.2f}×)" if values and values[0] else "" for v in values[1:])]
        ratios += [""] * (len(shown) - len(ratios))
        table.add_row(name, *(s + r for s, r in zip(shown, ratios, strict=True)))

    row("modelled time", [seconds(p["seconds"]) for p in profiles], [p["seconds"] for p in profiles])
    row("cycles", [f"{p['cycles']:,.0f}" for p in profiles])
    row("throughput", [f"{p['throughput']:,.0f} samples/s" for p in profiles], [p["throughput"] for p in profiles])
    row("energy", [f"{p['energy_joules']:.4g} J" for p in profiles], [p["energy_joules"] for p in profiles])
    row("fullest tile", [size(p["tile_memory"]["max"]) for p in profiles])
    row("fits", ["yes" if p["tile_memory"]["fits"] else "no" for p in profiles])
    title = Text(f"{first['name']}, {first['samples']} sample(s) a run", style="bold")
    return Group(title, table)

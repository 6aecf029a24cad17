"""What the figures of a program suggest while it runs: changes of batch and accumulation, from its schedule.

These are estimates with the formulas that stand in each advice, made from the modelled cycles of the program that runs;
nothing is compiled for them, which would take the processors from the run. The report of the run has advice that was
found by compiling (``abele.advice``).
"""

from __future__ import annotations

from typing import Any

from abele.charge.spent import ACTIVATIONS, DATA, OPTIMIZER, WEIGHTS

WORTH = 0.05
"""Gain in throughput from which on a change is worth a word."""
RUNS = 20
"""Runs from which on the pauses between them mean something."""

LOCATIONS = {
    kind: f"options.TensorLocations.set{what}Location(poptorch.TensorLocationSettings().useOnChipStorage(True))"
    for kind, what in ((OPTIMIZER, "Optimizer"), (WEIGHTS, "Weight"), (ACTIVATIONS, "Activation"))
}
"""What keeps on the tiles what may lie in streaming memory."""


def advice(figures: dict[str, Any], runs: int = 0, gap: float = 0.0) -> list[dict[str, Any]]:
    """Rows with ``text``, ``why`` (the formula with its figures) and ``gain``: how many times the throughput, where it
    can be said.

    Args:
        figures: of a program, see ``charge/figures.py``.
        runs: how many times it has run; ``gap``: seconds of this computer's clock between those runs.
    """
    rows = [*_memory(figures), *_bubble(figures), *_once(figures), *_transfers(figures)]
    rows += [*_streaming_memory(figures), *_tiles(figures)]
    return [*_loader(figures, runs, gap), *sorted(rows, key=lambda row: -(row["gain"] or 1.0))]


def _row(text: str, why: str, gain: float | None = None) -> dict[str, Any]:
    return {"text": text, "why": why, "gain": gain}


def _memory(f: dict[str, Any]) -> list[dict[str, Any]]:
    if f["memory"]["fits"]:
        return []
    over = f["memory"]["max"] - f["memory"]["limit"]
    text = "The program does not fit the machine: a smaller micro-batch, recomputation or more IPUs would help."
    return [_row(text, f"The fullest tile holds {over:,} bytes more than it has.")]


def _bubble(f: dict[str, Any]) -> list[dict[str, Any]]:
    """A pipeline fills and drains once a run, however many micro-batches go through."""
    loop = f["loop"]
    if loop is None or not loop["ramp"] or not loop["slot"]:
        return []
    count, full, bubble = loop["count"], loop["count"] * loop["slot"], loop["bubble"]
    more = 2 * f["cycles"] / (f["cycles"] + full)
    if more < 1 + WORTH:
        return []
    what = "gradient accumulation" if f["train"] else "device iterations"
    now, then = bubble / (full + bubble), bubble / (2 * full + bubble)
    why = (
        f"The pipeline fills and drains in {now:.0%} of its time; with twice the micro-batches it would in {then:.0%}."
    )
    return [_row(f"Set {what} to {2 * count} instead of {count}.", why, more)]


def _once(f: dict[str, Any]) -> list[dict[str, Any]]:
    """What is done once a run, however many samples it has."""
    loop, total = f["loop"], f["cycles"]
    if loop is not None and loop["ramp"]:
        return []  # see _bubble
    rows = []
    if f["train"]:
        count = loop["count"] if loop is not None else 1
        once = f["once"]
        more = 2 * total / (once + 2 * (total - once))
        if more >= 1 + WORTH:
            why = (
                f"The weight update and the host's way back, once a run, are {once / total:.0%} of its {total:,.0f} "
                "cycles."
            )
            rows.append(_row(f"Set gradient accumulation to {2 * count} instead of {count}.", why, more))
    overhead = f["cycles_by"]["overhead"]
    more = 2 * total / (overhead + 2 * (total - overhead))
    if more >= 1 + WORTH and f["memory"]["fits"]:
        room = f["memory"]["max"] / f["memory"]["limit"]
        why = (
            f"The host's way back, {overhead / total:.0%} of a run, is then shared by twice the samples, if all else "
            f"at most doubles; the fullest tile is {room:.0%} full."
        )
        rows.append(_row("Double the batch.", why, more))
    return rows


def _transfers(f: dict[str, Any]) -> list[dict[str, Any]]:
    """The data of the host."""
    share = f["waits"][DATA]["cycles"] / f["cycles"] if f["cycles"] else 0.0
    if share < WORTH:
        return []
    text = (
        "Move less between host and machine, or less often: fewer and larger micro-batches, data in half or 8 bits, "
        "fewer outputs, or the loss alone."
    )
    moved = f"{f['host_in']:,} bytes in and {f['host_out']:,} bytes out"
    why = (
        f"{share:.0%} of a run waits for its data, {moved}; each transfer waits for the host, however few its bytes "
        "are. The gain is of half of the wait."
    )
    return [_row(text, why, 1 / (1 - share / 2) if share < 1 else None)]


def _streaming_memory(f: dict[str, Any]) -> list[dict[str, Any]]:
    """What was moved off the tiles: back to them where they have room, else less often."""
    rows, room = [], f["memory"]["limit"] - f["memory"]["max"]
    for kind, line in LOCATIONS.items():
        wait = f["waits"].get(kind)
        share = wait["cycles"] / f["cycles"] if wait is not None else 0.0
        if wait is None or share < WORTH:
            continue
        why = f"{share:.0%} of a run waits for {kind} in streaming memory, {wait['moved']:,} bytes to and fro; "
        if wait["tile"] <= room:
            why += f"on the tiles it takes about {wait['tile']:,} bytes of each, of which {room:,} are free."
            gain = f["cycles"] / (f["cycles"] - wait["cycles"]) if share < 1 else None
            rows.append(_row(f"Keep {kind} on the tiles: {line}.", why, gain))
            continue
        why += f"on the tiles it would take about {wait['tile']:,} bytes of each, of which {max(0, room):,} are free."
        text = "Set tiles aside for transfers (TensorLocations.numIOTiles), or move it less often: "
        often = "more gradient accumulation, or shard it over replicas" if kind == OPTIMIZER else "a larger micro-batch"
        rows.append(_row(f"{kind.capitalize()} waits in streaming memory. {text}{often}.", why))
    return rows


def _tiles(f: dict[str, Any]) -> list[dict[str, Any]]:
    if f["busy"] >= 0.5 or f["cycles_by"]["compute"] < 0.2 * f["cycles"]:
        return []
    why = f"While it computes, the mean tile works {f['busy']:.0%} of the time and waits for the slowest in the rest."
    return [_row("A larger micro-batch gives each tile more of the same work.", why)]


def _loader(f: dict[str, Any], runs: int, gap: float) -> list[dict[str, Any]]:
    """This computer's own part, measured: what the program does between its runs."""
    if runs < RUNS or f["seconds"] <= 0:
        return []
    pause = gap / (runs - 1)
    if pause < f["seconds"] * 0.5:
        return []
    text = "Load data faster (more workers, poptorch's asynchronous DataLoader, more device iterations in a call)."
    why = (
        f"Measured here, the program takes {_time(pause)} between two runs; the machine would be done with one in "
        f"{_time(f['seconds'])} (modelled), and would wait."
    )
    return [_row(text, why)]


def _time(seconds: float) -> str:
    """Two digits, so that the advice does not change with every run."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{float(f'{seconds / size:.2g}'):g} {unit}"
    return f"{seconds * 1e9:.0f} ns"

"""The totals of a run in the text format of Prometheus, version 0.0.4."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from abele.report.live.run import State, Totals

Value = float | int | None

PROGRAM: tuple[tuple[str, str, str, Callable[[Totals], Value]], ...] = (
    ("runs_total", "counter", "Runs of the program (device iterations).", lambda p: p.runs),
    ("samples_total", "counter", "Samples that it has taken in.", lambda p: p.samples),
    ("wall_seconds_total", "counter", "Seconds of its runs by this computer's clock.", lambda p: p.wall),
    (
        "gap_seconds_total",
        "counter",
        "Seconds of the host between its runs, by this computer's clock.",
        lambda p: p.gap,
    ),
    (
        "modelled_seconds_total",
        "counter",
        "Seconds that its runs would have taken on the modelled machine.",
        lambda p: p.runs * p.figures["seconds"],
    ),
    ("host_in_bytes_total", "counter", "Bytes from the host, modelled.", lambda p: p.runs * p.figures["host_in"]),
    ("host_out_bytes_total", "counter", "Bytes to the host, modelled.", lambda p: p.runs * p.figures["host_out"]),
    ("modelled_run_seconds", "gauge", "Modelled seconds of one run.", lambda p: p.figures["seconds"]),
    ("run_samples", "gauge", "Samples of one run.", lambda p: p.figures["samples"]),
    ("loss", "gauge", "The newest loss: its mean over the newest runs.", lambda p: p.loss),
    ("losses_not_finite_total", "counter", "Runs whose loss was infinite or not a number.", lambda p: p.bad_losses),
    (
        "tile_memory_bytes",
        "gauge",
        "Bytes on the fullest tile at its peak, modelled.",
        lambda p: p.figures["memory"]["max"],
    ),
    ("tile_memory_limit_bytes", "gauge", "Bytes of a tile's memory.", lambda p: p.figures["memory"]["limit"]),
)
"""Name behind ``abele_program_``, type, help, and value; one that is ``None`` is left out."""


def exposition(state: State) -> str:
    """All metrics of a run. Durations are in seconds, sizes in bytes; modelled and measured ones say which they are."""
    about = {"run": state.about.get("id", ""), "version": state.about.get("abele", "")}
    lines = [
        *_metric("abele_run_info", "gauge", "The run that is followed.", [(about, 1)]),
        *_metric("abele_run_up", "gauge", "1 while the run goes on.", [({}, int(state.running))]),
        *_metric("abele_run_seconds", "gauge", "Seconds from its beginning to its newest event.", [({}, state.last)]),
        *_metric("abele_messages_total", "counter", "Messages in its log.", [({}, state.messages)]),
    ]
    for name, kind, text, value in PROGRAM:
        values = [(_labels(number, program), value(program)) for number, program in state.programs.items()]
        lines += _metric(f"abele_program_{name}", kind, text, values)
    stages = [
        (_labels(number, program) | {"ipu": stage["ipu"], "kind": kind}, share)
        for number, program in state.programs.items()
        for stage in program.figures["stages"]
        for kind, share in stage.items()
        if isinstance(share, float)
    ]
    text = "Share of the modelled time that an IPU spends on each kind of work."
    lines += _metric("abele_program_stage_share", "gauge", text, stages)
    return "".join(line + "\n" for line in lines)


def _labels(number: int, program: Totals) -> dict[str, Any]:
    return {"program": number, "name": program.figures["name"], "system": program.figures["system"]}


def _metric(name: str, kind: str, text: str, values: Sequence[tuple[dict[str, Any], Value]]) -> Iterator[str]:
    given = [(labels, value) for labels, value in values if value is not None]
    if not given:
        return
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for labels, value in given:
        inside = ",".join(f'{key}="{_escaped(str(text))}"' for key, text in labels.items())
        yield f"{name}{{{inside}}} {value}" if inside else f"{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')

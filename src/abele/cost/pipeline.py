"""Which stage of a pipelined loop is at work when: the turns that ``charge`` counts as slots, drawn out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from abele.charge.cycles import Charger
from abele.charge.pipeline import first_part
from abele.schedule.records import Place, Repeat

MOST = 256
"""Of so many micro-batches each is drawn; of more, the first and the last half of them."""

COLUMNS = ("repeat", "ipu", "stage", "backward", "micro_batch", "start", "length")


def pipeline_table(loops: Mapping[int, tuple[Repeat, float]], charger: Charger) -> dict[str, np.ndarray]:
    """Every stage at work of pipelined loops: see ``docs/report_store.md``.

    Args:
        loops: the operation and the start (cycles) of each.
    """
    rows = [row for operation, (loop, start) in loops.items() for row in _rows(operation, loop, start, charger)]
    parts = [np.empty((len(COLUMNS), 0)), *rows]
    table = dict(zip(COLUMNS, np.concatenate(parts, axis=1), strict=True))
    whole = ("repeat", "ipu", "stage", "backward", "micro_batch")
    return {name: column.astype(np.int64) if name in whole else column for name, column in table.items()}


def left_out(loops: Mapping[int, tuple[Repeat, float]]) -> str:
    """A note where micro-batches are left out, else an empty string."""
    most = max((loop.count for loop, _ in loops.values()), default=0)
    return (
        f"The pipeline is drawn without its middle: the first and the last {MOST // 2} of {most:,} micro-batches."
        if most > MOST
        else ""
    )


def _rows(operation: int, loop: Repeat, start: float, charger: Charger) -> Iterator[np.ndarray]:
    """The rows of one loop, ``float64[columns, micro-batches]`` for each place."""
    batches = np.arange(loop.count)
    if loop.count > MOST:
        batches = np.concatenate([batches[: MOST // 2], batches[-(MOST // 2) :]])
    places = {place: cycles.total for place, cycles in charger.stages[loop.function].items() if cycles.total}
    for place, starts in _starts(loop, places, charger).items():
        ipu, stage, backward = place
        row = np.empty((len(COLUMNS), len(batches)))
        row[:4] = np.array([operation, ipu, stage, backward])[:, None]
        row[4:] = batches, start + starts[batches], np.full(len(batches), places[place])
        yield row


def _starts(loop: Repeat, places: Mapping[Place, float], charger: Charger) -> dict[Place, np.ndarray]:
    """When each place works on each micro-batch, from the start of the loop: ``float64[count]``.

    The slots are those of ``schedule.records.PIPELINES``. Within one the forward of an IPU comes before its backward,
    and places of one IPU one after another.
    """
    slots = charger.slots[id(loop)]
    begins, turns = slots.starts(), np.arange(loop.count)
    order = sorted(places, key=lambda place: (place[2], -place[1] if place[2] else place[1], place[0]))
    found: dict[Place, np.ndarray] = {}
    if loop.pipeline == "sequential":
        now = 0.0
        for place in order:
            found[place] = begins[:-1] + now
            now += places[place]
        return found
    taken: dict[int, np.ndarray] = {}  # of each part by an IPU
    for place in order:
        parts = first_part(place, loop, slots.halves) + slots.halves * turns
        before = taken.setdefault(place[0], np.zeros(len(begins)))
        found[place] = begins[parts] + before[parts]
        before[parts] += places[place]
    return found

"""Which stage of a pipelined loop is at work when: the turns that ``charge`` counts as slots, drawn out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from abele.charge.cycles import Charger
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
    for place, (first, turn) in _first_turn(loop, places, charger).items():
        ipu, stage, backward = place
        row = np.empty((len(COLUMNS), len(batches)))
        row[:4] = np.array([operation, ipu, stage, backward])[:, None]
        row[4:] = batches, start + first + batches * turn, np.full(len(batches), places[place])
        yield row


def _first_turn(loop: Repeat, places: Mapping[Place, float], charger: Charger) -> dict[Place, tuple[float, float]]:
    """When each place works on the first micro-batch, from the start of the loop, and how long a turn is.

    The slots are those of ``schedule.records.PIPELINES``. Within a slot the forward of an IPU comes before its
    backward, and places of one IPU one after another.
    """
    slot, _ = charger.slots[id(loop)]
    order = sorted(places, key=lambda place: (place[2], -place[1] if place[2] else place[1], place[0]))
    found: dict[Place, tuple[float, float]] = {}
    if loop.pipeline == "sequential":
        now = 0.0
        for place in order:
            found[place] = now, slot
            now += places[place]
        return found
    halved = loop.pipeline == "interleaved" and any(place[2] for place in order)
    second = _first_half(places, slot) if halved else 0.0
    taken: dict[tuple[int, int], float] = {}  # of a slot, or of half a slot, by an IPU
    for place in order:
        ipu, stage, back = place
        if halved:
            at = 2 * loop.stages - 1 - stage if back else stage
            half, begin = at % 2, at // 2 * slot + at % 2 * second
        else:
            half, begin = 0, (2 * (loop.stages - 1) - stage if back else stage) * slot
        before = taken.get((ipu, half), 0.0)
        taken[ipu, half] = before + places[place]
        found[place] = begin + before, slot
    return found


def _first_half(places: Mapping[Place, float], slot: float) -> float:
    """How long the first half of an interleaved slot is: its slowest IPU, and half of what both wait for besides."""
    work: list[dict[int, float]] = [{}, {}]
    for (ipu, stage, back), cycles in places.items():
        half = work[(stage + back) % 2]
        half[ipu] = half.get(ipu, 0.0) + cycles
    first, other = (max(half.values(), default=0.0) for half in work)
    return first + (slot - first - other) / 2

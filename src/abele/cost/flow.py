"""The flow of data through a program: which operation made what another one reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from abele.charge.storages import Storage
from abele.schedule.liveness import Copies, Liveness
from abele.schedule.records import Step


def flow_table(live: Liveness, row: Mapping[int, int], storages: Sequence[Storage]) -> dict[str, np.ndarray]:
    """The table ``flow`` of a report, each fact once.

    A program is walked along its line of moments, with who wrote each storage last: so the maker of what a function is
    given is the step that computed it, and not the call.

    Args:
        live: of the schedule.
        row: the operation of each node, by ``id``.
        storages: of the table ``tensors``, in its order.
    """
    lives: dict[str, list[tuple[int, int, int]]] = {}
    for number, each in enumerate(storages):
        lives.setdefault(each.name, []).append((each.first, each.last, number))
    made: dict[str, int] = {}
    found: dict[tuple[int, int, int], None] = {}
    for now, moment in enumerate(live.moments):
        node = moment.node
        if isinstance(node, Step):
            operation = row[id(node)]
            for name in node.reads:
                storage = live.storage[name]
                found[made.get(storage, -1), operation, _held(lives.get(storage, ()), now)] = None
            made |= {live.storage[name]: operation for name in node.makes}
        elif node is not None:
            copies = live.copies.get(id(node), Copies())
            pairs = copies.entry if moment.kind == "enter" else copies.exit
            made |= {live.storage[target]: made.get(live.storage[source], -1) for source, target in pairs}
    columns = np.array(list(found), np.int64).reshape(-1, 3).T
    return dict(zip(("producer", "consumer", "tensor"), columns, strict=True))


def _held(lives: Sequence[tuple[int, int, int]], now: int) -> int:
    """The storage that is live at a moment, of those of one tensor; where it was just written over, the one before."""
    begun = [each for each in lives if each[0] <= now]
    return max(begun)[2] if begun else -1

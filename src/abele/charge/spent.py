"""What the time of a program goes to that a change of its settings could save: what a step does but once, and what it
waits for of the host and of streaming memory. Advice weighs by it, both while a program runs and when it is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from abele.charge.cycles import streamed_bytes
from abele.charge.total import Charged
from abele.ir.operation import has
from abele.schedule.records import Function, Repeat, Step

DATA, OPTIMIZER, WEIGHTS, ACTIVATIONS = "data", "optimizer state", "weights", "activations"
"""What is waited for: the data of the host, results too, and what lies in streaming memory."""

REMOTE = (OPTIMIZER, WEIGHTS, ACTIVATIONS)


@dataclass(slots=True)
class Wait:
    """Transfers of one kind in a device iteration.

    Attributes:
        cycles: that the tiles wait for them. Where the stages of a pipeline wait side by side, their share of the wait.
        moved: bytes to and from all replicas; 0 for ``DATA`` (see ``figures.host_bytes``).
        tile: bytes that it would take on each tile of the IPU that has most of it, spread evenly.
    """

    cycles: float = 0.0
    moved: int = 0
    tile: int = 0

    def as_dict(self) -> dict[str, Any]:
        return {"cycles": self.cycles, "moved": self.moved, "tile": self.tile}


@dataclass(frozen=True, slots=True)
class Spent:
    """What a device iteration spends on what advice can change.

    Attributes:
        once: cycles that a step takes but once, however many micro-batches it has: all that is not in its loop over
            them. Where it has none: the host's way back, and the updates of weights with their collectives.
        waits: by what is waited for; ``DATA`` is always there.
    """

    once: float
    waits: Mapping[str, Wait]


def spent(charged: Charged) -> Spent:
    """What a schedule spends."""
    return Spent(_once(charged), _waits(charged))


def _once(charged: Charged) -> float:
    total, charger, nodes = charged.cycles, charged.charger, charged.schedule.main.nodes
    loops = [charger.total(node).total for node in nodes if isinstance(node, Repeat) and node.count]
    if loops:
        return total.total - max(loops)
    found = total.overhead
    for node in nodes:
        if node.origin.phase == "update" or (isinstance(node, Step) and has(node.operation, "collective")):
            found += charger.node(node).total if isinstance(node, Step) else charger.total(node).total
    return min(found, total.total)


def _waits(charged: Charged) -> dict[str, Wait]:
    schedule, times = charged.schedule, charged.schedule.times_run()
    found: dict[str, Wait] = {}
    kept: dict[str, dict[str, int]] = {}
    for function in schedule.all_functions():
        if times[function.name]:
            _add(charged, function, times[function.name], found, kept)
    for kind, tensors in kept.items():
        by_ipu: dict[int, int] = {}
        for name, size in tensors.items():
            ipu = schedule.tensors[name].ipu
            by_ipu[ipu] = by_ipu.get(ipu, 0) + size
        found[kind].tile = -(-max(by_ipu.values()) // schedule.tiles)
    waited, remote = charged.cycles.host, sum(each.cycles for each in found.values())
    for each in found.values():
        each.cycles *= min(1.0, waited / remote) if remote else 0.0
    return {DATA: Wait(max(0.0, waited - remote)), **found}


def _add(
    charged: Charged, function: Function, times: int, found: dict[str, Wait], kept: dict[str, dict[str, int]]
) -> None:
    """Add what a function waits for of streaming memory, run so many times, and the bytes of each tensor there."""
    schedule, charger = charged.schedule, charged.charger
    coming: dict[str, str] = {}  # tensors that were loaded, and of which kind
    for node in function.nodes:
        if not isinstance(node, Step) or has(node.operation, "host"):
            continue
        cycles = charger.node(node).host * times
        if has(node.operation, "remote"):
            far = node.results if node.operation == "remote_store" else node.operands
            tensor = schedule.tensors[charged.live.storage[far[0].tensor]]
            kind = _kind(tensor.source)
            wait = found.setdefault(kind, Wait())
            wait.moved += streamed_bytes(node) * times * schedule.replicas
            kept.setdefault(kind, {})[tensor.name] = tensor.type.bytes
            coming.update(dict.fromkeys(node.makes, kind))
            wait.cycles += cycles
        elif cycles:  # of a transfer that was begun before
            kind = next((coming[name] for name in node.reads if name in coming), None)
            if kind is not None:
                found[kind].cycles += cycles


def _kind(source: str) -> str:
    """Of a tensor in streaming memory, by the name that the user knows it by."""
    return ACTIVATIONS if not source else OPTIMIZER if source.startswith("optimiser.") else WEIGHTS

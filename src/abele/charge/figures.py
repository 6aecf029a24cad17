"""A program on its machine in a few figures, for those who follow its runs while they go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from abele.charge.pipeline import Slots
from abele.charge.records import Cycles
from abele.charge.spent import spent
from abele.charge.total import Charged
from abele.ir.operation import has
from abele.schedule.records import Function, Place, Repeat, Schedule, Step, place_of

WORK = ("compute", "exchange", "links", "sync", "host")
"""Kinds of cycles in which an IPU is at work or waited for; the rest of the time it waits."""


def figures(charged: Charged) -> dict[str, Any]:
    """One device iteration as it is modelled.

    ``seconds``, ``cycles``, ``cycles_by``; ``ipus``, ``replicas``; ``host_in`` and ``host_out``, bytes of all replicas;
    ``memory``: ``max``, ``limit`` and ``fits`` of the fullest tile; ``stages``: for each IPU of a replica its pipeline
    stages and the share of the time that it spends on each kind of work; ``busy``: the mean over the tiles of the time
    in which they compute, as a share of the time that the slowest take; ``once`` and ``waits``, see ``spent.Spent``;
    ``loop``, over micro-batches: ``count`` of its turns, ``cycles`` of all, and of a pipeline its ``stages``, the
    cycles of a ``slot``, the slots in which it fills and drains, ``ramp``, and the cycles that it takes beyond a slot
    for each turn, ``bubble``.
    """
    schedule, chip = charged.schedule, charged.system.chip
    total, memory = charged.cycles, charged.memory
    into, out = host_bytes(charged)
    weighed = spent(charged)
    return {
        "seconds": chip.seconds(total.total),
        "cycles": total.total,
        "cycles_by": total.as_dict(),
        "ipus": schedule.ipus,
        "replicas": schedule.replicas,
        "host_in": into,
        "host_out": out,
        "memory": {"max": int(memory.max), "limit": int(memory.limit), "fits": memory.fits},
        "stages": _stages(charged),
        "busy": _busy(charged),
        "once": weighed.once,
        "waits": {kind: wait.as_dict() for kind, wait in weighed.waits.items()},
        "loop": max((_loop(charged, node) for node in _loops(schedule)), key=lambda loop: loop["cycles"], default=None),
    }


def host_bytes(charged: Charged) -> tuple[int, int]:
    """Bytes that the host sends to all replicas in one device iteration, and that it gets from them."""
    schedule, times = charged.schedule, charged.schedule.times_run()
    into, out = charged.charger.ends_bytes()
    for function in schedule.all_functions():
        for node in function.nodes:
            if isinstance(node, Step) and has(node.operation, "host"):
                into += times[function.name] * sum(use.type.bytes for use in node.results)
                out += times[function.name] * (0 if node.results else sum(use.type.bytes for use in node.operands))
    return into * schedule.replicas, out * schedule.replicas


def _loops(schedule: Schedule) -> Iterator[Repeat]:
    """Loops of the main program, which run over micro-batches."""
    return (node for node in schedule.main.nodes if isinstance(node, Repeat) and node.count)


def _loop(charged: Charged, node: Repeat) -> dict[str, Any]:
    slots, cycles = charged.charger.slots.get(id(node), Slots(0.0, 0)), charged.charger.total(node).total
    row = {"count": node.count, "stages": node.stages, "cycles": cycles}
    return row | {"slot": slots.length, "ramp": slots.ramp, "bubble": slots.bubble}


def _stages(charged: Charged) -> list[dict[str, Any]]:
    by_ipu: dict[int, Cycles] = {}
    stages: dict[int, set[int]] = {}
    for (ipu, stage, _), cycles in _places(charged, charged.schedule.main).items():
        by_ipu[ipu] = by_ipu.get(ipu, Cycles()) + cycles
        stages.setdefault(ipu, set()).add(stage)
    whole = charged.cycles.total or 1.0
    rows = []
    for ipu in sorted(by_ipu):
        shares = {kind: max(0.0, getattr(by_ipu[ipu], kind)) / whole for kind in WORK}
        rows.append({"ipu": ipu, "stages": sorted(stages[ipu]), **shares})
    return rows


def _places(charged: Charged, function: Function) -> dict[Place, Cycles]:
    """Cycles by place, with those of a pipelined loop where they are spent: there it is no longer than its slots."""
    charger = charged.charger
    found = dict(charger.stages[function.name])
    for node in function.nodes:
        if isinstance(node, Repeat) and id(node) in charger.slots:
            found[place_of(node)] += charger.total(node) * -1.0
            for place, cycles in charger.stages[node.function].items():
                found[place] = found.get(place, Cycles()) + cycles * node.count
    return found


def _busy(charged: Charged) -> float:
    schedule, times = charged.schedule, charged.schedule.times_run()
    busy = slowest = 0.0
    for function in schedule.all_functions():
        for node in function.nodes:
            if isinstance(node, Step) and node.plan.sets:
                plan = charged.charger.plan(node)
                busy += plan.busy * times[function.name]
                slowest += plan.cycles.compute * times[function.name]
    return busy / (slowest * schedule.tiles) if slowest else 0.0

"""What a reader of a profile should know: what is assumed, what is left out, and what does not fit streaming memory."""

from __future__ import annotations

from abele.charge.cycles import streamed_bytes
from abele.charge.overlap import overlapped
from abele.ir.operation import has
from abele.machine.system import System
from abele.schedule.liveness import Liveness
from abele.schedule.records import Repeat, Schedule


def notes_on(schedule: Schedule, system: System, live: Liveness, hidden: float) -> tuple[str, ...]:
    """The notes of a profile.

    Args:
        hidden: cycles of the host beside one turn of the program, see ``charge.overlap.Hidden.alone``.
    """
    notes = [
        "Cycles and bytes are modelled: vertex estimates from the published libraries, exchange from bytes received.",
        "Vertex state, control code and stacks of a tile are assumed sizes.",
        "begin, end: before and after the program, its data come from the host and its results go there; end has the "
        f"host's way back to the next step too ({1e6 * system.host_return_seconds:g} µs, "
        f"{system.provenance('host_return_seconds').confidence}).",
    ]
    if any(isinstance(m.node, Repeat) and m.node.stages > 1 for m in live.moments):
        notes.append("A pipeline is charged as slots of its slowest IPU, the slots that fill and drain it included.")
    if schedule.replicas > 1:
        notes.append("Collectives over replicas are rings over links and gateways; no measured one is public.")
    if schedule.load is not None:
        count = sum(step.operation == "host_store" for _, step in schedule.load.steps())
        notes.append(
            f"What depends on weights alone ({count} of the states) is made once, when weights are loaded; the time of "
            "that is not charged."
        )
    if schedule.io_tiles:
        notes.append(f"{schedule.io_tiles} tiles of each IPU are set aside for transfers. {_buffers(schedule, system)}")
    if hidden:
        notes.append(
            "Transfers of the host run beside the samples before and behind; one sample by itself waits "
            f"{1e6 * system.chip.seconds(hidden):.1f} µs for its own."
        )
    remote = {live.storage[t.name] for t in schedule.tensors.values() if t.kind == "remote"}
    remote = sum(schedule.tensors[name].type.bytes for name in remote) * schedule.replicas
    if remote > system.streaming_memory():
        notes.append(
            f"States in streaming memory take {remote / 1e9:.1f} GB; the system's machines have "
            f"{system.streaming_memory() / 1e9:.1f} GB of it."
        )
    return tuple(notes)


def _buffers(schedule: Schedule, system: System) -> str:
    """What the tiles that are set aside hold: one buffer being filled and one being emptied of the largest stream, and
    all that stand next to one another in the schedule."""
    streams: dict[tuple[str, int], int] = {}
    largest = 0
    for _, step in schedule.steps():
        if overlapped(step):
            if has(step.operation, "host"):
                key = step.operation, step.origin.ipu
                streams[key] = streams.get(key, 0) + streamed_bytes(step)
            largest = max(largest, streamed_bytes(step))
    held = -(-2 * max(largest, *streams.values(), 0) // schedule.io_tiles)
    fits = "fits" if held <= system.chip.tile_memory else "is more than they have: set more aside"
    return f"Each holds {held:,} bytes in two buffers, which {fits}."

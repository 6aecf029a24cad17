"""Energy of a schedule: its work counted over all IPUs, and the machine's power over its time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from abele.ir.types import DType
from abele.machine.energy import Energy, energy
from abele.machine.energy import Work as Done
from abele.machine.system import System
from abele.schedule.records import Step
from abele.schedule.vertex import vertex_kind


@dataclass(frozen=True, slots=True)
class StepWork:
    """What all runs of a step do on one replica, in flops and bytes.

    Attributes:
        step: the step; ``None`` for the host's exchange before and after the program.
        touched: bytes that vertices load and store.
        received, linked: bytes over the exchange and over links.
        streamed: bytes to and from streaming memory or the host.
    """

    step: Step | None
    flops: float = 0.0
    touched: float = 0.0
    received: float = 0.0
    linked: float = 0.0
    streamed: float = 0.0


def uses_matrix_unit(step: Step) -> bool:
    """True when vertices of the step's plan hold code for the matrix unit (``Amp…``): its flops are counted there.

    Products that are planned for the vector unit alone (``Hmac``, ``Vmac``, ``Slic``, ``OuterProduct``) are not.
    """
    return any(code.startswith("Amp") for cs in step.plan.sets for code in vertex_kind(cs.vertex).code)


def schedule_energy(
    system: System,
    seconds: float,
    work: Iterable[StepWork],
    replicas: int,
    ipus: int,
) -> Energy:
    """Energy of one device iteration on the IPUs that the schedule uses.

    Args:
        work: of each step, and of the ends of the program.
        ipus: IPUs that are used, all replicas together.
    """
    macs = {DType.F16: 0.0, DType.F32: 0.0}
    vector = sram = exchange = links = streamed = 0.0
    for each in work:
        if each.step is not None and uses_matrix_unit(each.step) and each.step.operands:
            dtype = each.step.operands[0].type.dtype
            macs[DType.F32 if dtype == DType.F32 else DType.F16] += (
                each.flops / 2
            )  # of 8-bit floats as of half: assumed
        else:
            vector += each.flops
        sram += each.touched
        exchange += each.received
        links += each.linked
        streamed += each.streamed
    done = Done(
        macs_f16=macs[DType.F16] * replicas,
        macs_f32=macs[DType.F32] * replicas,
        vector_flops=vector * replicas,
        sram_bytes=sram * replicas,
        exchange_bytes=exchange * replicas,
        link_bytes=links * replicas,
        streaming_bytes=streamed * replicas,
    )
    return energy(system.with_ipus(ipus), seconds, done)

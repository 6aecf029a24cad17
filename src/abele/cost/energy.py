"""Energy of a schedule: its work counted over all IPUs, and the machine's power over its time."""

from __future__ import annotations

from collections.abc import Iterable

from abele.ir.types import DType
from abele.machine.energy import Energy, energy
from abele.machine.energy import Work as Done
from abele.machine.system import System
from abele.schedule.records import Step

MATRIX = frozenset({"matmul", "conv", "conv_input_grad", "conv_weight_grad", "lstm", "lstm_grad", "gru", "gru_grad"})
"""Operations whose flops are multiply-accumulates of the matrix unit."""


def uses_matrix_unit(step: Step) -> bool:
    """True when the flops of the step, or of the root of a fused one, run on the matrix unit."""
    return str(step.attributes.get("root", step.operation)) in MATRIX


def schedule_energy(
    system: System,
    seconds: float,
    work: Iterable[tuple[Step, float, float, float, float]],
    replicas: int,
    ipus: int,
) -> Energy:
    """Energy of one device iteration on the IPUs that the schedule uses.

    Args:
        work: for each step, itself and what all its runs do on one replica: flops, bytes that vertices load and
            store, bytes received over the exchange, bytes over links.
        ipus: IPUs that are used, all replicas together.
    """
    macs = {DType.F16: 0.0, DType.F32: 0.0}
    vector = sram = exchange = links = 0.0
    for step, flops, touched, received, linked in work:
        if uses_matrix_unit(step) and step.operands:
            dtype = step.operands[0].type.dtype
            macs[DType.F16 if dtype == DType.F16 else DType.F32] += flops / 2
        else:
            vector += flops
        sram += touched
        exchange += received
        links += linked
    done = Done(
        macs_f16=macs[DType.F16] * replicas,
        macs_f32=macs[DType.F32] * replicas,
        vector_flops=vector * replicas,
        sram_bytes=sram * replicas,
        exchange_bytes=exchange * replicas,
        link_bytes=links * replicas,
    )
    return energy(system.with_ipus(ipus), seconds, done)

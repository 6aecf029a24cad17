"""Energy of a program: average power times time, and how that divides over kinds of work.

The total rests on the machine's average power under load, which is public; how much each kind of work takes is
not, so the split uses energies per operation that are assumed (``joules_per_*`` of the chip and system).
"""

from __future__ import annotations

from dataclasses import dataclass

from abele.machine.system import System


@dataclass(frozen=True, slots=True)
class Work:
    """What a program did on all IPUs together: counts of operations and bytes."""

    macs_f16: float = 0.0
    macs_f32: float = 0.0
    vector_flops: float = 0.0
    sram_bytes: float = 0.0
    exchange_bytes: float = 0.0
    link_bytes: float = 0.0
    streaming_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Energy:
    """``joules`` in all, and parts of it that add up to it.

    ``rest`` is what the average power leaves over the idle power and the counted work: the machine's own
    electronics, gateways, losses. ``scale`` is below 1 where idle and work, by the assumed energies, came to
    more than the average power: they were scaled down to fit it.
    """

    joules: float
    parts: dict[str, float]
    scale: float
    basis: str


def energy(system: System, seconds: float, work: Work | None = None) -> Energy:
    """Energy of ``seconds`` on ``system``: its average power under load times the time, split by ``work``.

    Parts are ``idle``, ``matrix``, ``vector``, ``memory``, ``exchange``, ``links``, ``streaming`` and ``rest``.
    """
    chip, work = system.chip, work or Work()
    joules = system.watts * seconds
    parts = {
        "idle": chip.idle_watts * system.ipus * seconds,
        "matrix": work.macs_f16 * chip.joules_per_mac_f16 + work.macs_f32 * chip.joules_per_mac_f32,
        "vector": work.vector_flops * chip.joules_per_vector_flop,
        "memory": work.sram_bytes * chip.joules_per_sram_byte,
        "exchange": work.exchange_bytes * chip.joules_per_exchange_byte,
        "links": work.link_bytes * system.joules_per_link_byte,
        "streaming": work.streaming_bytes * system.joules_per_streaming_byte,
    }
    counted = sum(parts.values())
    scale = min(1.0, joules / counted) if counted > 0 else 1.0
    parts = {name: part * scale for name, part in parts.items()}
    parts["rest"] = max(0.0, joules - sum(parts.values()))
    power = system.provenance("machine_watts")
    basis = (
        f"{system.watts:.4g} W on average under load ({power.confidence}: {power.source}) × time; "
        "the split uses assumed energies per operation and byte"
    )
    return Energy(joules, parts, scale, basis)

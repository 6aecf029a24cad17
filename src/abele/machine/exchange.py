"""Time of communication from one place to another: on-chip exchange, syncs, links, gateways, host, streaming memory.

What all replicas do together is in ``collectives``.

On-chip costs are in tile cycles of the busiest tile, since an exchange ends for all tiles together; everything
that leaves the chip is in seconds. All functions are closed formulas over bytes and accept NumPy arrays of them.
"""

from __future__ import annotations

import math

import numpy as np

from abele.errors import InvalidOption
from abele.machine.chip import Chip
from abele.machine.cycles.arith import Count, ceil_div, choose, largest
from abele.machine.system import System


def exchange_cycles(
    chip: Chip,
    received: Count,
    sent: Count = 0,
    *,
    paired: bool = False,
    messages: Count = 0,
    distance: float = 0.0,
) -> Count:
    """Cycles of one on-chip exchange, sync apart.

    Words follow one another at the rate of the exchange, from one message to the next too: the instructions that turn
    a tile to the next sender and place are given while words still arrive, so that only messages shorter than those
    instructions make a tile wait.

    Args:
        received, sent: bytes in and out of the busiest tile; what every tile of a broadcast reads is sent once.
        paired: the tiles of a shared bus receive the same data, which doubles the rate (graphcore/poplibs,
            ExchangeEstimator).
        messages: runs of bytes that the busiest tile receives, each from one sender to adjoining places; 0 where they
            are not known, or long.
        distance: mean difference of the numbers of receiving and sending tile, 0 where it is not known; only a chip
            with an exchange of its own (``chip.exchange_cost``) asks for it. On an IPU all tiles are as far apart.

    Zero bytes cost nothing. Sources: the rate and how near the machine comes to it are the chip's
    ``exchange_bytes_per_cycle`` and ``exchange_efficiency``; that messages join without a gap is seen in exchange
    programs of the vendor's compiler (osmarks/ipu-stack, docs/EXCHANGE_INSTRUCTION_REFERENCE.md).
    """
    if chip.exchange_cost is not None:
        return chip.exchange(received, sent, paired=paired, messages=messages, distance=distance)
    none = received * 0
    both = (none, received) if paired else (received, none)
    return exchange_cycles_two_rates(chip, *both, sent, messages=messages)


def exchange_cycles_two_rates(
    chip: Chip, single: Count, paired: Count, sent: Count = 0, *, messages: Count = 0, distance: float = 0.0
) -> Count:
    """As ``exchange_cycles``, where some bytes come at the rate of a shared bus (``paired``) and the rest do not."""
    if chip.exchange_cost is not None:
        return exchange_cycles(chip, single + paired, sent, messages=messages, distance=distance)
    rate = chip.exchange_bytes_per_cycle * chip.exchange_efficiency
    receiving = _whole(single / rate + paired / (rate * chip.tiles_per_exchange_bus))
    receiving = largest(receiving, messages * chip.exchange_receive_instructions)
    moving = largest(receiving, _whole(sent / rate))
    return choose((single > 0) | (paired > 0) | (sent > 0), chip.exchange_start_cycles + moving, 0)


def pairs_share(run: Count, blocks: Count, bus: int, first: int = 0) -> Count:
    """True when neighbouring tiles on a bus receive the same bytes, so that the exchange runs ``paired``.

    ``run`` successive ones of the ``blocks`` blocks, laid from tile ``first`` on, read the same. Buses of ``bus`` tiles
    must lie within runs, or all blocks must read the same (graphcore/poplibs, ExchangeEstimator).
    """
    return (run > 1) & ((run == blocks) | ((run % bus == 0) & (first % bus == 0)))


def _whole(cycles: Count) -> Count:
    """Cycles rounded up to whole ones."""
    return np.ceil(cycles).astype(np.int64) if isinstance(cycles, np.ndarray | np.generic) else math.ceil(cycles)


def exchange_code_bytes(chip: Chip, received: Count = 0, sent: Count = 0, sent_bytes: Count = 0) -> Count:
    """Exchange code on a tile for one exchange, in bytes.

    Args:
        received: messages that the tile receives. Each takes ``exchange_receive_instructions``: the source, the place,
            the time; what follows goes to the next addresses by itself.
        sent, sent_bytes: messages that it sends, and their bytes: a send instruction names how much, up to
            ``exchange_send_bytes``; what several tiles receive is sent once.

    Sources: the instructions are those of Graphcore's patent US 11,321,272; their numbers are the chip's.
    """
    sends = largest(sent, ceil_div(sent_bytes, chip.exchange_send_bytes))
    return (received * chip.exchange_receive_instructions + sends) * chip.instruction_bytes


def sync_cycles(system: System, ipus: int = 1) -> int:
    """Cycles of a sync over ``ipus`` IPUs: the chip's own for one, else the global sync.

    Beyond one IPU the larger of the published global sync and of 15 ns for each hop, out and back, over
    1 + ipus/4 hops of a link domain (graphcore/poplibs). Domains sync over their gateways, out and back.
    """
    if ipus <= 1:
        return system.chip.sync_cycles
    domain = system.ipus_per_link_domain
    cycles = max(system.global_sync_cycles, hop_sync_cycles(system, min(ipus, domain)))
    return cycles + (math.ceil(system.chip.cycles(2 * system.gateway_latency_seconds)) if ipus > domain else 0)


def hop_sync_cycles(system: System, ipus: int) -> int:
    """Cycles that a sync signal travels over ``ipus`` IPUs: two ways, ``sync_hop_seconds`` a hop."""
    hops = 1 + (ipus // 2) // 2
    # rounded first: 15 ns and a clock in Hz are not exact in binary
    return math.ceil(round(system.sync_hop_seconds * system.chip.clock_hz * hops * 2, 6))


def link_rate(system: System, links: float = 1) -> float:
    """Usable bytes/s of ``links`` IPU-Links in one direction."""
    return links * system.link_bytes_per_second * system.link_efficiency


def link_seconds(system: System, bytes: float, source: int, target: int) -> float:
    """Time to move ``bytes`` from one IPU to another, nothing else on the way.

    Within a link domain IPUs form a ladder: a pair has four links between its two, and two lead up and two down
    (graphcore/poplibs test utilities), so a pair's traffic goes over four and any other over two. Farther off it
    goes by the gateways.
    """
    if source == target:
        return 0.0
    for ipu in (source, target):
        if not 0 <= ipu < system.ipus:
            raise InvalidOption(f"IPU {ipu} of the system '{system.name}'", remedy=f"It has 0 to {system.ipus - 1}.")
    domain = system.ipus_per_link_domain
    if source // domain != target // domain:
        return system.gateway_latency_seconds + bytes / system.gateway_bytes_per_second
    rungs = abs(source // 2 - target // 2)
    across = int(source % 2 != target % 2)
    links = min(4 if rungs == 0 else 2, system.links_per_ipu)
    return (rungs + across) * system.link_latency_seconds + bytes / link_rate(system, links)


def host_seconds(system: System, bytes: float) -> float:
    """Time of one host exchange of ``bytes`` for each IPU in one direction; zero bytes cost nothing."""
    return system.host_latency_seconds + bytes / system.host_bytes_per_second if bytes > 0 else 0.0


def streaming_seconds(system: System, bytes: float) -> float:
    """Time to move ``bytes`` for each IPU to or from streaming memory, all IPUs of a machine at once."""
    sharing = min(system.ipus, system.ipus_per_machine)
    return bytes * sharing / system.streaming_bytes_per_second

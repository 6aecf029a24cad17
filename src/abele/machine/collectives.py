"""Time of collectives over replicas: all-reduce, reduce-scatter, all-gather, all-to-all and broadcast.

A collective runs in groups of replicas: all of them, ``size`` consecutive ones, or ``size`` that are ``stride`` apart
(PopART's ``CommGroup`` and ``ReplicaGrouping``); all groups run at once. Every IPU of a replica joins its fellows of
the other replicas. Replicas lie one after another, IPUs form ladders of IPU-Links (closed to a torus) inside a link
domain, and gateways join the domains. Three algorithms stand against one another, and the fastest is taken:

- *ring*: every member talks to the next alone, inside a domain and, where there are several, across them too;
- *ring + ring*: rings inside each domain spread the data over its members; each then joins the members of the same
  place in the other domains over the gateways, in a ring of domains;
- *ring + halving*: likewise, and the domains are joined through switches by recursive halving and doubling.

The arithmetic is the textbook's; no measured collective of these machines is public. A step of a ring costs the
latency of the way to the next member and one sync of the IPUs between the members, since the machine is
bulk-synchronous; over gateways the sync goes over them too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from abele.errors import InvalidOption, suggest
from abele.machine.exchange import link_rate, sync_cycles
from abele.machine.system import System


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective as it runs.

    Attributes:
        kind: a key of ``KINDS``.
        algorithm: the one that was taken.
        seconds: its time.
        alternatives: seconds of every algorithm by name.
    """

    kind: str
    algorithm: str
    seconds: float
    alternatives: dict[str, float]


@dataclass(frozen=True, slots=True)
class _Way:
    """How ``members`` talk to one another: bytes/s of each in one direction, and seconds that a step costs."""

    members: int
    rate: float
    step: float


def _ring_all_reduce(bytes: float, w: _Way) -> float:
    return 2 * _ring_spread(bytes, w)


def _ring_spread(bytes: float, w: _Way) -> float:
    """A reduce-scatter or all-gather of ``bytes``: a part of them in each of n − 1 steps."""
    return (w.members - 1) * (bytes / w.members / w.rate + w.step)


def _ring_broadcast(bytes: float, w: _Way) -> float:
    """The data passes on in pieces: its time once, and a step for each member on the way."""
    return bytes / w.rate + (w.members - 1) * w.step if w.members > 1 else 0.0


def _ring_all_to_all(bytes: float, w: _Way) -> float:
    """Each part goes the shorter way round: n²/4 steps of bytes/n from each member, over two directions."""
    hops = w.members * w.members // 4
    return hops * bytes / w.members / 2 / w.rate + w.members // 2 * w.step


def _halving_spread(bytes: float, w: _Way) -> float:
    """Recursive halving (or doubling): the bytes of a ring in a step for each power of two."""
    return (1 - 1 / w.members) * bytes / w.rate + _rounds(w) * w.step


def _halving_all_reduce(bytes: float, w: _Way) -> float:
    return 2 * _halving_spread(bytes, w)


def _halving_broadcast(bytes: float, w: _Way) -> float:
    return bytes / w.rate + _rounds(w) * w.step if w.members > 1 else 0.0


def _switched_all_to_all(bytes: float, w: _Way) -> float:
    """Every part goes straight to its place, one step for all of them."""
    return (1 - 1 / w.members) * bytes / w.rate + w.step if w.members > 1 else 0.0


def _rounds(w: _Way) -> int:
    return math.ceil(math.log2(w.members))


_Time = Callable[[float, _Way], float]
_RING: dict[str, _Time] = {
    "all_reduce": _ring_all_reduce,
    "reduce_scatter": _ring_spread,
    "all_gather": _ring_spread,
    "all_to_all": _ring_all_to_all,
    "broadcast": _ring_broadcast,
}
_HALVING: dict[str, _Time] = {
    "all_reduce": _halving_all_reduce,
    "reduce_scatter": _halving_spread,
    "all_gather": _halving_spread,
    "all_to_all": _switched_all_to_all,
    "broadcast": _halving_broadcast,
}
_INSIDE: dict[str, tuple[str, ...]] = {
    "all_reduce": ("reduce_scatter", "all_gather"),
    "reduce_scatter": ("reduce_scatter",),
    "all_gather": ("all_gather",),
    "all_to_all": ("all_to_all",),
    "broadcast": ("reduce_scatter", "all_gather"),  # scattered from the root, and gathered again everywhere
}
"""What the rings inside the domains do around the part that goes over the gateways."""

KINDS = tuple(_RING)


def collective(
    system: System,
    kind: str,
    bytes: float,
    replicas: int,
    ipus_per_replica: int = 1,
    *,
    size: int = 0,
    stride: int = 1,
    active: int = 0,
) -> Collective:
    """A collective over groups of replicas, by the fastest algorithm.

    Args:
        system: the machine.
        kind: one of ``KINDS``.
        bytes: on each IPU, of the whole tensor: the operand of an all-reduce, reduce-scatter, all-to-all or
            broadcast, the result of an all-gather.
        replicas, ipus_per_replica: how the IPUs are used.
        size: replicas in a group, 0 for all.
        stride: distance between the members of a group, in replicas: 1 for consecutive ones,
            ``replicas // size`` for PopART's orthogonal groups.
        active: IPUs of a replica that take part, which share the links between them; 0 for all.

    Raises:
        InvalidOption: there is no such kind, or the groups do not divide the replicas.
    """
    if kind not in _RING:
        raise InvalidOption(f"There is no collective {kind!r}", remedy=suggest(kind, KINDS))
    members = group_size(replicas, size, stride)
    if members <= 1 or bytes <= 0:
        return Collective(kind, "none", 0.0, {})
    found = _times(system, kind, bytes, members, stride * ipus_per_replica, stride * (active or ipus_per_replica))
    best = min(found, key=lambda name: found[name])
    return Collective(kind, best, found[best], found)


def group_size(replicas: int, size: int = 0, stride: int = 1) -> int:
    """Members of each group; raises ``InvalidOption`` where groups of ``size`` and ``stride`` do not divide the
    replicas."""
    members = size or replicas
    if size < 0 or stride < 1 or (members * stride > 1 and replicas % (members * stride)):
        raise InvalidOption(
            f"Groups of {size} replicas, {stride} apart, do not divide {replicas} replicas",
            remedy="The size times the stride must divide the number of replicas; a size of 0 means all.",
        )
    return members


def sent_bytes(kind: str, bytes: float, members: int) -> float:
    """Bytes that one IPU sends over links in a collective of ``bytes``, by the shortest way of its kind."""
    share = 1 - 1 / members
    return bytes * share * (2 if kind == "all_reduce" else 1)


def _times(system: System, kind: str, bytes: float, members: int, apart: int, active: int) -> dict[str, float]:
    """Seconds of each algorithm, when the members of a group lie ``apart`` IPUs from one another, and ``active`` of so
    many IPUs are in a group that runs at once."""
    inside = max(1, min(members, system.ipus_per_link_domain // apart))
    outside = math.ceil(members / inside)
    near_sync, far_sync = (system.chip.seconds(sync_cycles(system, n * apart)) for n in (inside, members))
    # Groups that lie between the members of one share the two columns of links of the ladder with it.
    links = min(system.ring_links, system.links_per_ipu) / max(1.0, active / 2)
    near = _Way(inside, link_rate(system, links), max(1.0, apart / 2) * system.link_latency_seconds + near_sync)
    if outside == 1:
        return {"ring": _RING[kind](bytes, near)}
    step = system.gateway_latency_seconds + far_sync
    crossing = min(active, system.ipus_per_machine)
    slowest = min(near.rate if inside > 1 else math.inf, system.gateway_bytes_per_second / crossing)
    found = {"ring": _RING[kind](bytes, _Way(members, slowest, max(near.step, step)))}
    # Every active IPU of a machine is over the gateways at once, each with the part that it has.
    sharing = math.ceil(min(system.ipus, system.ipus_per_machine) * active / apart)
    far = _Way(outside, system.gateway_bytes_per_second / sharing, step)
    around = sum(_RING[part](bytes, near) for part in _INSIDE[kind]) if inside > 1 else 0.0
    part = bytes if kind == "all_to_all" else bytes / inside
    for name, across in (("ring", _RING), ("halving", _HALVING)):
        found[f"ring + {name}" if inside > 1 else name] = around + across[kind](part, far)
    return found

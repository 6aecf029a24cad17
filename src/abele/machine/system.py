"""A system as data: IPUs in machines, the links between them, the host, streaming memory and power.

``find_system`` gives one by name (``bow-2000``) or from a user's file (``my_chip.py:system``).
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from abele.errors import InvalidOption, suggest
from abele.machine.chip import Chip
from abele.machine.constants import Confidence, Constant, changed, checked, complete, number
from abele.machine.presets import bow, c600, gc200, good_ipu, mk1
from abele.user import load_file


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """``ipus`` chips, ``ipus_per_machine`` in a machine, joined by IPU-Links and, beyond a domain, gateways.

    Bandwidths are bytes/s in one direction. Each numeric field has a `Constant` in ``constants``.
    """

    name: str
    chip: Chip
    ipus: int
    ipus_per_machine: int

    link_bytes_per_second: float = number("B/s per link per direction")
    links_per_ipu: int = number("links")
    ring_links: int = number("links per direction")  # links that one direction of a ring of IPUs can use
    link_efficiency: float = number("of the raw rate")
    link_latency_seconds: float = number("s")
    ipus_per_link_domain: int = number("IPUs")
    gateway_bytes_per_second: float = number("B/s per machine per direction")
    gateway_latency_seconds: float = number("s")
    host_bytes_per_second: float = number("B/s per IPU per direction")
    host_latency_seconds: float = number("s")
    host_return_seconds: float = number("s")  # from the end of a device iteration to the next, beside transfers
    streaming_bytes: float = number("B per machine")
    streaming_bytes_per_second: float = number("B/s per machine per direction")
    sync_hop_seconds: float = number("s")
    global_sync_cycles: int = number("cycles")
    machine_watts: float = number("W per machine")
    joules_per_link_byte: float = number("J/B")
    joules_per_streaming_byte: float = number("J/B")

    constants: Mapping[str, Constant] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "constants", complete(self, self.constants))
        checked(self, whole=("ipus", "ipus_per_machine"))
        if self.ipus < 1 or self.ipus_per_machine < 1:
            raise InvalidOption(
                f"The system '{self.name}' has {self.ipus} IPUs, {self.ipus_per_machine} in a machine",
                remedy="Both must be at least 1.",
            )

    @property
    def machines(self) -> int:
        """Machines that hold the IPUs."""
        return -(-self.ipus // self.ipus_per_machine)

    @property
    def tiles(self) -> int:
        """Tiles of all IPUs."""
        return self.ipus * self.chip.tiles

    @property
    def watts(self) -> float:
        """Average power under load: the share of its machines that the IPUs stand for."""
        return self.machine_watts * self.ipus / self.ipus_per_machine

    def with_ipus(self, ipus: int, name: str | None = None) -> System:
        """The same machines with another number of IPUs; named ``<name>-x<ipus>`` unless a name is given."""
        if ipus == self.ipus and name is None:
            return self
        return dataclasses.replace(self, ipus=ipus, name=name or f"{re.sub('-x[0-9]+$', '', self.name)}-x{ipus}")

    def derive(self, name: str, *, chip: Chip | None = None, **changes: float | Constant) -> System:
        """A system like this one with another chip or other numbers; an unknown field raises.

        ``machine_watts`` goes with the ``load_watts`` of another chip, in proportion, unless it is given.
        """
        constants = dict(self.constants)
        if chip is not None and chip.load_watts != self.chip.load_watts and self.chip.load_watts:
            watts = self.machine_watts * chip.load_watts / self.chip.load_watts
            source = f"assumed: '{self.name}' in proportion to load_watts of '{chip.name}'"
            changes = {"machine_watts": Constant(watts, "W per machine", source, "assumed"), **changes}
        values = changed(self, changes, constants)
        return dataclasses.replace(self, name=name, chip=chip or self.chip, constants=constants, **values)

    def provenance(self, name: str) -> Constant:
        """The `Constant` behind the numeric field ``name``: value, unit, source, confidence."""
        try:
            return self.constants[name]
        except KeyError:
            raise InvalidOption(f"A system has no field '{name}'", remedy=suggest(name, self.constants)) from None

    def peak_flops(self, dtype: str = "f16", partials: str | None = None) -> float:
        """Peak flop/s of all IPUs."""
        return self.ipus * self.chip.peak_flops(dtype, partials)

    def memory(self) -> int:
        """Bytes of tile memory of all IPUs."""
        return self.ipus * self.chip.memory()

    def streaming_memory(self) -> float:
        """Bytes of streaming memory of all machines."""
        return self.streaming_bytes * self.machines

    def key(self) -> str:
        """A digest of everything that a plan or a cost reads, the chip and its vertex costs included."""
        digest = hashlib.sha256(self.chip.key().encode())
        for f in dataclasses.fields(self):
            if f.name not in ("chip", "constants"):
                digest.update(f"{f.name}={getattr(self, f.name)!r};".encode())
        return digest.hexdigest()


def _c(value: float, unit: str, source: str, confidence: Confidence) -> Constant:
    return Constant(value, unit, source, confidence)


_LADDER = "graphcore/poplibs test utilities: 128 Gbit/s a link and direction, 85 % of it usable"
_MK2_LINKS: dict[str, Constant] = {
    "link_bytes_per_second": _c(16e9, "B/s per link per direction", _LADDER, "published"),
    "links_per_ipu": _c(10, "links", "assumed: 10 links, 320 GB/s both ways, as a blog recalls", "assumed"),
    "ring_links": _c(2, "links per direction", "the ladder of graphcore/poplibs: 2 links up, 2 down", "derived"),
    "link_efficiency": _c(0.85, "of the raw rate", _LADDER, "published"),
    "link_latency_seconds": _c(0.6e-6, "s", "assumed: no public figure for Mk2 or Bow", "assumed"),
    "ipus_per_link_domain": _c(64, "IPUs", "docs.graphcore.ai: IPU-Links join up to 16 machines", "published"),
    "gateway_bytes_per_second": _c(
        25e9,
        "B/s per machine per direction",
        "docs.graphcore.ai, M2000 and Bow-2000: 2 x 100 Gbit/s",
        "published",
    ),
    "gateway_latency_seconds": _c(2.5e-6, "s", "assumed: no public figure", "assumed"),
    "host_bytes_per_second": _c(
        20e9,
        "B/s per IPU per direction",
        "graphcore/tutorials, tutorial 6: 40 MB in 2.64 million cycles on an IPU",
        "derived",
    ),
    "host_latency_seconds": _c(10e-6, "s", "assumed: one host exchange over the network", "assumed"),
    "host_return_seconds": _c(
        20e-6,
        "s",
        "assumed: a host exchange out and one back; what else a host does between two updates (reading the loss, new "
        "rates, checkpoints) is milliseconds in published pod runs, and documented nowhere",
        "assumed",
    ),
    "streaming_bytes": _c(448e9, "B per machine", "M2000 exchange memory of 448 to 450 GB, as announced", "published"),
    "streaming_bytes_per_second": _c(
        20e9, "B/s per machine per direction", "assumed: a recalled vendor figure, never measured", "assumed"
    ),
    "sync_hop_seconds": _c(15e-9, "s", "graphcore/poplibs: 15 ns a hop, out and back", "published"),
    "global_sync_cycles": _c(
        600, "cycles", "public IPU21 compiler source (getGlobalSyncCycles); 500 to 642 on 16 Mk1", "assumed"
    ),
    "machine_watts": _c(
        1036.0,
        "W per machine",
        "Bow-2000 average divided by 1.4 / 1.16 (vendor's ratios); 1.5 kW at most",
        "derived",
    ),
    "joules_per_link_byte": _c(20e-12, "J/B", "assumed: 2.5 pJ a bit, both ends", "assumed"),
    "joules_per_streaming_byte": _c(100e-12, "J/B", "assumed: DRAM and the way to it", "assumed"),
}
_BOW_LINKS = _MK2_LINKS | {
    "streaming_bytes": _c(256e9, "B per machine", "docs.graphcore.ai, Bow-2000: up to 256 GB", "published"),
    "machine_watts": _c(1250.0, "W per machine", "eenewseurope.com: Bow-2000 average", "published"),
}
_C600_LINKS = _MK2_LINKS | {
    "link_bytes_per_second": _c(
        15.6e9, "B/s per link per direction", "docs.graphcore.ai, C600: 4 links of 1 Tbit/s in all", "derived"
    ),
    "links_per_ipu": _c(4, "links", "docs.graphcore.ai, C600", "published"),
    "ipus_per_link_domain": _c(8, "IPUs", "assumed: cards joined by their links in one server", "assumed"),
    "streaming_bytes": _c(32e9, "B per machine", "assumed: host memory set aside for a card", "assumed"),
    "machine_watts": _c(185.0, "W per machine", "docs.graphcore.ai, C600: TDP 185 W", "published"),
}
_MK1_LINKS = _MK2_LINKS | {
    "host_bytes_per_second": _c(
        8e9, "B/s per IPU per direction", "half of a Gen3 x16 slot shared by two IPUs", "assumed"
    ),
    "streaming_bytes": _c(32e9, "B per machine", "assumed: host memory set aside for a board", "assumed"),
    "machine_watts": _c(300.0, "W per machine", "assumed: the C2 board's recalled power", "assumed"),
}
_GOOD = "the Good computer as announced (March 2022)"
_GOOD_LINKS = {
    name: _c(c.value, c.unit, f"assumed: a Bow-2000's; {_GOOD} says nothing of it", "assumed")
    for name, c in _BOW_LINKS.items()
} | {
    "streaming_bytes": _c(2e12, "B per machine", f"assumed: {_GOOD}, up to 4 PB over 8192 IPUs", "assumed"),
    "streaming_bytes_per_second": _c(
        4.9e12,
        "B/s per machine per direction",
        f"assumed: {_GOOD}, over 10 PB/s over 8192 IPUs, taken for this memory",
        "assumed",
    ),
    "machine_watts": _c(2500.0, "W per machine", "assumed: two Bow dies an IPU", "assumed"),
}


def _system(name: str, chip: Chip, ipus: int, per_machine: int, constants: Mapping[str, Constant]) -> System:
    numbers: dict[str, Any] = {key: constant.value for key, constant in constants.items()}
    return System(name=name, chip=chip, ipus=ipus, ipus_per_machine=per_machine, constants=dict(constants), **numbers)


_LINKS = {
    "mk1": _MK1_LINKS,
    "gc200": _MK2_LINKS,
    "bow": _BOW_LINKS,
    "c600": _C600_LINKS,
    "good-ipu": _GOOD_LINKS,
}
_OWN_LINKS = {
    name: _c(c.value, c.unit, f"a Bow-2000's, for want of another: {c.source}", "assumed")
    for name, c in _BOW_LINKS.items()
}


def one_ipu(chip: Chip) -> System:
    """One IPU of ``chip`` by itself. Its power is the chip's own; its links, host and streaming memory are those of
    the machine that a chip of this name was sold in, and for any other name a Bow-2000's, recorded as assumed."""
    power = Constant(
        chip.load_watts, "W per machine", "the chip's load_watts", chip.provenance("load_watts").confidence
    )
    return _system(chip.name, chip, 1, 1, _LINKS.get(chip.name, _OWN_LINKS) | {"machine_watts": power})


_PODS = (4, 16, 32, 64, 128, 256)
_LARGEST = 64_000  # docs.graphcore.ai, IPU-Fabric of M2000 and Bow-2000: up to 64,000 IPUs, 16 and 23 EFLOPS

SYSTEMS: dict[str, System] = {
    system.name: system
    for system in (
        one_ipu(mk1),
        _system("mk1-c2", mk1, 2, 2, _MK1_LINKS),
        one_ipu(gc200),
        _system("m2000", gc200, 4, 4, _MK2_LINKS),
        *(_system(f"pod{n}", gc200, n, 4, _MK2_LINKS) for n in _PODS),
        _system("m2000-64000", gc200, _LARGEST, 4, _MK2_LINKS),
        one_ipu(bow),
        _system("bow-2000", bow, 4, 4, _BOW_LINKS),
        *(_system(f"bow-pod{n}", bow, n, 4, _BOW_LINKS) for n in _PODS),
        _system("bow-64000", bow, _LARGEST, 4, _BOW_LINKS),
        _system("c600", c600, 1, 1, _C600_LINKS),
        one_ipu(good_ipu),
        _system("good", good_ipu, 8192, 4, _GOOD_LINKS),
    )
}
"""The systems that Abele knows, by name; the name of a chip is one IPU of it."""


def list_systems() -> list[System]:
    """Every known system, oldest generation first."""
    return list(SYSTEMS.values())


def find_system(name: str | System | Chip) -> System:
    """A system by name, or from a user's file as ``path/file.py:name``.

    The file's object may be a `System`, or a `Chip`, which stands for one IPU of it.

    Raises:
        InvalidOption: no such system, file or name; near names are suggested.
        UserProgramError: the user's file raised.
    """
    if isinstance(name, System):
        return name
    if isinstance(name, Chip):
        return one_ipu(name)
    path, colon, variable = name.rpartition(":")
    if colon and path.endswith(".py"):
        return _from_file(Path(path), variable)
    if name.endswith(".py"):
        raise InvalidOption(f"'{name}' is a file", remedy=f"Name the system in it, as {name}:system.")
    try:
        return SYSTEMS[name.lower()]
    except KeyError:
        raise InvalidOption(
            f"No system '{name}'",
            remedy=f"{suggest(name.lower(), SYSTEMS)} Your own is named as file.py:name.".strip(),
        ) from None


def _from_file(path: Path, variable: str) -> System:
    module = load_file(path, "A system of your own is named as file.py:name.")
    found = getattr(module, variable, None)
    if isinstance(found, (System, Chip)):
        return find_system(found)
    described = [key for key, value in vars(module).items() if isinstance(value, (System, Chip))]
    what = (
        f"There is no '{variable}' in '{path}'"
        if found is None
        else f"'{variable}' in '{path}' is a {type(found).__name__}, not a System or a Chip"
    )
    raise InvalidOption(what, remedy=suggest(variable, described))

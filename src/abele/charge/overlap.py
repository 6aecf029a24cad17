"""Transfers beside compute: what streaming memory and the host move while the tiles work, and what is waited for.

An overlapped transfer to or from streaming memory starts where its step stands, behind the transfers before it, and
runs while the program goes on; a step that reads its result waits until it has come. An overlapped host stream belongs
to the micro-batch before or behind, so that a turn of its loop takes the longer of the two.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from abele.ir.operation import has
from abele.schedule.records import Node, Step


def overlapped(node: Node) -> bool:
    """Whether a node is a transfer that runs beside compute."""
    if not isinstance(node, Step) or not node.attributes.get("overlap"):
        return False
    return has(node.operation, "host") or has(node.operation, "remote")


@dataclass
class Channel:
    """The way to streaming memory during one run of a function. Times are cycles from its beginning.

    Attributes:
        now: what the tiles have done until here; ``free``: when the transfers that were started are done.
        ready: when each tensor that is being loaded will have come.
        last: the transfer that was started last.
    """

    now: float = 0.0
    free: float = 0.0
    ready: dict[str, float] = field(default_factory=dict)
    last: Step | None = None

    def start(self, step: Step, cycles: float) -> None:
        """Begin a transfer as soon as those before it are done."""
        self.free = max(self.free, self.now) + cycles
        self.last = step
        self.ready.update(dict.fromkeys(step.makes, self.free))

    def wait(self, node: Node) -> float:
        """Cycles until what a node reads has come; a transfer itself follows those before it without waiting."""
        if overlapped(node):
            return 0.0
        waited = max((self.ready.get(name, 0.0) for name in node.reads), default=0.0) - self.now
        return max(0.0, waited)

    def finish(self) -> float:
        """Cycles at the end until all transfers are done."""
        return max(0.0, self.free - self.now)


@dataclass(frozen=True, slots=True)
class Hidden:
    """What the host moves beside one turn of a program, in cycles: in, for the turn behind, and out, of the one before.

    The link takes both directions at once (``System.host_bytes_per_second`` is of each).
    """

    loads: float = 0.0
    stores: float = 0.0

    def __add__(self, other: Hidden) -> Hidden:
        return Hidden(self.loads + other.loads, self.stores + other.stores)

    @property
    def turn(self) -> float:
        """How long a turn takes at least."""
        return max(self.loads, self.stores)

    @property
    def alone(self) -> float:
        """Before the first turn and behind the last, when there is nothing to hide them."""
        return self.loads + self.stores

    def exposed(self, turn: float, count: int) -> float:
        """Cycles of the host that ``count`` turns of a loop, of ``turn`` cycles of the tiles, do not hide."""
        return self.alone + count * max(0.0, self.turn - turn)

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


def exposed(hidden: float, turn: float, count: int) -> float:
    """Cycles of the host that ``count`` turns of a loop do not hide.

    Args:
        hidden: of the host in one turn.
        turn: of the tiles in one turn.
    """
    # The first data come before there is anything to hide them, the last results go when nothing is left.
    return hidden + count * max(0.0, hidden - turn)

"""When the calls of a model began and ended on this computer."""

from __future__ import annotations


class Latencies:
    """Four moments of each call: inputs given, run begun, run ended, outputs handed back."""

    def __init__(self) -> None:
        self._calls: list[tuple[float, float, float, float]] = []

    def add(self, given: float, begun: float, ended: float, done: float) -> None:
        """Record a call, in seconds of one clock."""
        self._calls.append((given, begun, ended, done))

    def counters(self) -> tuple[list[list[float]], ...]:
        """The moments by kind, each a list with one list for each call, in seconds from the first call."""
        start = self._calls[0][0] if self._calls else 0.0
        return tuple([[call[kind] - start] for call in self._calls] for kind in range(4))

    def between(self, first: int, second: int) -> tuple[float, float, float]:
        """Least, most and mean seconds between two kinds of moments; zeros before the first call."""
        spans = [call[second] - call[first] for call in self._calls]
        if not spans:
            return 0.0, 0.0, 0.0
        return min(spans), max(spans), sum(spans) / len(spans)

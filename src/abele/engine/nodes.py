"""What an engine walks when it runs: functions without arguments, bound to the arrays that they work on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from abele.engine.streams import Stream


@dataclass(frozen=True)
class Timing:
    """Wall seconds of one instruction over all runs, all replicas together.

    ``loading`` says whether it makes a state when weights are loaded, instead of being part of a run.
    """

    operation: str
    provider: str
    seconds: float
    times: int
    loading: bool = False


@dataclass
class Timer:
    """What a `Timing` is gathered in."""

    operation: str
    provider: str
    seconds: float = 0.0
    times: int = 0


def walk(nodes: Sequence) -> None:
    """Run nodes in order; a pair is a loop, of a count and nodes."""
    for node in nodes:
        if type(node) is tuple:
            count, body = node
            for _ in range(count):
                walk(body)
        else:
            node()


def timed(nodes: Sequence[Callable[[], None]], timer: Timer) -> Callable[[], None]:
    """A node that runs nodes and measures them."""

    def run() -> None:
        begin = time.perf_counter()
        for node in nodes:
            node()
        timer.seconds += time.perf_counter() - begin
        timer.times += 1

    return run


def load(stream: Stream, replica: int, target: np.ndarray) -> Callable[[], None]:
    """A node that takes the next micro-batch of a stream into an array."""

    def run() -> None:
        turn = stream.turn[replica]
        target[...] = stream.data[turn, replica]
        stream.turn[replica] = turn + 1

    return run


def store(stream: Stream, replica: int, source: np.ndarray) -> Callable[[], None]:
    """A node that appends an array to a stream."""

    def run() -> None:
        turn = stream.turn[replica]
        stream.data[turn, replica] = source
        stream.turn[replica] = turn + 1

    return run


def copy(source: np.ndarray, target: np.ndarray) -> Callable[[], None]:
    """A node that copies one array to another."""

    def run() -> None:
        np.copyto(target, source)

    return run

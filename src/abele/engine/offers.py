"""What a provider answers: an offer, and what becomes of it when it is bound to arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from abele.codegen import Kernel
from abele.ops.hosts.kernels import Request

Call = tuple[Kernel, tuple[int, ...]]
"""A native kernel, all of its units, and its addresses."""


@dataclass(frozen=True)
class Bound:
    """An operation bound to arrays: native ``calls``, or the Python function ``run``, which comes before them.

    ``prepare_calls`` and ``prepare`` are run before the first use and again when a constant operand has changed.
    """

    calls: tuple[Call, ...] = ()
    run: Callable[[], None] | None = None
    prepare_calls: tuple[Call, ...] = ()
    prepare: Callable[[], None] | None = None


@dataclass(frozen=True)
class Offer:
    """How a provider would run a request.

    Attributes:
        bind: ``bind(operands, results, scratch, packed)`` with the arrays of one replica; results may be the memory
            of an operand where the operation works element by element.
        scratch: bytes of arrays that it uses while it runs.
        packed: bytes of arrays that it keeps between runs.
        kernels: native kernels to compile.
        use_threads: for a ``run`` that divides its work over threads of its own: sets how many those are, for the
            whole process, and returns how many they were. ``None`` for all others.
        work: about how many floating-point operations such a ``run`` is, to decide on threads.
    """

    bind: Callable[[Sequence[np.ndarray], Sequence[np.ndarray], Sequence[np.ndarray], Sequence[np.ndarray]], Bound]
    scratch: tuple[int, ...] = ()
    packed: tuple[int, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    use_threads: Callable[[int], int] | None = None
    work: int = 0


class Provider(Protocol):
    """Something that runs operations."""

    name: str

    def offer(self, request: Request) -> Offer | None:
        """How to run this request, or ``None``."""
        ...

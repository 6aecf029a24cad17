"""Which buffers lie channels-last: one pass over a program, before anything is bound."""

from __future__ import annotations

from abele.engine.program import Program


def orders(program: Program) -> dict[int, tuple[int, ...]]:
    """For every buffer that does not lie row-major: its dimensions as they lie in memory, outermost first."""
    return {}

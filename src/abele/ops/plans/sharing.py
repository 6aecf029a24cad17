"""Exchange of operands that several tiles read: two tiles on a bus that receive the same bytes do so at twice the rate.

Blocks are laid over the tiles with the last axis fastest, so neighbours share an operand when the axes that it does not
follow come last. That can be had for one operand of a product: the one where it saves most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from abele.machine.chip import Chip
from abele.machine.exchange import exchange_cycles, exchange_cycles_two_rates, pairs_share
from abele.ops.plans.search import Parts


def shared_exchange(
    chip: Chip, names: Sequence[str], parts: Parts, received: Sequence[np.ndarray], followed: Sequence[frozenset[str]]
) -> tuple[np.ndarray, np.ndarray]:
    """Cycles of receiving these bytes, and the operand whose readers should be neighbours (-1: none).

    Args:
        received: bytes of each operand on the fullest tile.
        followed: for each operand the axes that cut it.
    """
    plain = exchange_cycles(chip, sum(received[1:], start=received[0]))
    best, chosen = plain, np.full_like(plain, -1)
    blocks = math.prod(parts[name] for name in names)
    for i, mine in enumerate(received):
        run = math.prod((parts[name] for name in names if name not in followed[i]), start=np.ones_like(mine))
        pairs = pairs_share(run, blocks, chip.tiles_per_exchange_bus) & (mine > 0)
        rest = sum((other for j, other in enumerate(received) if j != i), start=np.zeros_like(mine))
        cycles = np.where(pairs, exchange_cycles_two_rates(chip, rest, mine), plain)
        chosen = np.where(cycles < best, i, chosen)
        best = np.minimum(best, cycles)
    return best, chosen


def ordered(names: Sequence[str], followed: frozenset[str] | None) -> list[str]:
    """The axes with those last that an operand does not follow; ``None`` leaves them as they are."""
    if followed is None:
        return list(names)
    return sorted(names, key=lambda name: name not in followed)


def aligned_first(chip: Chip, first: int) -> int:
    """The nearest tile before ``first`` at which a bus starts."""
    return first - first % chip.tiles_per_exchange_bus

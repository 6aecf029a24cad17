"""A chip that nobody built: 256 tiles of 1 MiB in a 16 × 16 mesh at 1 GHz, with an exchange of its own.

abele profile mlp --system examples/mesh_chip.py:system
abele tune mlp --system examples/mesh_chip.py:system
abele sweep mlp --system examples/mesh_chip.py:system --set tiles=64,256,1024 --set exchange_bytes_per_cycle=8,16
"""

import numpy as np

from abele.machine import gc200, one_ipu

HOP_CYCLES = 2  # a router passes a word on


def mesh_exchange(chip, received, sent, *, paired, messages, distance):
    """Cycles of an exchange in which every tile talks to its four neighbours only.

    A tile takes in ``exchange_bytes_per_cycle`` and sends as many; what goes far takes up the links of every tile that
    it passes, four of them to a tile; and the last word travels all its hops.
    """
    side = chip.tiles**0.5
    # tiles are numbered row by row; of two tiles anywhere, rows and columns are a third of the side apart
    hops = min(distance // side + distance % side, side) if distance else 2 / 3 * side
    width = chip.exchange_bytes_per_cycle
    moving = np.ceil(np.maximum(np.maximum(received, sent) / width, received * hops / (4 * width)))
    return np.where((received > 0) | (sent > 0), chip.exchange_start_cycles + moving + HOP_CYCLES * hops, 0)


chip = gc200.derive(
    "mesh",
    generation="example",
    tiles=256,
    tile_memory=2**20,
    clock_hz=1.0e9,
    exchange_bytes_per_cycle=16,
    exchange_start_cycles=20,
    tiles_per_exchange_bus=1,
    exchange_cost=mesh_exchange,
)
system = one_ipu(chip).with_ipus(4)

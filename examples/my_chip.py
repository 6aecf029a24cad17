"""A chip of one's own: 64 big tiles with a slow clock, a wide exchange, and a vertex that it does faster.

abele profile mlp --system examples/my_chip.py:system
"""

from abele.machine import gc200, one_ipu


def gather(chip, *, rows, row_elements, dtype="f16", others=0, spread=True):
    """Cycles of a gather by a copy engine: 40 to start, then 16 bytes a cycle (half elements)."""
    return 40 + rows * (2 + row_elements // 8)


chip = gc200.derive(
    "big-tiles",
    generation="example",
    tiles=64,
    tile_memory=8 * 2**20,
    clock_hz=1.0e9,
    exchange_bytes_per_cycle=32,
    vertex_costs={"Gather": gather},
)
system = one_ipu(chip).with_ipus(4)

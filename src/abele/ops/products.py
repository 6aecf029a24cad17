"""What families whose vertices hold matrix products share: their cycles."""

from __future__ import annotations

import numpy as np

from abele.machine.chip import Chip
from abele.ops.matmul.plan import METHODS, vertex_cycles


def product_cycles(chip: Chip, groups, m, n, k, dtype: str) -> np.ndarray:
    """Tile cycles of ``groups`` products of M × K by K × N with float partials, by the cheapest method of the chip."""
    methods = METHODS[:4] if chip.amp_units(dtype, "f32") else METHODS[2:4]
    return np.minimum.reduce([vertex_cycles(chip, method, groups, m, n, k, dtype, "f32") for method in methods])

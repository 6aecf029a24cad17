"""Cycles of the matrix products that a vertex does, by method: matrix unit, dot products, outer product."""

from __future__ import annotations

import numpy as np

from abele.errors import Unsupported
from abele.machine.chip import Chip
from abele.ops.plans.planning import Question

METHODS = ("amp", "amp_swapped", "hmac", "hmac_swapped", "outer")
"""Vertices of a product; swapped ones take the left operand as weights: the transpose of the product is made."""


def float8_methods(chip: Chip, operation: str, methods: tuple[str, ...]) -> tuple[str, ...]:
    """The methods for products of 8-bit floats: the matrix unit's alone, ``methods``; a chip without them raises."""
    if methods:
        return methods
    raise Unsupported(
        f"{operation} of 8-bit floats: the chip '{chip.name}' has no float8 matrix unit",
        remedy="Compile for a chip that has one (c600), or keep the operands in half.",
    )


def loads_wide(question: Question) -> bool:
    """Whether matrix units load weights at the rate of interleaved memory: for the planner ``best`` they lie there.

    An option of the vendor's library that it leaves off (graphcore/poplibs, poplin: use128BitConvUnitLoad).
    """
    chip = question.chip
    faster = chip.coefficient_wide_load_bytes_per_cycle > chip.coefficient_load_bytes_per_cycle
    return faster and question.options.planner == "best" and not {"Amp1x1", "AmpNx1"} & set(chip.vertex_costs)


def vertex_cycles(
    chip: Chip,
    method: str,
    groups,
    m,
    n,
    k,
    dtype: str,
    partials: str,
    turned: tuple[bool, bool] = (False, False),
    wide: bool = False,
):
    """Tile cycles of ``groups`` products of M × K by K × N; ``turned``: which operands are transposed on the tile;
    ``wide``: see ``loads_wide``."""
    m, n, k, groups = (np.maximum(v, 1) for v in (m, n, k, groups))
    field, outs = (n, m) if method.endswith("_swapped") else (m, n)
    if method == "outer":
        cycles = chip.estimate("OuterProduct", field=field, out_chans=outs, groups=groups, dtype=dtype)
    else:
        name = "Amp1x1" if method.startswith("amp") else "Hmac"
        sizes = {"field": field, "in_chans": k, "out_chans": outs, "groups": groups}
        how = {"wide": True} if wide and name == "Amp1x1" else {}
        cycles = chip.estimate(name, **sizes, dtype=dtype, partials=partials, **how)
    for turn, rows in zip(turned, (m, n), strict=True):
        if turn:
            cycles = cycles + chip.estimate("Transpose", rows=rows, cols=k, dtype=dtype, blocks=groups)
    return cycles


def product_cycles(chip: Chip, groups, m, n, k, dtype: str) -> np.ndarray:
    """Tile cycles of ``groups`` products of M × K by K × N with float partials, by the cheapest method of the chip."""
    methods = METHODS[:4] if chip.amp_units(dtype, "f32") else METHODS[2:4]
    return np.minimum.reduce([vertex_cycles(chip, method, groups, m, n, k, dtype, "f32") for method in methods])

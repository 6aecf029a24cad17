"""Cycle costs of vertices: pure functions of a chip and of what a tile has to do, one module for each family.

``chip.estimate(name, **fields)`` gives **tile cycles**: the time from a tile's start of the vertex to the end of
its last worker, the work split evenly over the workers. Supervisor instructions and the call are in; the compute
set's own start (``chip.compute_set_cycles``), exchange and sync are not. Counts (``n``, ``rows``, ``field`` …) are
integers or NumPy integer arrays with one entry for each class of tiles; the result has their shape. Dtypes are
short names (``f32 f16 f8 i32 u8 bool`` …). Fields in brackets have a default.

=================  ==================================================================================================
vertex             fields
=================  ==================================================================================================
``Amp1x1``         field, in_chans, out_chans, [groups=1, dtype=f16, partials=f16, out_group=units]
``AmpNx1``         as Amp1x1 (partials=f32), kernel, [row=0, kernel_height=1]
``Hmac``           field, in_chans, out_chans, [kernel=1, groups=1, dtype=f16, partials=f32, out_group=0]
``Vmac``           field, channels, kernel, [dtype=f16, partials=f32, channel_group=8]: depthwise
``Slic``           field, row, kernel, channels, [partials=f16, channel_group=4, stride=1]: grouped, half
``OuterProduct``   field, out_chans, [groups=1, dtype=f16]
``ReducePartials`` outputs, depth, [dtype=f32 (of the partials), out=f16, interleaved=False]
``Elementwise``    n, ops (a name or a chain of names), [dtype=f16, operands, broadcast=none|scalar|outer|inner, rows=1]
``Stencil``        rows, width, ops, loads, [unaligned=0, pointers=1, dtype=f32, vector=elements of a word]
``Assemble``       rows, width, [pieces=3, dtype=f32]: rows put together of pieces
``Cast``           n, source, to
``Select``         n, [dtype=f16]
``Reduce``         outputs, depth, [op=add, dtype=f32, out=dtype, layout=auto|strided|continuous|scalar]
``Nonlinearity``   n, kind, [dtype=f16]
``Pool``           field, channels, kernel, [kind=max|avg|sum, dtype=f16, row=0, grad=False]
``ArgReduce``      rows, cols, [dtype=f16]
``TopK``           n, k, [dtype=f16, values=True, rows=1]; k = n sorts
``InvStd``         n, [rows=1, dtype=f32]
``Softmax``        rows, cols, [dtype=f16]: a sum of pieces
``Rnn``            n, [cell=lstm|gru|rnn, dtype=f16]: the cell's elementwise part, fused
``Gather``         rows, row_elements, [dtype=f16, others=0, spread=True]
``ScatterAdd``     rows, row_elements, [dtype=f16, others=0, spread=True]
``DynamicSlice``   n, [slices=1, dtype=f16]
``Copy``           bytes: whole words within the tile
``Rearrange``      bytes, [atom=8]: into another layout, in runs of 8, 4 or 2 bytes
``Transpose``      rows, cols, [dtype=f16, blocks=1]
``Fill``           n, [dtype=f16]
``Random``         n, [dtype=f16, kind=uniform|normal|truncated_normal|dropout|bernoulli]
``SetSeed``        none
=================  ==================================================================================================

Each estimate carries its source and a confidence. ``published`` means that the formula is the library's own
estimator, not that its cycles were measured; only ``Amp1x1`` and float add are compared with measurements here.
"""

from __future__ import annotations

from abele.errors import InvalidOption, suggest
from abele.machine.cycles import convolution, elementwise, matrix, memory, nn, reduce, rng, stencil
from abele.machine.cycles.elementwise import ELEMENTWISE_OPS
from abele.machine.cycles.reduce import REDUCE_OPS
from abele.machine.cycles.registry import ESTIMATES, Estimate, estimate

FAMILIES = (matrix, convolution, elementwise, reduce, nn, memory, rng, stencil)
"""The modules whose estimates are registered."""


def code_bytes(vertex: str) -> int:
    """Bytes of a vertex type's code on every tile that runs it, once however often it runs.

    No public source lists code sizes: all are assumed, from the number of paths in the vertex.
    """
    if vertex not in ESTIMATES:
        raise InvalidOption(f"No code size for the vertex '{vertex}'", remedy=suggest(vertex, ESTIMATES))
    return ESTIMATES[vertex].code_bytes


__all__ = [
    "ELEMENTWISE_OPS",
    "ESTIMATES",
    "FAMILIES",
    "REDUCE_OPS",
    "Estimate",
    "code_bytes",
    "estimate",
]

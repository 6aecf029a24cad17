"""Cycles of neural-network vertices: nonlinearities, pooling, arg-reductions, top-k, deviations.

Softmax and recurrent cells are not single vertices; their estimates are sums of pieces, stated in each.
"""

from __future__ import annotations

from typing import Any

from abele.errors import InvalidOption, suggest
from abele.machine.constants import dtype_bytes
from abele.machine.cycles.arith import Count, ceil_div, choose, largest, log2_ceil, smallest
from abele.machine.cycles.elementwise import cast, elementwise
from abele.machine.cycles.reduce import reduce
from abele.machine.cycles.registry import estimate

_SOURCE = "graphcore/poplibs, popnn/popnnCycleEstimators.cpp"

# (half scalar, half vector, float scalar, float vector)
_ACTIVATIONS: dict[str, tuple[int, int, int, int]] = {
    "relu": (1, 1, 1, 1),
    "sigmoid": (2, 4, 5, 10),
    "tanh": (1, 2, 5, 10),
    "gelu_tanh": (5, 5, 10, 10),
    "gelu": (15, 15, 30, 30),
    "silu": (3, 5, 6, 11),
    "gelu_tanh_grad": (5, 5, 10, 10),
    "gelu_grad": (15, 15, 30, 30),  # assumed: as long as the activation, as popnn has it for the approximation
}


@estimate("Nonlinearity", source=_SOURCE, confidence="published", code_bytes=360)
def nonlinearity(chip: Any, *, n: Count, kind: str, dtype: str = "f16") -> Count:
    """Tile cycles of an activation over ``n`` elements.

    ``kind`` is ``relu``, ``sigmoid``, ``tanh``, ``gelu`` (by erf), ``gelu_tanh`` or ``silu``, or the
    gradient ``gelu_grad`` or ``gelu_tanh_grad``.
    """
    if kind not in _ACTIVATIONS:
        raise InvalidOption(f"No nonlinearity '{kind}'", remedy=suggest(kind, _ACTIVATIONS))
    half = dtype_bytes(dtype) <= 2
    scalar, vector = _ACTIVATIONS[kind][:2] if half else _ACTIVATIONS[kind][2:]
    width = chip.vector_width(dtype)
    vectors = ceil_div(ceil_div(n, width), chip.workers)
    rest = (4 if half else 2) + choose(n % width > 0, 2 + scalar, 0)
    pipelined = 2 + scalar + largest(vectors - 1, 0) * vector + 1 + scalar
    return 9 + chip.workers * (20 + pipelined + rest)


@estimate("Pool", source=_SOURCE, confidence="published", code_bytes=900)
def pool(
    chip: Any,
    *,
    field: Count,
    channels: Count,
    kernel: Count,
    kind: str = "max",
    dtype: str = "f16",
    row: Count = 0,
    grad: bool = False,
) -> Count:
    """Tile cycles of max or average pooling.

    Args:
        field: output positions on the tile (input positions for ``grad``).
        channels: channels of each position on the tile.
        kernel: positions of the window.
        row: length of an output row on the tile; a worker's share is cut at row ends (0: never cut).

    The formula leaves open whether the start of the inner loop is paid for each piece of a row or once for a channel
    vector, and whether the pieces are the most or the mean over the workers. The profiled points of
    ``abele validate --family vertex`` decided: once, and the rows that a share fills, at least one.
    """
    if kind not in ("max", "avg", "sum"):
        raise InvalidOption(f"No pooling '{kind}'", remedy=suggest(kind, ("max", "avg", "sum")))
    vectors = ceil_div(channels, chip.vector_width(dtype))
    positions = ceil_div(field, chip.workers)
    start, each = (7, 5) if grad else (3 + (4 if kind == "max" else 5), 3)
    clear = 4 + positions * vectors
    turn = 13 + 20 * kernel
    turns = choose(row > 0, largest(ceil_div(turn * positions, largest(row, 1)), turn), turn)
    return 13 + chip.workers * (17 + clear + turns + kernel * vectors * (start + each * positions))


@estimate("ArgReduce", source=_SOURCE, confidence="published", code_bytes=340)
def arg_reduce(chip: Any, *, rows: Count, cols: Count, dtype: str = "f16") -> Count:
    """Tile cycles of argmax or argmin of ``rows`` rows of ``cols`` elements; few rows are cut over the workers."""
    by_row = ceil_div(rows, chip.workers) * (30 + 3 * cols)
    cut = rows * (30 + 3 * ceil_div(cols, chip.workers) + 30 + 3 * chip.workers)
    return 9 + chip.workers * smallest(by_row, cut)


@estimate("TopK", source="graphcore/poplibs, popops/BitonicTopK", confidence="derived", code_bytes=720)
def top_k(chip: Any, *, n: Count, k: Count, dtype: str = "f16", values: bool = True, rows: Count = 1) -> Count:
    """Tile cycles of the largest ``k`` of ``n`` elements, for ``rows`` rows, by bitonic compare-and-swap.

    ``values``: indices travel with the keys. ``k >= n`` is a full sort. An element costs 8 to 27 cycles a stage
    by the types; a top-k sorts runs of ``k`` and merges them, halving what is left.
    """
    each = {(2, False): 8, (2, True): 18, (4, False): 12, (4, True): 27}[(2 if dtype_bytes(dtype) <= 2 else 4, values)]
    whole, run = log2_ceil(n), log2_ceil(smallest(k, n))
    stages = smallest(whole * (whole + 1) // 2, run * (run + 1) // 2 + 2 * (run + 1))
    share = ceil_div(rows * n, chip.workers)
    return chip.supervisor_call_cycles + chip.workers * (20 + each * share * largest(stages, 1))


@estimate("InvStd", source=_SOURCE, confidence="published", code_bytes=200)
def inv_std(chip: Any, *, n: Count, rows: Count = 1, dtype: str = "f32") -> Count:
    """Tile cycles of inverse standard deviations from ``n`` variances in each of ``rows`` rows."""
    return chip.workers * (6 + ceil_div(rows, chip.workers) * (4 + ceil_div(n, 2) * 5))


@estimate(
    "Softmax",
    source="sum of popops vertices, as popnn/NonLinearity.cpp uses them",
    confidence="derived",
    code_bytes=1600,
)
def softmax(chip: Any, *, rows: Count, cols: Count, dtype: str = "f16") -> Count:
    """Tile cycles of softmax over ``rows`` whole rows of ``cols`` elements.

    Largest of a row, subtract, exp, sum in float, inverse, cast of the inverses, multiply.
    """
    n = rows * cols
    inverse = elementwise(chip, n=rows, ops="reciprocal", dtype="f32")
    if dtype != "f32":
        inverse = inverse + cast(chip, n=rows, source="f32", to=dtype)
    return (
        reduce(chip, outputs=rows, depth=cols, op="max", dtype=dtype, layout="continuous")
        + elementwise(chip, n=n, ops="sub", dtype=dtype, broadcast="outer", rows=rows)
        + elementwise(chip, n=n, ops="exp", dtype=dtype)
        + reduce(chip, outputs=rows, depth=cols, op="add", dtype=dtype, out="f32", layout="continuous")
        + inverse
        + elementwise(chip, n=n, ops="mul", dtype=dtype, broadcast="outer", rows=rows)
    )


_CELLS: dict[str, tuple[str, ...]] = {
    "lstm": ("sigmoid", "sigmoid", "sigmoid", "tanh", "mul", "mul", "add", "tanh", "mul"),
    "gru": ("sigmoid", "sigmoid", "mul", "tanh", "sub", "mul", "add"),
    "rnn": ("add", "tanh"),
}


@estimate("Rnn", source="fused popops map of popnn's cells", confidence="derived", code_bytes=900)
def rnn_cell(chip: Any, *, n: Count, cell: str = "lstm", dtype: str = "f16") -> Count:
    """Tile cycles of a recurrent cell's elementwise part for ``n`` hidden units, gates fused in one loop."""
    if cell not in _CELLS:
        raise InvalidOption(f"No recurrent cell '{cell}'", remedy=suggest(cell, _CELLS))
    return elementwise(chip, n=n, ops=_CELLS[cell], dtype=dtype, operands={"lstm": 5, "gru": 4, "rnn": 2}[cell])


_LOG_SUM = 60
"""Cycles of log(exp(a) + exp(b)) of float scalars: two transcendental instructions and their frame; assumed."""


@estimate("Ctc", source="operations counted", confidence="assumed", code_bytes=1400)
def ctc(chip: Any, *, steps: Count, places: Count, samples: Count = 1, walks: int = 1, classes: Count = 0) -> Count:
    """Tile cycles to walk ``walks`` times over a CTC lattice of ``steps`` by ``places``; workers share the places.

    A second walk (the gradient) also writes ``classes`` slopes for each step.
    """
    share = ceil_div(places, chip.workers)
    slopes = ceil_div(classes, chip.workers) * 10 if walks > 1 else 0
    return chip.supervisor_call_cycles + samples * steps * chip.workers * (30 + share * 2 * _LOG_SUM * walks + slopes)


@estimate("CtcBeamSearch", source="operations counted", confidence="assumed", code_bytes=2600)
def ctc_beam_search(chip: Any, *, steps: Count, candidates: Count, samples: Count = 1) -> Count:
    """Tile cycles to grow, merge and rank ``candidates`` (beams by classes) in each of ``steps``."""
    each = ceil_div(candidates, chip.workers) * (2 * _LOG_SUM + 8 * largest(log2_ceil(candidates), 1))
    return chip.supervisor_call_cycles + samples * steps * chip.workers * (30 + each)


@estimate("Factorize", source="operations counted", confidence="assumed", code_bytes=1800)
def factorize(chip: Any, *, flops: int, columns: Count, matrices: Count = 1) -> Count:
    """Tile cycles to factorise ``matrices``, each of ``flops`` multiplications and additions over ``columns`` columns.

    Workers share the rows: two floats to a multiply-add, and a load for each; they meet after every column.
    """
    return chip.supervisor_call_cycles + matrices * (flops // 2 + columns * 8 * chip.workers)

"""Cycles of reductions on one tile: strided (over an outer dimension), contiguous (over the inner one), to a scalar."""

from __future__ import annotations

from typing import Any, Literal

from abele.errors import InvalidOption, suggest
from abele.machine.constants import dtype_bytes
from abele.machine.cycles.arith import Count, ceil_div, choose, common_divisor, largest, smallest
from abele.machine.cycles.registry import estimate

_SOURCE = "graphcore/poplibs, popops/reduction/CycleEstimationFunctions.cpp"

Layout = Literal["auto", "strided", "continuous", "scalar"]

REDUCE_OPS = frozenset({"add", "square_add", "max", "min", "mul", "log_add", "and", "or"})
_ALIASES = {"sum": "add", "mean": "add", "prod": "mul", "any": "or", "all": "and", "amax": "max", "amin": "min"}


def _per_operation(op: str, dtype: str) -> int:
    name = _ALIASES.get(op, op)
    if name not in REDUCE_OPS:
        raise InvalidOption(f"No reduction '{op}'", remedy=suggest(op, REDUCE_OPS | set(_ALIASES)))
    if name == "log_add":
        return 13 if dtype_bytes(dtype) <= 2 else 23
    return 1


def strided_worker(
    chip: Any, outputs: Count, depth: Count, op: str, dtype: str, stride: Count | None = None, update: bool = False
) -> Count:
    """One worker's cycles for ``outputs`` adjacent results, each of ``depth`` elements ``stride`` apart."""
    width = min(chip.accumulator_width(dtype), chip.vector_width(dtype))
    lanes = width if stride is None else common_divisor(stride, width)
    if dtype_bytes(dtype) <= 2:
        post = 10 if update else 8
    else:
        post = 5 if _ALIASES.get(op, op) in ("add", "square_add") else 4
    each = 3 + post + 3 + _per_operation(op, dtype) * largest(depth - 1, 0)
    return 16 + each * ceil_div(outputs, lanes)


def scalar_worker(chip: Any, n: Count, op: str, dtype: str, out: str) -> Count:
    """One worker's cycles to reduce ``n`` adjacent elements to one."""
    width = chip.accumulator_width(dtype)
    loads = ceil_div(width * dtype_bytes(dtype), chip.data_path_bytes)
    loop = max(loads, _per_operation(op, dtype)) * (n // width)
    return 3 + 6 + loop + 5 + n % width + 3 + (5 if dtype_bytes(out) <= 2 else 0)


def continuous_worker(chip: Any, outputs: Count, depth: Count, op: str, dtype: str) -> Count:
    """One worker's cycles for ``outputs`` results, each of ``depth`` adjacent elements."""
    lanes = chip.vector_width(dtype)
    return _per_operation(op, dtype) * outputs * ceil_div(depth, lanes) + 2 * (depth % 2) + 12 * outputs + 17


@estimate("Reduce", source=_SOURCE, confidence="published", code_bytes=520)
def reduce(
    chip: Any,
    *,
    outputs: Count,
    depth: Count,
    op: str = "add",
    dtype: str = "f32",
    out: str | None = None,
    layout: Layout = "auto",
) -> Count:
    """Tile cycles to reduce ``depth`` elements of ``dtype`` to each of ``outputs`` results of ``out``.

    Results are shared out over the workers, or, where that is quicker, every worker takes a part of the depth
    and the parts are reduced once more (our choice of the two; popops' own differs a little).
    ``layout``: ``strided`` reduces an outer dimension, ``continuous`` the inner one, ``scalar`` everything;
    ``auto`` is ``scalar`` for one output and ``strided`` for more.
    """
    out = out or dtype
    workers = chip.workers
    part = ceil_div(depth, workers)

    def worker(results: Count, elements: Count, layout: Layout) -> Count:
        if layout == "continuous":
            return continuous_worker(chip, results, elements, op, dtype)
        if layout == "scalar":
            return results * scalar_worker(chip, elements, op, dtype, out)
        return strided_worker(chip, results, elements, op, dtype)

    def tile(layout: Layout) -> Count:
        lanes = chip.vector_width(dtype) if layout == "strided" else 1
        share = ceil_div(ceil_div(outputs, lanes), workers) * lanes
        by_result = worker(smallest(share, outputs), depth, layout)
        by_depth = worker(outputs, part, layout) + worker(outputs, largest(smallest(depth, workers), 1), "strided")
        return chip.supervisor_call_cycles + workers * smallest(by_result, by_depth)

    if layout == "auto":
        return choose(outputs == 1, tile("scalar"), tile("strided"))
    return tile(layout)

"""Cycles of elementwise loops: single operations, fused chains of them, casts, and select.

The table gives for each operation how its inner loop is written: by natural vectors (cycles and a loop overhead
for each), unrolled (cycles for so many elements, overhead within), or by scalars (cycles and overhead of each).
``gelu`` is the exact one, by erf; ``gelu_tanh`` the approximation that popnn calls GELU. An operation without
figures of its own takes those of a near one (``_NEAR``: arc and hyperbolic functions those of asin).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from abele.errors import InvalidOption, suggest
from abele.machine.constants import FLOAT8, dtype_bytes
from abele.machine.cycles.arith import Count, ceil_div, choose, largest
from abele.machine.cycles.registry import estimate

_SOURCE = "graphcore/poplibs, popops/popopsCycleEstimators.cpp"

Form = Literal["vector", "unrolled", "scalar"]
Broadcast = Literal["none", "scalar", "outer", "inner"]


@dataclass(frozen=True, slots=True)
class Loop:
    """``cycles`` for each ``elements``: one natural vector, that many unrolled, or one scalar."""

    form: Form
    cycles: int
    elements: int = 1


def _v(cycles: int) -> Loop:
    return Loop("vector", cycles)


def _u(cycles: int, elements: int) -> Loop:
    return Loop("unrolled", cycles, elements)


def _s(cycles: int) -> Loop:
    return Loop("scalar", cycles)


# (half, float), from popops' tables of unary and binary operations.
_UNARY: dict[str, tuple[Loop, Loop]] = {
    "exp": (_u(4, 4), _u(6, 2)),
    "exp2": (_u(4, 4), _u(6, 2)),
    "log": (_u(4, 4), _u(12, 2)),
    "tanh": (_u(4, 4), _u(12, 2)),
    "sigmoid": (_u(6, 4), _u(12, 2)),
    "relu": (_u(3, 4), _u(3, 2)),
    "sqrt": (_u(23, 4), _u(10, 2)),
    "rsqrt": (_u(19, 4), _u(8, 2)),
    "reciprocal": (_u(15, 4), _u(6, 2)),
    "neg": (_u(2, 4), _u(2, 2)),
    "abs": (_s(1), _s(1)),
    "ceil": (_v(2), _v(2)),
    "floor": (_v(2), _v(2)),
    "round": (_v(2), _v(2)),
    "trunc": (_u(11, 4), _u(3, 2)),
    "sign": (_v(5), _v(5)),
    "erf": (_u(13, 1), _u(41, 1)),
    "gelu": (_u(16, 1), _u(22, 1)),
    "gelu_tanh": (_v(5), _v(10)),
    "silu": (_v(5), _v(11)),
    "expm1": (_v(5), _s(4)),
    "log1p": (_v(18), _v(18)),
    "sin": (_u(25, 1), _s(2300)),
    "cos": (_u(25, 1), _s(2300)),
    "tan": (_u(5700, 1), _u(5100, 1)),
    "asin": (_s(102), _s(102)),
    "is_nan": (_v(3), _v(3)),
    "is_inf": (_v(5), _v(3)),
    "is_finite": (_v(5), _v(5)),
    "logical_not": (_v(1), _v(1)),
    "copy": (_v(1), _v(1)),
}
_BINARY: dict[str, tuple[Loop, Loop]] = {
    "gelu_tanh_grad": (_v(5), _v(10)),
    "gelu_grad": (_v(15), _v(30)),
    "add": (_v(1), _v(1)),
    "sub": (_v(1), _v(1)),
    "mul": (_v(1), _v(1)),
    "div": (_u(21, 4), _u(10, 2)),
    "max": (_u(4, 4), _u(3, 2)),
    "min": (_u(4, 4), _u(3, 2)),
    "pow": (_u(325, 1), _u(312, 1)),
    "rem": (_u(300, 4), _u(133, 2)),
    "atan2": (_u(578, 4), _u(272, 2)),
    "eq": (_u(9, 4), _u(14, 4)),
    "ne": (_u(11, 4), _u(20, 4)),
    "logical_and": (_v(1), _v(1)),
    "select": (_s(1), _s(1)),  # 5 cycles an element with the loop's four
}
_BROADCAST: dict[str, tuple[Loop, Loop]] = {
    "div": (_u(8, 2), _u(6, 2)),
    "max": (_u(3, 4), _u(3, 2)),
    "min": (_u(3, 4), _u(3, 2)),
}
# Integer code is compiled C++; popops' figures for it are rough.
_INTEGER: dict[str, Loop] = {
    "div": _u(277, 1),
    "rem": _u(277, 1),
    "eq": _u(24, 4),
    "ne": _u(26, 4),
    "select": _s(1),
}
_NEAR: dict[str, str] = {
    "log2": "log", "log10": "log", "atan": "asin", "acos": "asin", "sinh": "asin", "cosh": "asin",
    "floor_div": "div", "fmod": "rem", "lt": "eq", "le": "eq", "gt": "eq", "ge": "eq",
    "logical_or": "logical_and", "logical_xor": "logical_and", "bit_and": "logical_and", "bit_or": "logical_and",
    "bit_xor": "logical_and", "shl": "logical_and", "shr": "logical_and", "bit_not": "logical_not", "cast": "copy",
}  # fmt: skip

ELEMENTWISE_OPS: frozenset[str] = frozenset({*_UNARY, *_BINARY, *_NEAR})
"""Every name that ``Elementwise`` knows: the elementwise primitives by the names they have in ``ops``, ``copy``, and
the activations that plans find in maps."""


def _loop(op: str, dtype: str, broadcast: Broadcast) -> tuple[str, Loop]:
    name = _NEAR.get(op, op)
    if name not in _UNARY and name not in _BINARY:
        raise InvalidOption(f"No elementwise cycle estimate for '{op}'", remedy=suggest(op, ELEMENTWISE_OPS))
    if dtype[0] in "iu" or dtype == "bool":
        if dtype_bytes(dtype) == 1 and name in ("logical_and", "logical_not", "copy", "eq", "ne"):
            return name, _u(7, 4)
        return name, _INTEGER.get(name, _u(7, 1))
    table = _BROADCAST if broadcast != "none" and name in _BROADCAST else _UNARY if name in _UNARY else _BINARY
    return name, table[name][0 if dtype_bytes(dtype) <= 2 else 1]


def _overhead(name: str, broadcast: Broadcast) -> int:
    """Cycles of the loop beside the operation, for each natural vector or scalar."""
    simple = name in ("add", "sub", "mul")
    if broadcast == "outer":
        return 1
    if broadcast == "scalar":
        return 1 if simple else 4
    if name in _UNARY or name == "select":
        return 4
    return 2 if simple else 5


def loop_cycles(chip: Any, n: Count, op: str, dtype: str, broadcast: Broadcast = "none") -> Count:
    """One worker's loop over ``n`` elements for one operation, loads and stores included."""
    name, loop = _loop(op, dtype, broadcast)
    if loop.form == "unrolled":
        return loop.cycles * ceil_div(n, loop.elements)
    elements = chip.vector_width(dtype) if loop.form == "vector" else 1
    return (loop.cycles + _overhead(name, broadcast)) * ceil_div(n, elements)


def operation_cycles(chip: Any, op: str, dtype: str, elements: int, broadcast: Broadcast = "none") -> int:
    """Cycles of one operation on so many elements in registers, whatever loop is about them."""
    _, loop = _loop(op, dtype, broadcast)
    at_once = chip.vector_width(dtype) if loop.form == "vector" else loop.elements
    return ceil_div(loop.cycles * elements, at_once)


def _chain_cycles(chip: Any, n: Count, ops: Sequence[str], dtype: str, broadcast: Broadcast, operands: int) -> Count:
    """One worker's loop for several operations on values kept in registers.

    Cycles of the operations add up; the loop's own overhead, the largest of theirs, is paid once a vector, and
    every operand beyond two costs a load.
    """
    vector = chip.vector_width(dtype)
    body, overhead = max(0, operands - 2), 0
    for op in ops:
        name, loop = _loop(op, dtype, broadcast)
        body += operation_cycles(chip, op, dtype, vector, broadcast)
        if loop.form != "unrolled":
            overhead = max(overhead, _overhead(name, broadcast))
    return (body + overhead) * ceil_div(n, vector)


@estimate("Elementwise", source=_SOURCE, confidence="published", code_bytes=320)
def elementwise(
    chip: Any,
    *,
    n: Count,
    ops: Sequence[str] | str,
    dtype: str = "f16",
    operands: int | None = None,
    broadcast: Broadcast = "none",
    rows: Count = 1,
) -> Count:
    """Tile cycles of an elementwise operation, or a fused chain of them in one loop, over ``n`` elements.

    Args:
        n: output elements on the tile, split evenly over the workers.
        ops: operation names, applied one after another to values kept in registers.
        dtype: of the loop's arithmetic.
        operands: tensors read; 2 for a binary operation and 1 for a unary one unless given.
        broadcast: ``scalar``: one operand is a single number; ``outer``: one number for each of ``rows`` rows;
            ``inner``: one vector of ``n / rows`` elements for every row; ``none``: all operands have ``n``.

    A chain of several is derived from the published single loops (see ``_chain_cycles``).
    """
    names = (ops,) if isinstance(ops, str) else tuple(ops)
    if not names:
        raise InvalidOption("An elementwise vertex without operations", remedy="Name at least one, or use Copy.")
    binary = any(_NEAR.get(op, op) in _BINARY for op in names)
    operands = operands if operands is not None else 1 + int(binary)

    def loop(elements: Count) -> Count:
        if len(names) == 1 and operands <= 2:
            return loop_cycles(chip, elements, names[0], dtype, broadcast)
        return _chain_cycles(chip, elements, names, dtype, broadcast, operands)

    each = ceil_div(n, chip.workers)
    if broadcast == "scalar":
        return chip.workers * (20 + loop(each)) + 11
    if broadcast == "outer":
        width = ceil_div(n, largest(rows, 1))
        aligned = choose(width % chip.vector_width(dtype) == 0, 7, 25)
        share = ceil_div(rows, chip.workers)
        by_row = 15 + share * (aligned + loop(width))
        in_row = 15 + rows * (aligned + loop(ceil_div(width, chip.workers)))  # few long rows are cut up
        return chip.workers * choose(rows >= chip.workers, by_row, in_row) + 11
    if broadcast == "inner":
        return _inner_vector(chip, n, rows, names, dtype, loop)
    if not binary:
        entry = 33 if any(op in ("exp", "exp2") for op in names) else 17
        return chip.workers * (entry + loop(each)) + 20
    entry = 26 if dtype_bytes(dtype) <= 2 else 29
    return chip.workers * (entry + loop(each)) + 11


def _inner_vector(chip: Any, n: Count, rows: Count, names: tuple[str, ...], dtype: str, loop: Any) -> Count:
    """A vector of one row's length applied to every row (bias add, scale by channel)."""
    length = ceil_div(n, largest(rows, 1))
    blocks = ceil_div(rows, chip.workers)
    if dtype_bytes(dtype) <= 2:
        groups = ceil_div(length, 8)
        quick = groups * (15 + 2 * blocks)
        simple = choose(length % 8 == 0, quick, 15 + 9 * length * blocks)
    else:
        simple = 7 + length * (8 + 2 * blocks)
    if len(names) == 1 and names[0] in ("add", "sub", "mul"):
        # rows too narrow or ragged for the special loop take the plain one, operand repeated
        plain = 26 + loop(ceil_div(n, chip.workers)) + 7 * blocks
        return chip.workers * choose(simple <= plain, simple, plain) + 11
    return chip.workers * (26 + loop(ceil_div(n, chip.workers)) + 7 * blocks) + 11


@estimate("Cast", source="graphcore/poplibs, popops/CastModelling", confidence="published", code_bytes=280)
def cast(chip: Any, *, n: Count, source: str, to: str) -> Count:
    """Tile cycles of a conversion of ``n`` elements from dtype ``source`` to ``to``."""
    m = ceil_div(n, chip.workers)
    wide, narrow = dtype_bytes(source), dtype_bytes(to)
    # 8-bit floats convert like the others, in vectors: assumed
    known = ("f32", "f16", "bf16", *FLOAT8)
    floats = source in known and to in known
    if max(wide, narrow) == 8:
        core = 19 + 5 * m
    elif floats:
        # vectors of what two loads bring or one store takes away; the rest by bits, one check each
        vector = min(2 * chip.vector_width(source), chip.vector_width(to))
        per = max(ceil_div(vector * wide, chip.data_path_bytes), ceil_div(vector * narrow, chip.data_path_bytes))
        core = 19 + per * (m // vector)
        bit = vector // 2
        while bit:
            core = core + 1 + choose(m & bit > 0, 2, 0)
            bit //= 2
    elif wide == 1 and narrow > 1:
        core = 14 + 9 * ceil_div(m, 4)
    elif narrow == 1 and wide > 1:
        core = 19 + 16 * ceil_div(m, 4)
    else:
        core = 19 + 2 * m
    return 12 + chip.workers * (18 + core)


@estimate("ScaledAdd", source="graphcore/poplibs, popops/ScaledAddModelling", confidence="published", code_bytes=520)
def scaled_add(chip: Any, *, n: Count, dtype: str = "f16", other: str = "f16") -> Count:
    """Tile cycles of ``a += scale · b`` in place over ``n`` elements, ``a`` of ``dtype`` and ``b`` of ``other``."""
    vector = chip.vector_width(dtype)
    vectors, left = ceil_div(n // vector, chip.workers), n % vector
    mixed = dtype_bytes(dtype) < dtype_bytes(other)
    start, first, each = (19, 8, 4) if mixed else (18, 6, 3 if dtype == other else 4)
    rest = 16 if mixed else 18 if dtype_bytes(dtype) <= 2 else 8
    worker = start + 1 + choose(vectors > 0, first + each * (vectors - 1), 0) + choose(left > 0, rest, 0)
    return 50 + choose(left > 0, 13, 7) + chip.workers * worker


@estimate("Select", source=_SOURCE, confidence="published", code_bytes=240)
def select(chip: Any, *, n: Count, dtype: str = "f16") -> Count:
    """Tile cycles of a choice between two tensors by a third: 5 an element and 6, each worker."""
    return chip.workers * (6 + 5 * ceil_div(n, chip.workers)) + chip.supervisor_call_cycles

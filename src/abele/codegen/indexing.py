"""Kernels that move data: copies and transposes, gathering and scattering.

A view into an array (a slice, one part of a concatenation) is an address inside it and the array's strides. An
index outside its range reads zeros and writes nothing. Scattering goes through the indices in order inside each
unit, and units own disjoint columns, so sums have the same bits at any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from abele.codegen.emit import Function, Value, element
from abele.codegen.expression import FUNCTIONS, Operand, Output, load_type
from abele.codegen.host import Host, host
from abele.codegen.map import map_kernel
from abele.codegen.module import Kernel, arguments, finish, start
from abele.codegen.space import check, collapse, coordinates, nest, offset, permute
from abele.errors import InvalidOperand

_COLUMNS = 256  # elements of a row that one unit of a scatter owns


def copy_kernel(
    shape: Sequence[int],
    dtype: str,
    source: Sequence[int],
    destination: Sequence[int],
    target: Host | None = None,
) -> Kernel:
    """Copies an array of ``shape`` between two layouts, given by strides. Pointers: source, destination.

    The two must not overlap. Where each side has its own contiguous dimension, square blocks are transposed in
    registers.
    """
    target = target or host()
    check(shape, [tuple(source), tuple(destination)])
    order = sorted(range(len(shape)), key=lambda d: -abs(destination[d]))
    strides = [permute(order, source), permute(order, destination)]
    sizes, (read, write), _ = collapse(permute(order, shape), strides)
    words = element(load_type(dtype, 1)) in ("float", "i32")
    rows = [d for d in range(len(sizes) - 1) if read[d] == 1 and sizes[d] > 1]
    if not words or 0 in sizes or not rows or write[-1] != 1 or read[-1] in (0, 1):
        return map_kernel(shape, [Operand(dtype, tuple(source))], [], [Output(0, dtype, tuple(destination))], target)
    return _transpose(sizes, load_type(dtype, 1), read, write, rows[-1], target)


def _transpose(
    sizes: tuple[int, ...], type: str, read: tuple[int, ...], write: tuple[int, ...], row: int, target: Host
) -> Kernel:
    """Blocks of lanes x lanes: contiguous to read along dimension ``row``, to write along the last."""
    fn, lanes = start(), target.lanes
    _, begin, end = fn.parameters
    source, destination = arguments(fn, 2)
    others = [d for d in range(len(sizes) - 1) if d != row]
    height, width = sizes[row], sizes[-1]
    strips = -(-height // lanes)
    outer = tuple(sizes[d] for d in others)

    def block(from_: Value, to: Value, i: Value | int, j: Value | int, tall: int, wide: int) -> None:
        """Reads ``wide`` vectors of ``tall`` elements at (row i, column j) and writes ``tall`` of ``wide``."""
        first = fn.offset(from_, offset(fn, [_value(fn, i), _value(fn, j)], (1, read[-1])), type)
        last = fn.offset(to, offset(fn, [_value(fn, i), _value(fn, j)], (write[row], 1)), type)
        vector = f"<{lanes} x {type}>"
        loads = None if tall == lanes else fn.first_lanes(tall, lanes)
        stores = None if wide == lanes else fn.first_lanes(wide, lanes)
        block = [fn.load(vector, fn.offset(first, c * read[-1], type), loads) for c in range(wide)]
        block += [fn.zero(vector)] * (lanes - wide)
        for r, line in enumerate(turned(block)[:tall]):
            fn.store(line, fn.offset(last, r * write[row], type), stores)

    def strip(from_: Value, to: Value, i: Value, tall: int) -> None:
        whole = width - width % lanes
        fn.loop(0, whole, lanes, [], lambda j: block(from_, to, i, j, tall, lanes))
        if whole < width:
            block(from_, to, i, whole, tall, width - whole)

    def unit(u: Value) -> None:
        *at, s = coordinates(u, (*outer, strips))
        from_ = fn.offset(source, offset(fn, at, [read[d] for d in others]), type)
        to = fn.offset(destination, offset(fn, at, [write[d] for d in others]), type)
        i, rest = s * lanes, height % lanes
        if rest == 0:
            strip(from_, to, i, lanes)
        elif strips == 1:
            strip(from_, to, i, rest)
        else:
            fn.when(s < strips - 1, lambda: strip(from_, to, i, lanes), lambda: strip(from_, to, i, rest))

    fn.loop(begin, end, 1, [], unit)
    units = math.prod(outer) * strips
    return finish(fn, "transpose", 2, units, cost=lanes * width, target=target)


def _value(fn: Function, i: Value | int) -> Value:
    return i if isinstance(i, Value) else fn.const(i, "i64")


def turned(rows: list[Value]) -> list[Value]:
    """The transpose of a square block: swaps halves of lanes between rows, at every power of two."""
    lanes, half = len(rows), len(rows) // 2
    while half:
        low = [x + lanes - half if x & half else x for x in range(lanes)]
        high = [x + lanes if x & half else x + half for x in range(lanes)]
        for i in range(lanes):
            if not i & half:
                a, b = rows[i], rows[i + half]
                rows[i], rows[i + half] = a.shuffle(low, b), a.shuffle(high, b)
        half //= 2
    return rows


def _index(fn: Function, base: Value, at: Value, dtype: str, rows: int) -> tuple[Value, Value]:
    """An index as i64, negative ones counted from the end, and whether it is in range."""
    if dtype not in ("i32", "i64"):
        raise InvalidOperand(f"an index has dtype {dtype}", remedy="Use i32 or i64.")
    raw = fn.load(load_type(dtype, 1), fn.offset(base, at, load_type(dtype, 1))).convert("sext", "i64")
    i = (raw < 0).select(raw + rows, raw)
    return i, (i >= 0) & (i < rows)


def _along(fn: Function, first: Value | int, last: Value | int, lanes: int, body) -> None:
    """``body(i, lanes, mask)`` over a row, whole vectors and then the rest."""
    if isinstance(first, int) and isinstance(last, int):
        whole = last - (last - first) % lanes
        fn.loop(first, whole, lanes, [], lambda i: body(i, None))
        if whole < last:
            body(fn.const(whole, "i64"), fn.first_lanes(last - whole, lanes))
        return
    start_, stop = _value(fn, first), _value(fn, last)
    whole = start_ + ((stop - start_) & -lanes)
    fn.loop(start_, whole, lanes, [], lambda i: body(i, None))
    fn.when(whole < stop, lambda: body(whole, fn.first_lanes(stop - whole, lanes)))


def gather_kernel(
    outer: int,
    rows: int,
    inner: int,
    count: int,
    dtype: str = "f32",
    index: str = "i32",
    target: Host | None = None,
) -> Kernel:
    """``y[o, j, :] = x[o, i[j], :]`` for x ``[outer, rows, inner]``, i ``[count]``. Pointers: x, i, y."""
    target = target or host()
    fn = start()
    _, begin, end = fn.parameters
    x, indices, y = arguments(fn, 3)
    type, lanes = load_type(dtype, target.lanes), target.lanes

    def unit(u: Value) -> None:
        o, j = coordinates(u, (outer, count))
        row, inside = _index(fn, indices, j, index, rows)
        to = fn.offset(y, u * inner, element(type))

        def copy() -> None:
            source = fn.offset(x, (o * rows + row) * inner, element(type))

            def move(i: Value, mask: Value | None) -> None:
                value = fn.load(type, fn.offset(source, i, element(type)), mask)
                fn.store(value, fn.offset(to, i, element(type)), mask)

            _along(fn, 0, inner, lanes, move)

        def clear() -> None:
            zero = fn.zero(type)
            _along(fn, 0, inner, lanes, lambda i, m: fn.store(zero, fn.offset(to, i, element(type)), m))

        fn.when(inside, copy, clear)

    if inner:
        fn.loop(begin, end, 1, [], unit)
    return finish(fn, "gather", 3, outer * count, cost=2 * inner, target=target)


def scatter_kernel(
    outer: int,
    rows: int,
    inner: int,
    count: int,
    dtype: str = "f32",
    index: str = "i32",
    *,
    add: bool = True,
    target: Host | None = None,
) -> Kernel:
    """``y[o, i[j], :] += x[o, j, :]`` (``=`` with ``add`` False) for j in order. Pointers: x, i, y.

    x is ``[outer, count, inner]`` and y ``[outer, rows, inner]``; y holds its first value already.
    """
    target = target or host()
    fn = start()
    _, begin, end = fn.parameters
    x, indices, y = arguments(fn, 3)
    type, lanes = load_type(dtype, target.lanes), target.lanes
    blocks = -(-inner // _COLUMNS)

    def unit(u: Value) -> None:
        o, b = coordinates(u, (outer, blocks))
        first = b * _COLUMNS
        stop = first + _COLUMNS
        last = (stop > inner).select(inner, stop) if inner % _COLUMNS else stop
        bounds = (0, inner) if blocks == 1 else (first, last)

        def each(j: Value) -> None:
            row, inside = _index(fn, indices, j, index, rows)
            source = fn.offset(x, (o * count + j) * inner, element(type))
            to = fn.offset(y, (o * rows + row) * inner, element(type))

            def move(i: Value, mask: Value | None) -> None:
                value = fn.load(type, fn.offset(source, i, element(type)), mask)
                where = fn.offset(to, i, element(type))
                fn.store(fn.load(type, where, mask) + value if add else value, where, mask)

            fn.when(inside, lambda: _along(fn, *bounds, lanes, move))

        fn.loop(0, count, 1, [], each)

    if inner:
        fn.loop(begin, end, 1, [], unit)
    return finish(fn, "scatter", 3, outer * blocks, cost=3 * count * min(inner, _COLUMNS), target=target)


def take_kernel(
    outer: int,
    rows: int,
    inner: int,
    count: int,
    dtype: str = "f32",
    index: str = "i64",
    target: Host | None = None,
) -> Kernel:
    """``y[o, j, c] = x[o, i[o, j, c], c]``, an index per element. Pointers: x, i, y."""
    fn = start()
    _, begin, end = fn.parameters
    x, indices, y = arguments(fn, 3)
    type = load_type(dtype, 1)

    def unit(u: Value) -> None:
        o, _ = coordinates(u, (outer, count))

        def each(at: Sequence[Value]) -> None:
            where = u * inner + at[0]
            row, inside = _index(fn, indices, where, index, rows)
            safe = inside.select(row, 0)
            value = fn.load(type, fn.offset(x, (o * rows + safe) * inner + at[0], type))
            fn.store(inside.select(value, 0), fn.offset(y, where, type))

        if rows:
            nest(fn, (inner,), [], [], each)
        else:
            _along(fn, 0, inner, 1, lambda i, _: fn.store(fn.zero(type), fn.offset(y, u * inner + i, type)))

    fn.loop(begin, end, 1, [], unit)
    return finish(fn, "take", 3, outer * count, cost=4 * inner, target=target)


_COMBINE: dict[str, Callable[[Value, Value], Value]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "max": FUNCTIONS["max"][1],
    "min": FUNCTIONS["min"][1],
}


def put_kernel(
    outer: int,
    rows: int,
    inner: int,
    count: int,
    dtype: str = "f32",
    index: str = "i64",
    *,
    how: str = "add",
    target: Host | None = None,
) -> Kernel:
    """``y[o, i[o, j, c], c]`` becomes ``how`` (``none``: nothing) of itself and ``x[o, j, c]``, for j in order.

    Args:
        outer, rows, inner, count, dtype, index: as of :func:`scatter_kernel`, with an index for each element.
        how: ``none``, ``add``, ``mul``, ``max`` or ``min``; the latter two give nan where one is nan.

    Pointers: x, i, y.
    """
    fn = start()
    _, begin, end = fn.parameters
    x, indices, y = arguments(fn, 3)
    type = load_type(dtype, 1)

    def unit(o: Value) -> None:
        def each(at: Sequence[Value]) -> None:
            j, c = at
            where = (o * count + j) * inner + c
            row, inside = _index(fn, indices, where, index, rows)

            def store() -> None:
                value = fn.load(type, fn.offset(x, where, type))
                to = fn.offset(y, (o * rows + row) * inner + c, type)
                fn.store(value if how == "none" else _COMBINE[how](fn.load(type, to), value), to)

            fn.when(inside, store)

        nest(fn, (count, inner), [], [], each)

    fn.loop(begin, end, 1, [], unit)
    return finish(fn, "put", 3, outer, cost=4 * count * inner, target=target)

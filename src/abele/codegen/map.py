"""Elementwise kernels: an expression list over operands that broadcast, any number of outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from abele.codegen.emit import Value, element
from abele.codegen.expression import Evaluator, Expr, Operand, Output, counted, load_type
from abele.codegen.host import Host, host
from abele.codegen.module import Kernel, arguments, finish, start
from abele.codegen.space import Row, check, collapse, coordinates, lanes_for, nest, offset, permute

#: A unit should be worth handing to a thread, and there should be units to hand out.
_ENOUGH_UNITS = 64


def map_kernel(
    shape: Sequence[int],
    operands: Sequence[Operand],
    exprs: Sequence[Expr],
    outputs: Sequence[Output],
    target: Host | None = None,
) -> Kernel:
    """A kernel that computes ``outputs`` at every element of ``shape``.

    Pointers: the operands, then the outputs. Where the space collapses to one dimension the units are
    elements and the code does not depend on the size. An output may be the memory of an operand with equal
    strides; other overlap is not allowed.
    """
    target = target or host()
    strides = [o.strides for o in (*operands, *outputs)]
    check(shape, strides)
    size = math.prod(shape)
    if size == 0:
        shape, strides = (0,), [(1,)] * len(strides)
    counts = counted(shape, exprs)
    arrays = len(strides)
    strides = [*strides, *counts.values()]
    shape, strides, _ = _ordered(shape, strides, len(operands))
    lanes = target.lanes if len(shape) == 1 else lanes_for(shape[-1], target.lanes)
    dtypes = [o.dtype for o in (*operands, *outputs)]

    fn = start()
    _, begin, end = fn.parameters
    bases = arguments(fn, len(dtypes))

    def row(at: list[Value], first: Value | int, last: Value | int) -> None:
        """The elements ``first .. last`` of the innermost dimension."""
        starts = [offset(fn, at, s[:-1]) for s in strides]
        rows = [
            Row(fn, fn.offset(base, where, element(load_type(dtype, 1))) if at else base, dtype, s[-1], lanes)
            for base, where, dtype, s in zip(bases, starts, dtypes, strides)
        ]
        for r in rows[: len(operands)]:
            r.hoist()

        def vector(i: Value, mask: Value | None) -> None:
            def leaf(node: int) -> Value | None:
                return rows[node].read(i, mask) if node < len(operands) else None

            def index(dim: int) -> Value:
                k = arrays + list(counts).index(dim)
                step = strides[k][-1]
                along = (i * step + (starts[k] if at else 0)).splat(lanes)
                return along + fn.lane_numbers("i64", lanes) * step

            value = Evaluator(fn, dtypes[: len(operands)], exprs, target, lanes, leaf, index)
            done = [value.stored(o.node, o.dtype) for o in outputs]
            for r, v in zip(rows[len(operands) :], done, strict=True):
                r.write(v, i, mask)

        if isinstance(first, int) and isinstance(last, int):
            whole = last - last % lanes
            fn.loop(first, whole, lanes, [], lambda i: vector(i, None))
            if whole < last:
                vector(fn.const(whole, "i64"), fn.first_lanes(last - whole, lanes))
            return
        assert isinstance(first, Value) and isinstance(last, Value)
        count = last - first
        whole = first + (count & -lanes)
        fn.loop(first, whole, lanes, [], lambda i: vector(i, None))
        fn.when(whole < last, lambda: vector(whole, fn.first_lanes(last - whole, lanes)))

    if len(shape) == 1:
        row([], begin, end)
        return finish(fn, "map", len(dtypes), size, grain=1024, cost=len(exprs) + 1, target=target)
    split = next((i for i in range(1, len(shape)) if math.prod(shape[:i]) >= _ENOUGH_UNITS), len(shape) - 1)

    def unit(u: Value) -> None:
        at = coordinates(u, shape[:split])
        nest(fn, shape[split:-1], at, [], lambda at: row(list(at), 0, shape[-1]))

    fn.loop(begin, end, 1, [], unit)
    units = math.prod(shape[:split])
    cost = (len(exprs) + 1) * math.prod(shape[split:])
    return finish(fn, "map", len(dtypes), units, cost=cost, target=target)


def _ordered(
    shape: Sequence[int], strides: Sequence[tuple[int, ...]], output: int
) -> tuple[tuple[int, ...], list[tuple[int, ...]], list[object]]:
    """Collapsed, after the dimensions were sorted as the first output lies in memory."""
    along = strides[output]
    order = sorted(range(len(shape)), key=lambda d: -abs(along[d]))
    sizes, steps, kinds = collapse(permute(order, shape), [permute(order, s) for s in strides])
    return (sizes, steps, kinds) if sizes else ((1,), [(1,)] * len(strides), [None])

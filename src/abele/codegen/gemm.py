"""Matrix products, and the packing of their second operand."""

from __future__ import annotations

import math
from collections.abc import Sequence

from abele.codegen.contract import contract_kernel, either, packed_floats, tile
from abele.codegen.emit import Value, vector
from abele.codegen.expression import Expr, Operand, Output
from abele.codegen.host import Host, host
from abele.codegen.indexing import turned
from abele.codegen.module import Kernel, arguments, finish, start
from abele.codegen.space import Row, contiguous, coordinates, offset
from abele.errors import InvalidOperand


def pack_kernel(
    k: int,
    n: int,
    strides: tuple[int, ...],
    batch: Sequence[int] = (),
    target: Host | None = None,
) -> Kernel:
    """Lays B out in panels. Pointers: B, packed B.

    Args:
        k, n: B's rows and columns.
        strides: of B over ``(*batch, k, n)``, so that a transposed B is only other strides.
        batch: shape of a stack of matrices; their packed forms follow each other.
    """
    target = target or host()
    if len(strides) != len(batch) + 2:
        raise InvalidOperand(f"B has strides {strides} over {(*batch, k, n)}")
    fn, lanes, width = start(), target.lanes, tile(target)[1]
    _, begin, end = fn.parameters
    source, packed = arguments(fn, 2)
    panels = -(-n // width)
    down, across = strides[-2:]
    vector_type = vector("float", lanes)

    def columns(from_: Value, to: Value, count: int, stride: int) -> None:
        """One vector of columns (``count`` of them real) into a panel whose rows are ``stride`` apart."""
        mask = None if count == lanes else fn.first_lanes(count, lanes)

        def block(i: Value, rows: int) -> None:
            here = fn.offset(from_, i * down, "float")
            some = None if rows == lanes else fn.first_lanes(rows, lanes)
            lines = [
                fn.load(vector_type, fn.offset(here, c * across, "float"), some) if c < count else fn.zero(vector_type)
                for c in range(lanes)
            ]
            out = fn.offset(to, i * stride, "float")
            for r, line in enumerate(turned(lines)[:rows]):
                fn.store(line, fn.offset(out, r * stride, "float"))

        def line(i: Value) -> None:
            row = Row(fn, fn.offset(from_, i * down, "float"), "f32", across, lanes)
            fn.store(row.read(fn.const(0, "i64"), mask), fn.offset(to, i * stride, "float"))

        if down == 1 and across != 1:
            whole = k - k % lanes
            fn.loop(0, whole, lanes, [], lambda i: block(i, lanes))
            if whole < k:
                block(fn.const(whole, "i64"), k - whole)
        else:
            fn.loop(0, k, 1, [], line)

    def unit(u: Value) -> None:
        *at, p = coordinates(u, (*batch, panels))
        place = offset(fn, at, contiguous(batch)) * packed_floats(k, n, target) + p * (width * k)
        from_ = fn.offset(source, offset(fn, at, strides[:-2]) + p * (width * across), "float")
        to = fn.offset(packed, place, "float")

        def panel(count: int) -> None:
            stride = -(-count // lanes) * lanes
            for c in range(0, count, lanes):
                columns(
                    fn.offset(from_, c * across, "float"),
                    fn.offset(to, c, "float"),
                    min(lanes, count - c),
                    stride,
                )

        either(fn, p, panels, n, width, panel)

    if n and k:
        fn.loop(begin, end, 1, [], unit)
    units = math.prod(batch) * panels
    return finish(fn, "pack", 2, units, cost=2 * k * width, target=target)


def gemm_kernel(
    m: int,
    n: int,
    k: int,
    a: tuple[int, ...],
    outputs: Sequence[Output],
    *,
    b: tuple[int, ...] | None = None,
    batch: Sequence[int] = (),
    operands: Sequence[Operand] = (),
    exprs: Sequence[Expr] = (),
    target: Host | None = None,
) -> Kernel:
    """``outputs`` of ``A @ B``, ``[m, k] @ [k, n]``. Pointers: A, B, operands, outputs.

    Args:
        a: strides of A over ``(*batch, m, k)``; a transposed A is only other strides.
        outputs: node 0 is the product, the operands follow, then ``exprs``; strides over ``(*batch, m, n)``,
            the last of them 1.
        b: None: B is packed, one matrix per batch entry in order. Otherwise B is read in place: strides over
            ``(*batch, k, n)``, the last of them 1; zeros for a shared matrix.
        batch: shape of a stack of products.
        operands: bias, residual and the like, strides over ``(*batch, m, n)``. One may be the memory of an
            output with equal strides (accumulation in place).
    """
    return contract_kernel(batch, (m,), n, (k,), a, outputs, b=b, operands=operands, exprs=exprs, target=target)

"""The product kernel under matrix products and convolutions.

``C[batch, m, n] = sum over k of A[batch, m, k] * B[batch, k, n]``, where ``m`` and ``k`` may have several
dimensions each and A is any strided view: with ``m = (image, y, x)``, ``k = (ky, kx, channel)`` and A the windows
of an image, that is a convolution.

One tile of C (12 x 32 floats with AVX-512, 6 x 16 with AVX2) stays in registers over the whole of ``k``. A is read
in place: its strides are constants of the code. B is read from *panels*, columns taken 32 (16) at a time with all
of ``k`` for each, or in place. The last dimension of ``m`` is shared out evenly over tiles, so that there is no
thin last one. The order of the sum is fixed by the shape, so the bits do not depend on threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from abele.codegen.emit import Value, element, vector
from abele.codegen.expression import Evaluator, Expr, Operand, Output, load_type
from abele.codegen.host import Host, host
from abele.codegen.module import Kernel, arguments, finish, start
from abele.codegen.space import Row, collapse, contiguous, coordinates, nest, offset
from abele.errors import InvalidOperand

_CHAINS = 8  # independent sums that keep both multipliers busy
_A_BYTES = 256 << 10  # of A, passed over all of B before the next
_B_SMALL = 512 << 10  # bytes of a B that stays in the cache
_TILES_PER_UNIT = 4  # when B is small
_INLINE = 3  # nodes of an epilogue up to which it stays in registers

Strides = tuple[int, ...]


def tile(target: Host | None = None) -> tuple[int, int]:
    """Rows and columns of a register tile."""
    target = target or host()
    many = target.lanes == 16 or "neon" in target.features
    return (12 if many else 6), 2 * target.lanes


def packed_floats(k: int, n: int, target: Host | None = None) -> int:
    """Floats that a packed B of ``[k, n]`` takes: the columns are rounded up to whole vectors."""
    lanes = (target or host()).lanes
    return k * (-(-n // lanes) * lanes)


def contract_kernel(
    batch: Sequence[int],
    m: Sequence[int],
    n: int,
    k: Sequence[int],
    a: Strides,
    outputs: Sequence[Output],
    *,
    b: Strides | None = None,
    operands: Sequence[Operand] = (),
    exprs: Sequence[Expr] = (),
    target: Host | None = None,
) -> Kernel:
    """``outputs`` of the product. Pointers: A, B, operands, outputs.

    Args:
        batch, m, n, k: the shape; each of ``batch``, ``m``, ``k`` may have any number of dimensions.
        a: strides of A over ``(*batch, *m, *k)``; they may overlap (windows) or be 0.
        outputs: node 0 is the product, the operands follow, then ``exprs``; strides over ``(*batch, *m, n)``,
            the last of them 1.
        b: None: B is packed by :func:`~abele.codegen.gemm.pack_kernel`, one ``[k, n]`` per batch entry.
            Otherwise B is read in place: strides over ``(*batch, *k, n)``, the last of them 1.
        operands: bias, residual and the like, strides over ``(*batch, *m, n)``. One may be the memory of an
            output with equal strides (accumulation in place).
    """
    target = target or host()
    return _Contraction(tuple(batch), tuple(m), n, tuple(k), a, outputs, b, operands, exprs, target).kernel()


def either(fn, p: Value, panels: int, n: int, width: int, body: Callable[[int], None]) -> None:
    """``body(columns)`` for panel ``p``: a whole one, or the last."""
    rest = n % width
    if rest == 0:
        body(width)
    elif panels == 1:
        body(rest)
    else:
        fn.when(p < panels - 1, lambda: body(width), lambda: body(rest))


class _Contraction:
    def __init__(
        self,
        batch: tuple[int, ...],
        m: tuple[int, ...],
        n: int,
        k: tuple[int, ...],
        a: Strides,
        outputs: Sequence[Output],
        b: Strides | None,
        operands: Sequence[Operand],
        exprs: Sequence[Expr],
        target: Host,
    ) -> None:
        arrays = [*operands, *outputs]
        groups = (len(batch), len(m), len(k))
        if len(a) != sum(groups) or any(len(o.strides) != len(batch) + len(m) + 1 for o in arrays):
            raise InvalidOperand(f"strides do not fit a product of batch {batch}, m {m}, n {n}, k {k}")
        if b is not None and (len(b) != len(batch) + len(k) + 1 or b[-1] != 1):
            raise InvalidOperand(f"B has strides {b}, but its rows must be contiguous", remedy="Pack it.")
        if any(o.strides[-1] != 1 for o in outputs):
            raise InvalidOperand("an output of a product does not have contiguous rows")
        self.batch, self.n, self.packed = batch, n, b is None
        self.outputs, self.operands, self.exprs, self.target = outputs, operands, exprs, target
        self.fn, self.lanes = start(), target.lanes
        self.vector = vector("float", self.lanes)
        most, self.width = tile(target)

        nb, nm = len(batch), len(m)
        self.a_batch, rows, across = a[:nb], a[nb : nb + nm], a[nb + nm :]
        self.size = math.prod(m)
        sizes, steps, _ = collapse(m, [rows, *(o.strides[nb : nb + nm] for o in arrays)])
        self.m = sizes or (1,)
        self.a_rows, *self.rows = [s if sizes else (0,) for s in steps]
        # Of a packed B the strides count rows of a panel.
        self.b_batch = contiguous(batch) if b is None else b[:nb]
        sizes, (across, down), _ = collapse(k, [across, contiguous(k) if b is None else b[nb:-1]])
        self.k = sizes or (1,)
        self.a_across = across if sizes else (0,)
        self.b_down = down if sizes else (0,)
        self.depth = math.prod(k)
        self.batches = [o.strides[:nb] for o in arrays]
        self.columns = [o.strides[-1] for o in arrays]
        self.row_steps = [s[-1] for s in self.rows]

        # The last dimension in tiles of nearly one height: `taller` of height + 1, the others of height.
        self.across = max(-(-self.m[-1] // most), 1)
        self.height, self.taller = divmod(self.m[-1], self.across)
        self.tiles = math.prod(self.m[:-1]) * self.across
        self.panels = -(-n // self.width)
        steps = zip((*self.m, *self.k), (*self.a_rows, *self.a_across))
        touched = 4 * (1 + sum((size - 1) * abs(step) for size, step in steps))
        fit = max(1, _A_BYTES * self.tiles // max(touched, 1))
        self.per_unit = min(max(self.tiles, 1), _TILES_PER_UNIT if 4 * self.depth * n <= _B_SMALL else fit)
        self.groups = -(-self.tiles // self.per_unit)

    def kernel(self) -> Kernel:
        fn = self.fn
        _, begin, end = fn.parameters
        count = 2 + len(self.operands) + len(self.outputs)
        self.a_base, self.b_base, *self.others = arguments(fn, count)
        empty = self.size == 0 or self.n == 0
        units = 0 if empty else math.prod(self.batch) * self.groups * self.panels
        if not empty:
            fn.loop(begin, end, 1, [], self._unit)
        work = 2 * self.size * self.n * max(self.depth, 1) * math.prod(self.batch)
        return finish(fn, "contract", count, units, cost=work // max(units, 1), target=self.target)

    def _unit(self, u: Value) -> None:
        """A group of tiles down one panel."""
        fn = self.fn
        *at, group, p = coordinates(u, (*self.batch, self.groups, self.panels))
        a = fn.offset(self.a_base, offset(fn, at, self.a_batch), "float")
        place = offset(fn, at, self.b_batch)
        if self.packed:
            place = place * packed_floats(self.depth, self.n, self.target) + p * (self.width * self.depth)
        else:
            place = place + p * self.width
        b = fn.offset(self.b_base, place, "float")
        first = group * self.per_unit
        stop = first + self.per_unit
        last = (stop > self.tiles).select(self.tiles, stop) if self.tiles % self.per_unit else stop

        def down(columns: int) -> None:
            def one(t: Value) -> None:
                *rows, i = coordinates(t, (*self.m[:-1], self.across))
                if self.taller == 0:
                    self._tile(at, [*rows, i * self.height], p, a, b, self.height, columns)
                    return
                before = i * self.height + (i < self.taller).select(i, self.taller)
                fn.when(
                    i < self.taller,
                    lambda: self._tile(at, [*rows, before], p, a, b, self.height + 1, columns),
                    lambda: self._tile(at, [*rows, before], p, a, b, self.height, columns),
                )

            fn.loop(first, last, 1, [], one)

        either(fn, p, self.panels, self.n, self.width, down)

    def _tile(
        self, at: Sequence[Value], row: Sequence[Value], p: Value, a: Value, b: Value, height: int, columns: int
    ) -> None:
        """``height`` rows from ``row`` on, times the ``columns`` of panel ``p``."""
        fn, lanes = self.fn, self.lanes
        vectors = -(-columns // lanes)
        rest = columns - (vectors - 1) * lanes
        edge = None if rest == lanes else fn.first_lanes(rest, lanes)
        masks = [None] * (vectors - 1) + [edge]
        a = fn.offset(a, offset(fn, row, self.a_rows), "float")
        per_row = vectors * lanes if self.packed else 1
        step = self.a_rows[-1]
        size = height * vectors
        *outer, inner = self.k
        chains = max(1, min(_CHAINS // size, inner))

        def products(a: Value, b: Value, i: Value, accs: Sequence[Value]) -> list[Value]:
            """Adds one row of B times one column of A to one chain."""
            b = fn.offset(b, i * (self.b_down[-1] * per_row), "float")
            lines = [
                fn.load(self.vector, fn.offset(b, v * lanes, "float"), None if self.packed else masks[v])
                for v in range(vectors)
            ]
            a = fn.offset(a, i * self.a_across[-1], "float")
            result = []
            for r in range(height):
                one = fn.load("float", fn.offset(a, r * step, "float")).splat(lanes)
                result += [fn.intrinsic("fmuladd", one, line, accs[r * vectors + v]) for v, line in enumerate(lines)]
            return result

        def stretch(walked: Sequence[Value], *accs: Value) -> list[Value]:
            """The innermost dimension of k."""
            a_here = fn.offset(a, offset(fn, walked, self.a_across[:-1]), "float")
            b_here = fn.offset(b, offset(fn, walked, self.b_down[:-1]) * per_row, "float")

            def several(i: Value, *accs: Value) -> list[Value]:
                result: list[Value] = []
                for c in range(chains):
                    result += products(a_here, b_here, i + c if c else i, accs[c * size : (c + 1) * size])
                return result

            whole = inner - inner % chains
            accs = tuple(fn.loop(0, whole, chains, accs, several))
            first = fn.loop(whole, inner, 1, accs[:size], lambda i, *c: products(a_here, b_here, i, c))
            return [*first, *accs[size:]]

        zeros = [fn.zero(self.vector)] * (size * chains)
        accs = nest(fn, outer, [], zeros, stretch)
        parts = [accs[c * size : (c + 1) * size] for c in range(chains)]
        while len(parts) > 1:
            half = -(-len(parts) // 2)
            parts = [
                [x + y for x, y in zip(parts[i], parts[i + half])] if i + half < len(parts) else parts[i]
                for i in range(half)
            ]
        self._finish(at, row, p * self.width, parts[0], height, vectors, masks)

    def _finish(
        self,
        at: Sequence[Value],
        row: Sequence[Value],
        column: Value,
        sums: Sequence[Value],
        height: int,
        vectors: int,
        masks: Sequence[Value | None],
    ) -> None:
        """The epilogue and the stores of one tile."""
        fn, lanes = self.fn, self.lanes
        arrays = [*self.operands, *self.outputs]
        types = [element(load_type(o.dtype, 1)) for o in arrays]
        corner = [
            fn.offset(base, offset(fn, [*at, *row, column], (*batch, *rows, step)), type)
            for base, batch, rows, step, type in zip(
                self.others, self.batches, self.rows, self.columns, types, strict=True
            )
        ]

        def line(r: Value | int, values: Sequence[Value]) -> None:
            rows = [
                Row(fn, fn.offset(base, r * down, type), o.dtype, step, lanes)
                for base, down, step, type, o in zip(corner, self.row_steps, self.columns, types, arrays)
            ]
            for v, (value, mask) in enumerate(zip(values, masks)):
                i = fn.const(v * lanes, "i64")

                def leaf(node: int, value: Value = value, i: Value = i, mask: Value | None = mask):
                    if node == 0:
                        return value
                    return rows[node - 1].read(i, mask) if node <= len(self.operands) else None

                dtypes = ["f32", *(o.dtype for o in self.operands)]
                evaluate = Evaluator(fn, dtypes, self.exprs, self.target, lanes, leaf)
                done = [evaluate.stored(o.node, o.dtype) for o in self.outputs]
                for out, result in zip(rows[len(self.operands) :], done, strict=True):
                    out.write(result, i, mask)

        if len(self.exprs) <= _INLINE or height == 1:
            for r in range(height):
                line(r, sums[r * vectors : (r + 1) * vectors])
            return
        # A long epilogue is a loop over the tile, which waits on the stack.
        buffer = fn.stack(f"[{height * vectors * lanes} x float]")
        for i, value in enumerate(sums):
            fn.store(value, fn.offset(buffer, i * lanes, "float"))

        def one(r: Value) -> None:
            here = fn.offset(buffer, r * (vectors * lanes), "float")
            line(r, [fn.load(self.vector, fn.offset(here, v * lanes, "float")) for v in range(vectors)])

        fn.loop(0, height, 1, [], one)

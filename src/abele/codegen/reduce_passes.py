"""Writes the passes of a reduction kernel, as :mod:`~abele.codegen.reduce` describes them.

Each level of the job's nodes is one pass over the reduced elements; values that do not vary along the axes are computed
once per kept position between the passes.

The last dimension (as the largest operand lies in memory) carries the vectors. When it is reduced, several vector
accumulators run along it and are folded in a fixed order; when it is kept, each lane owns a column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from abele.codegen.emit import Value, element
from abele.codegen.expression import Evaluator, convert, counted, load_type, round_to_half
from abele.codegen.module import Kernel, arguments, finish, start
from abele.codegen.reducer import REDUCTIONS, Job, Reducer, fold_lanes
from abele.codegen.space import Row, collapse, contiguous, coordinates, lanes_for, offset, permute

_BLOCK = 4096  # elements of a row after which a sum restarts
_STRETCH = 128  # steps of an outer dimension after which a sum restarts
_RESTART = 8  # terms below a level from which a restart there pays
_WIDE_BODY = 12  # nodes from which a pass is not unrolled


#: One vector of a unit: its column (None along a row) and the mask of its lanes (None: all).
_Slot = tuple[Value | None, Value | None]


class Emitter:
    """Writes the passes of a job over the ordered and merged iteration space."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.fn = start()
        self.sources = [*job.operands, *job.outputs]
        self.varies, self.levels = job.varies(), job.levels()
        used = job.used()
        n = len(job.operands)
        self.reducers = [
            Reducer(e.fn, n + j, e.args[0], "f32" if e.dtype == "f16" else e.dtype)
            for j, e in enumerate(job.exprs)
            if e.fn in REDUCTIONS and n + j in used
        ]
        self.dtypes = [*(o.dtype for o in job.operands), *(e.dtype for e in job.exprs)]
        self.elementwise = [
            k for k, (node, out) in enumerate(zip(job.nodes, job.outputs))
            if any(out.strides[a] for a in job.axes if job.shape[a] != 1)
        ]  # fmt: skip
        self.passes = 1 + max(
            [self.levels[r.node] - 1 for r in self.reducers] + [self.levels[job.nodes[k]] for k in self.elementwise],
            default=0,
        )
        self._order()

    def _order(self) -> None:
        """Sorts dimensions by the largest operand's strides, merges them, and picks the vector dimension."""
        job = self.job
        strides = [s.strides for s in self.sources]
        self.counts = counted(job.shape, job.exprs)
        strides += self.counts.values()
        reduced = contiguous([job.shape[a] for a in job.axes])
        strides.append(tuple(reduced[job.axes.index(d)] if d in job.axes else 0 for d in range(len(job.shape))))

        def footprint(s: tuple[int, ...]) -> int:
            return math.prod(n for n, step in zip(job.shape, s) if step)

        lead = max(strides[: len(job.operands)] or strides, key=footprint)
        if math.prod(job.shape) == 0:
            order = list(range(len(job.shape)))
        else:
            order = sorted(range(len(job.shape)), key=lambda d: -abs(lead[d]))
        kinds = ["reduced" if d in job.axes else "kept" for d in order]
        shape, strides, kinds = collapse(permute(order, job.shape), [permute(order, s) for s in strides], kinds)
        dims = [(size, kind, tuple(s[i] for s in strides)) for i, (size, kind) in enumerate(zip(shape, kinds))]
        none = (0,) * len(strides)
        if not any(kind == "reduced" for _, kind, _ in dims):
            dims.insert(0, (1, "reduced", none))
        kept = [d for d in dims if d[1] == "kept"]
        reduced_dims = [d for d in dims if d[1] == "reduced"]
        self.along = dims[-1][1] == "reduced"
        if self.along:
            self.kept_shape = tuple(d[0] for d in kept)
            self.inner = reduced_dims[-1][0]
            walk = reduced_dims[:-1]
            last = reduced_dims[-1]
        else:
            self.kept_shape = tuple(d[0] for d in kept[:-1])
            self.inner = kept[-1][0]
            walk, last = reduced_dims, kept[-1]
            kept = kept[:-1]
        self.walk_shape = tuple(d[0] for d in walk)
        count = len(strides)
        self.kept_strides = [tuple(d[2][k] for d in kept) for k in range(count)]
        self.walk_strides = [tuple(d[2][k] for d in walk) for k in range(count)]
        self.step = [last[2][k] for k in range(count)]
        self.lanes = lanes_for(max(self.inner, 1), self.job.target.lanes)
        if not self.along:
            self.columns = 4 if self.inner >= 16 * self.lanes else 2 if self.inner >= 4 * self.lanes else 1
        else:
            self.columns = 1

    def kernel(self) -> Kernel:
        job, fn = self.job, self.fn
        _, begin, end = fn.parameters
        table = arguments(fn, job.pointers)
        self.bases = [
            table[s.pointer] if s.start == 0 else fn.offset(table[s.pointer], s.start, "i8") for s in self.sources
        ]
        rows = math.prod(self.kept_shape)
        if self.along:
            units = rows
            fn.loop(begin, end, 1, [], lambda u: self._unit(coordinates(u, self.kept_shape), [(None, None)]))
        else:
            width = self.columns * self.lanes
            whole, rest = divmod(self.inner, width)
            blocks = whole + (rest > 0)
            units = rows * blocks

            def unit(u: Value) -> None:
                at = coordinates(u, (*self.kept_shape, blocks))
                first = at[-1] * width

                def full() -> None:
                    self._unit(at[:-1], [(first + v * self.lanes, None) for v in range(self.columns)])

                def partial() -> None:
                    masks = [
                        (first + v, None if rest - v >= self.lanes else fn.first_lanes(rest - v, self.lanes))
                        for v in range(0, rest, self.lanes)
                    ]
                    self._unit(at[:-1], masks)

                if rest == 0:
                    full()
                elif whole == 0:
                    partial()
                else:
                    fn.when(at[-1] < whole, full, partial)

            fn.loop(begin, end, 1, [], unit)
        size = math.prod(job.shape)
        cost = size * (len(job.exprs) + 1) // max(units, 1)
        return finish(fn, "reduce", job.pointers, units, cost=cost, target=job.target)

    def _row(self, k: int, at: Sequence[Value], walked: Sequence[Value]) -> Row:
        """Source ``k`` along the vector dimension at kept coordinates ``at`` and reduced ones ``walked``."""
        source = self.sources[k]
        where = offset(self.fn, at, self.kept_strides[k])
        if any(self.walk_strides[k]) and walked:
            where = where + offset(self.fn, walked, self.walk_strides[k])
        base = self.fn.offset(self.bases[k], where, element(load_type(source.dtype, 1)))
        return Row(self.fn, base, source.dtype, self.step[k], self.lanes)

    def _position(self, k: int, at: Sequence[Value], walked: Sequence[Value], i: Value) -> Value:
        """What the counting strides ``k`` say of the lanes at column or element ``i``."""
        where = offset(self.fn, at, self.kept_strides[k]) + offset(self.fn, walked, self.walk_strides[k])
        step = self.step[k]
        here = (where + i * step).splat(self.lanes)
        return here + self.fn.lane_numbers("i64", self.lanes) * step

    def _unit(self, at: list[Value], slots: Sequence[_Slot]) -> None:
        known: list[dict[int, Value]] = [{} for _ in slots]
        zero = self.fn.const(0, "i64")
        for k in range(len(self.job.operands)):
            if not self.varies[k]:
                row = self._row(k, at, [])
                for (column, mask), values in zip(slots, known):
                    values[k] = row.read(column if column is not None else zero, mask)
        for level in range(self.passes):
            self._settle(known, level)
            self._pass(level, at, slots, known)
        self._settle(known, self.passes)
        for k, (out, node) in enumerate(zip(self.job.outputs, self.job.nodes)):
            if k in self.elementwise:
                continue
            row = self._row(len(self.job.operands) + k, at, [])
            for (column, mask), values in zip(slots, known):
                value = self._evaluator(values.get).stored(node, out.dtype)
                if self.along:
                    row.lanes, row.type = 1, load_type(out.dtype, 1)
                    row.write(value.lane(0), zero, None)
                else:
                    assert column is not None
                    row.write(value, column, mask)

    def _evaluator(self, leaf: Callable[[int], Value | None], index: Callable[[int], Value] | None = None) -> Evaluator:
        operands = self.dtypes[: len(self.job.operands)]
        return Evaluator(self.fn, operands, self.job.exprs, self.job.target, self.lanes, leaf, index)

    def _settle(self, known: list[dict[int, Value]], level: int) -> None:
        """Computes the nodes that do not vary along the axes and are due by ``level``."""
        used = self.job.used()
        first = len(self.job.operands)
        for values in known:
            evaluate = self._evaluator(values.get)
            for node in range(first, len(self.dtypes)):
                due = node in used and not self.varies[node] and self.levels[node] <= level
                is_reduction = self.job.exprs[node - first].fn in REDUCTIONS
                if due and node not in values and not is_reduction:
                    values[node] = evaluate(node)

    def _pass(
        self,
        level: int,
        at: list[Value],
        slots: Sequence[_Slot],
        known: list[dict[int, Value]],
    ) -> None:
        reducers = [r for r in self.reducers if self.levels[r.node] == level + 1]
        writes = [k for k in self.elementwise if self.levels[self.job.nodes[k]] == level]
        stashes = [(n, k) for n, k in self.job.stash if self.levels[n] == level]
        if not reducers and not writes:
            return
        identities = [[r.identity(self.fn, self.dtypes[r.arg], self.lanes) for r in reducers] for _ in slots]
        flat = [v for slot in identities for state in slot for v in state]

        def visit(
            walked: Sequence[Value], rows: dict[int, Row], slot: int, i: Value, mask: Value | None
        ) -> list[list[Value]]:
            """One vector: writes what is due and gives the new terms of each reduction."""
            evaluate = self._elements(level, at, walked, rows, known[slot], i, mask)
            stored = [(rows[first + k], evaluate.stored(self.job.nodes[k], self.job.outputs[k].dtype)) for k in writes]
            stored += [
                (rows[first + k], evaluate.stored(n, "f32" if self.dtypes[n] == "f16" else self.dtypes[n]))
                for n, k in stashes
            ]
            terms = []
            for r in reducers:
                term = self._term(r, evaluate(r.arg), at, walked, i)
                if mask is not None and self.along:
                    empty = r.identity(self.fn, self.dtypes[r.arg], self.lanes)
                    term = [mask.select(t, e) for t, e in zip(term, empty)]
                terms.append(term)
            for row, value in stored:
                row.write(value, i, mask)
            return terms

        first = len(self.job.operands)
        totals = (self._pass_along if self.along else self._pass_across)(reducers, at, slots, flat, visit)
        states = iter(totals)
        for values in known:
            for r in reducers:
                state = [next(states) for _ in range(1 + r.by_position)]
                kind = self.dtypes[r.arg]
                if self.along:
                    state = [s.splat(self.lanes) for s in fold_lanes(r, state, kind, self.lanes)]
                e = self.job.exprs[r.node - first]
                result = convert(state[-1], "i32", e.dtype) if r.by_position else state[0]
                values[r.node] = round_to_half(result, self.job.target) if e.dtype == "f16" else result

    def _term(self, r: Reducer, value: Value, at: Sequence[Value], walked: Sequence[Value], i: Value) -> list[Value]:
        if r.by_position:
            return [value, self._position(-1, at, walked, i).convert("trunc", "i32")]
        return [convert(value, self.dtypes[r.arg], r.dtype)]

    def _elements(
        self,
        level: int,
        at: Sequence[Value],
        walked: Sequence[Value],
        rows: dict[int, Row],
        known: dict[int, Value],
        i: Value,
        mask: Value | None,
    ) -> Evaluator:
        stashed = {node: k for node, k in self.job.stash if self.levels[node] < level}
        n = len(self.sources)

        def leaf(node: int) -> Value | None:
            if node in known:
                return known[node]
            if node in stashed:
                return rows[len(self.job.operands) + stashed[node]].read(i, mask)
            return rows[node].read(i, mask) if node < len(self.job.operands) else None

        return self._evaluator(leaf, lambda dim: self._position(n + list(self.counts).index(dim), at, walked, i))

    def _rows(self, at: Sequence[Value], walked: Sequence[Value]) -> dict[int, Row]:
        rows = {k: self._row(k, at, walked) for k in range(len(self.sources))}
        for k in range(len(self.job.operands)):
            if self.varies[k]:
                rows[k].hoist()
        return rows

    def _merge(self, reducers: Sequence[Reducer], a: Sequence[Value], b: Sequence[Value]) -> list[Value]:
        """Combines flat lists of states (one slot)."""
        result: list[Value] = []
        for r in reducers:
            width = 1 + r.by_position
            at = len(result)
            result += r.combine(a[at : at + width], b[at : at + width], self.dtypes[r.arg])
        return result

    def _pass_along(self, reducers, at, slots, identity, visit) -> list[Value]:
        """The vector dimension is reduced: accumulators along each row, folded at its end."""
        fn, lanes, inner = self.fn, self.lanes, self.inner
        body = len(self.job.exprs) + len(self.job.operands)
        unroll = 1 if not reducers or body > _WIDE_BODY or inner < 8 * lanes else 4
        block = _BLOCK if inner > 2 * _BLOCK else max(inner, 1)

        def row(walked: Sequence[Value], totals: Sequence[Value], low: Value | int, high: Value | int):
            rows = self._rows(at, walked)
            wide, one = unroll * lanes, lanes
            count = high - low
            if isinstance(count, int):
                end_wide, end_one = count - count % wide, count - count % one
            else:
                end_wide, end_one = low + (count & -wide), low + (count & -one)

            def at_once(i: Value, *accs: Value) -> list[Value]:
                n = len(identity)
                result: list[Value] = []
                for u in range(unroll):
                    terms = visit(walked, rows, 0, i + u * lanes if u else i, None)
                    result += self._merge(reducers, accs[u * n : (u + 1) * n], [t for s in terms for t in s])
                return result

            def single(i: Value, *acc: Value, mask: Value | None = None) -> list[Value]:
                terms = visit(walked, rows, 0, i, mask)
                return self._merge(reducers, acc, [t for s in terms for t in s])

            accs = fn.loop(low, end_wide, wide, list(identity) * unroll, at_once)
            n = len(identity)
            parts = [accs[u * n : (u + 1) * n] for u in range(unroll)]
            while len(parts) > 1:
                parts = [
                    self._merge(reducers, a, b) for a, b in zip(parts[: len(parts) // 2], parts[len(parts) // 2 :])
                ]
            acc = parts[0]
            if unroll > 1 and (inner % wide or block % wide):
                acc = fn.loop(end_wide, end_one, one, acc, single)
            if inner % one:
                if isinstance(high, int):
                    mask = fn.first_lanes(high % one, lanes)
                    acc = single(fn.const(high - high % one, "i64"), *acc, mask=mask)
                else:
                    whole, rest = acc, high - end_one

                    def tail() -> list[Value]:
                        return single(high - rest, *whole, mask=fn.first_lanes(rest, lanes))

                    acc = fn.when(rest > 0, tail, lambda: whole)
            return self._merge(reducers, totals, acc)

        def rows_of(walked: Sequence[Value], *totals: Value) -> list[Value]:
            if block >= inner:
                return row(walked, totals, 0, inner)

            def part(low: Value, *sums: Value) -> list[Value]:
                stop = low + block
                high = (stop > inner).select(inner, stop)
                return row(walked, sums, low, high)

            return fn.loop(0, inner, block, totals, part)

        def merge(a: Sequence[Value], b: Sequence[Value]) -> list[Value]:
            return self._merge(reducers, a, b)

        return self._walk(self.walk_shape, [], identity, identity, rows_of, merge if reducers else None)

    def _pass_across(self, reducers, at, slots, identity, visit) -> list[Value]:
        """The vector dimension is kept: a lane owns a column, and the reduced dimensions are walked."""
        width = len(identity) // len(slots)

        def visit_all(walked: Sequence[Value], *accs: Value) -> list[Value]:
            rows = self._rows(at, walked)
            result: list[Value] = []
            for s, (column, mask) in enumerate(slots):
                terms = visit(walked, rows, s, column, mask)
                result += self._merge(reducers, accs[s * width : (s + 1) * width], [t for x in terms for t in x])
            return result

        def merge(a: Sequence[Value], b: Sequence[Value]) -> list[Value]:
            result: list[Value] = []
            for s in range(len(slots)):
                part = slice(s * width, (s + 1) * width)
                result += self._merge(reducers, a[part], b[part])
            return result

        return self._walk(self.walk_shape, [], identity, identity, visit_all, merge if reducers else None)

    def _walk(self, shape, walked, totals, identity, body, merge) -> list[Value]:
        """``body(coordinates, *totals)`` over ``shape``. Sums restart at every level, so that the error grows
        with the sum of the sizes and not with their product; ``merge`` None: nothing is summed."""
        if not shape:
            return body(walked, *totals)
        fn, (size, *rest) = self.fn, shape
        pays = math.prod(rest) >= _RESTART

        def one(i: Value, *sums: Value) -> list[Value]:
            if merge is not None and pays:
                return merge(sums, self._walk(rest, [*walked, i], identity, identity, body, merge))
            return self._walk(rest, [*walked, i], sums, identity, body, merge)

        if merge is None or size <= _STRETCH:
            return fn.loop(0, size, 1, totals, one)

        def stretch(low: Value, *sums: Value) -> list[Value]:
            stop = low + _STRETCH
            high = (stop > size).select(size, stop) if size % _STRETCH else stop
            return merge(sums, fn.loop(low, high, 1, identity, one))

        return fn.loop(0, size, _STRETCH, totals, stretch)

"""What a reduction kernel computes: its job (arrays, expressions, levels), and how single values are combined.

The nodes fall into levels: a reduction is one level above what it reduces. Each level is one pass over the reduced
elements, which ``reduce_passes`` writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from abele.codegen import vectormath as vm
from abele.codegen.emit import Function, Value, element, vector
from abele.codegen.expression import DTYPES, WIDER, Expr, convert
from abele.codegen.host import Host

_FAR = (1 << 31) - 1

REDUCTIONS = frozenset(f"reduce_{r}" for r in ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin"))


@dataclass(frozen=True)
class Source:
    """An array: which pointer, bytes into it, and how it is walked."""

    pointer: int
    start: int
    dtype: str
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Job:
    """What the passes compute: the arguments of :func:`reduce_kernels`, arrays as sources."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    operands: tuple[Source, ...]
    exprs: tuple[Expr, ...]
    outputs: tuple[Source, ...]
    nodes: tuple[int, ...]
    stash: tuple[tuple[int, int], ...]
    pointers: int
    target: Host

    def varies(self) -> list[bool]:
        """For every node, whether it differs along the reduced axes."""
        wide = [a for a in self.axes if self.shape[a] != 1]
        result = [any(o.strides[a] for a in wide) for o in self.operands]
        for e in self.exprs:
            result.append(e.fn == "index" or (e.fn not in REDUCTIONS and any(result[a] for a in e.args)))
        return result

    def levels(self) -> list[int]:
        """For every node, how many reductions lie one above another in it."""
        result = [0] * len(self.operands)
        for e in self.exprs:
            below = max((result[a] for a in e.args), default=0)
            result.append(below + (e.fn in REDUCTIONS))
        return result

    def used(self) -> set[int]:
        """The nodes that the outputs need."""
        found, stack = set(), list(self.nodes)
        while stack:
            n = stack.pop()
            if n not in found:
                found.add(n)
                if n >= len(self.operands):
                    stack.extend(self.exprs[n - len(self.operands)].args)
        return found


@dataclass(frozen=True)
class Reducer:
    """One reduction: identity and combination of its state (one value, or value and position)."""

    fn: str
    node: int
    arg: int
    dtype: str

    @property
    def by_position(self) -> bool:
        return self.fn in ("reduce_argmax", "reduce_argmin")

    def identity(self, fn: Function, arg_dtype: str, lanes: int) -> list[Value]:
        kind = arg_dtype if self.by_position else self.dtype
        type = vector(DTYPES[kind][0], lanes)
        low, high = float("-inf"), float("inf")
        if element(type) != "float":
            size = int(element(type)[1:])
            signed = kind not in WIDER and kind != "bool"
            low = -(1 << (size - 1)) if signed else 0
            high = (1 << (size - signed)) - 1
        start = {
            "reduce_sum": 0, "reduce_prod": 1, "reduce_any": 0, "reduce_all": 1,
            "reduce_max": low, "reduce_argmax": low, "reduce_min": high, "reduce_argmin": high,
        }[self.fn]  # fmt: skip
        first = fn.const(start, type)
        return [first, fn.const(_FAR, vector("i32", lanes))] if self.by_position else [first]

    def combine(self, a: Sequence[Value], b: Sequence[Value], kind: str) -> list[Value]:
        x, y = a[0], b[0]
        if self.fn == "reduce_sum":
            return [x | y if element(x.type) == "i1" else x + y]
        if self.fn == "reduce_prod":
            return [x & y if element(x.type) == "i1" else x * y]
        if self.fn == "reduce_any":
            return [x | y]
        if self.fn == "reduce_all":
            return [x & y]
        if self.by_position:
            how = "gt" if self.fn == "reduce_argmax" else "lt"
            better = _ordered(y, how, x, kind)
            same = x.compare("eq", y)
            if x.is_float:
                x_nan, y_nan = x.compare("uno", x), y.compare("uno", y)
                better = better | (y_nan & ~x_nan)
                same = same | (x_nan & y_nan)
            take = better | (same & (b[1] < a[1]))
            return [take.select(y, x), take.select(b[1], a[1])]
        if x.is_float:
            return [vm.maximum(x, y) if self.fn == "reduce_max" else vm.minimum(x, y)]
        take = _ordered(x, "gt" if self.fn == "reduce_max" else "lt", y, kind)
        return [take.select(x, y)]


def _ordered(x: Value, how: str, y: Value, kind: str) -> Value:
    """A comparison that knows unsigned numbers."""
    wide = WIDER.get(kind, kind)
    return convert(x, kind, wide).compare(how, convert(y, kind, wide))


def fold_lanes(reducer: Reducer, state: list[Value], kind: str, lanes: int) -> list[Value]:
    """All lanes of a state into one, by halves."""
    half = lanes // 2
    while half:
        order = [*range(half, 2 * half), *range(half)] + [0] * (lanes - 2 * half)
        state = reducer.combine(state, [s.shuffle(order) for s in state], kind)
        half //= 2
    return [s.lane(0) for s in state]

"""Scalar expressions: the records that describe what a map or a reduction computes at each element.

An expression list is a program in single assignment: node ``j`` may use the operands and the nodes before it.
Every node has a dtype; one of dtype ``f16`` is rounded to the half grid. Functions follow NumPy: maxima keep
nan, integer division is floored, ``rem`` has the sign of the divisor, ``round`` goes half to even. An integer
divided by zero gives 0 and never traps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from abele.codegen import vectormath as vm
from abele.codegen.emit import Function, Value, element, lanes_of, vector
from abele.codegen.host import Host
from abele.errors import Unsupported, suggest

#: dtype -> (LLVM type in registers, LLVM type in memory)
DTYPES = {
    "f32": ("float", "float"),
    "f16": ("float", "float"),
    "i32": ("i32", "i32"),
    "u32": ("i32", "i32"),
    "i16": ("i16", "i16"),
    "i64": ("i64", "i64"),
    "i8": ("i8", "i8"),
    "u8": ("i8", "i8"),
    "bool": ("i1", "i8"),
}

#: unsigned dtype -> signed dtype that holds all of it
WIDER = {"u8": "i32", "u32": "i64"}


@dataclass(frozen=True)
class Expr:
    """One node: a function of earlier nodes.

    Attributes:
        fn: a name of :data:`FUNCTIONS`, ``const`` (``value=``), ``index``, ``select``, ``cast`` or ``reduce_*``.
        args: the nodes used; operands are counted first.
        dtype: the result's dtype. Arithmetic has operands of this dtype; comparisons give ``bool``.
        attrs: numbers that belong to the function (``value``, ``beta``, ``threshold``).
    """

    fn: str
    args: tuple[int, ...]
    dtype: str
    attrs: tuple[tuple[str, float], ...]

    def __init__(self, fn: str, args: Sequence[int], dtype: str, **attrs: float) -> None:
        object.__setattr__(self, "fn", fn)
        object.__setattr__(self, "args", tuple(args))
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "attrs", tuple(sorted(attrs.items())))

    def attr(self, name: str, default: float = 0.0) -> float:
        return dict(self.attrs).get(name, default)


@dataclass(frozen=True)
class Operand:
    """An array that is read: its dtype and one stride per dimension of the iteration space, in elements."""

    dtype: str
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Output:
    """An array that is written with the values of ``node``."""

    node: int
    dtype: str
    strides: tuple[int, ...]


def load_type(dtype: str, lanes: int) -> str:
    return vector(DTYPES[dtype][1], lanes)


def from_memory(value: Value, dtype: str) -> Value:
    """A loaded value as it is computed with."""
    return value.compare("ne", 0) if dtype == "bool" else value


def to_memory(value: Value, dtype: str) -> Value:
    """A computed value as it is stored."""
    return value.convert("zext", "i8") if dtype == "bool" else value


def round_to_half(x: Value, target: Host) -> Value:
    """The nearest half, ties to even, overflow to infinity, as a float."""
    if target.rounds_to_half:
        return x.convert("fptrunc", "half").convert("fpext", "float")
    # Without the instruction: normal halves by carrying into the 13 bits that go, subnormal ones by adding a
    # number whose last place is the half grid's.
    a = vm.absolute(x)
    bits = a.bits("i32")
    odd = bits.logical_shift(13) & 1
    normal = ((bits + odd + 0xFFF) & ~0x1FFF).bits("float")
    grid = (a < 6.103515625e-05).select((a + 0.5) - 0.5, normal)
    grid = (a >= 65520.0).select(float("inf"), grid)
    grid = a.compare("uno", a).select(x, grid)
    return vm.copy_sign(grid, x)


def round_to_float8(x: Value, mantissa: int, least_exponent: int, most: float) -> Value:
    """The nearest number with so many bits of mantissa, ties to even, none beyond ``most``, as a float.

    A power of two whose last place is the grid's is added and taken away again.
    """
    a = vm.absolute(x)
    a = (a > most).select(most, a)
    floor = 2.0**least_exponent
    exponent = (a < floor).select(floor, a).bits("i32") & 0x7F800000
    place = (exponent + ((23 - mantissa) << 23)).bits("float")
    grid = a.compare("uno", a).select(x, (a + place) - place)
    return vm.copy_sign(grid, x)


Emit = Callable[..., Value]


def _by_kind(for_float: Emit, for_int: Emit) -> Emit:
    return lambda *v: for_float(*v) if v[0].is_float else for_int(*v)


def _floor_div_int(a: Value, b: Value) -> Value:
    quotient, remainder = _divide_int(a, b)
    return (remainder.compare("ne", 0) & ((remainder ^ b) < 0)).select(quotient - 1, quotient)


def _divide_int(a: Value, b: Value) -> tuple[Value, Value]:
    """Quotient and remainder toward zero; 0 over a zero divisor, and no overflow at minimum / -1."""
    minus = b.compare("eq", -1)
    safe = (b.compare("eq", 0) | minus).select(1, b)
    quotient = minus.select(0 - a, a / safe)
    remainder = a % safe
    zero = b.compare("eq", 0)
    return zero.select(0, quotient), zero.select(0, minus.select(0, remainder))


def _rem_int(a: Value, b: Value) -> Value:
    remainder = _divide_int(a, b)[1]
    return (remainder.compare("ne", 0) & ((remainder ^ b) < 0)).select(remainder + b, remainder)


def _fmod(a: Value, b: Value) -> Value:
    """Remainder toward zero of floats, exact: long division by at most 12 bits of quotient a round, in float64.

    LLVM's ``frem`` would call the C library; the quotient of two float32 has at most 277 binary digits.
    """
    fn = a.fn
    x, y = vm.absolute(a).convert("fpext", "double"), vm.absolute(b).convert("fpext", "double")
    finite = (x < float("inf")) & (y > 0.0)
    x = finite.select(x, 0.0)
    infinite = y.compare("eq", float("inf"))
    y = (finite & ~infinite).select(y, 1.0)

    def reduce_once(i: Value, rest: Value) -> list[Value]:
        # Divisor scaled so that the quotient stays under 2^20; each round takes 20 digits off.
        scale = ((260 - i * 20 + 1023) << 52).bits("double").splat(lanes_of(a.type))
        divisor = y * scale
        quotient = vm.rounded(rest / divisor, "trunc")
        left = quotient.fma(-divisor, rest)
        left = (left < 0.0).select(left + divisor, left)
        return [(left >= divisor).select(left - divisor, left)]

    rest = fn.loop(fn.const(0, "i64"), fn.const(14, "i64"), 1, [x], reduce_once)[0]
    value = infinite.select(vm.absolute(a).convert("fpext", "double"), rest).convert("fptrunc", "float")
    good = (vm.absolute(a) < float("inf")) & b.compare("ne", 0.0) & ~b.compare("uno", b)
    return good.select(vm.copy_sign(value, a), float("nan"))


def _rem(a: Value, b: Value) -> Value:
    """Python's remainder of floats: the sign of the divisor."""
    r = _fmod(a, b)
    fixed = (r.compare("ne", 0.0) & ((r < 0.0) ^ (b < 0.0))).select(r + b, r)
    return fixed.compare("eq", 0.0).select(vm.copy_sign(fixed, b), fixed)


def _floor_div(a: Value, b: Value) -> Value:
    """Floored quotient of floats as NumPy has it: from the exact remainder."""
    r = _fmod(a, b)
    quotient = (a - r) / b
    quotient = (r.compare("ne", 0.0) & ((r < 0.0) ^ (b < 0.0))).select(quotient - 1.0, quotient)
    low = vm.rounded(quotient, "floor")
    nearest = ((quotient - low) > 0.5).select(low + 1.0, low)
    nearest = quotient.compare("eq", 0.0).select(vm.copy_sign(nearest, a / b), nearest)
    return b.compare("eq", 0.0).select(a / b, nearest)


def _shift(how: str) -> Emit:
    def emit(a: Value, b: Value) -> Value:
        bits = int(element(a.type)[1:])
        inside = (b >= 0) & (b < bits)
        count = inside.select(b, 0)
        if how == "left":
            return inside.select(a << count, 0)
        return inside.select(a >> count, a >> (bits - 1))

    return emit


def _sign(x: Value) -> Value:
    if x.is_float:
        return (x > 0.0).select(1.0, (x < 0.0).select(-1.0, x))
    return (x > 0).select(1, (x < 0).select(-1, x.like(0)))


def _compare(how: str) -> Emit:
    return lambda a, b: a.compare(how, b)


def _truth(x: Value) -> Value:
    return x if element(x.type) == "i1" else x.compare("ne", 0)


def _max_int(a: Value, b: Value) -> Value:
    return (a > b).select(a, b)


def _min_int(a: Value, b: Value) -> Value:
    return (a < b).select(a, b)


def _identity(x: Value) -> Value:
    return x


#: name -> (number of arguments, emitter on vectors)
FUNCTIONS: dict[str, tuple[int, Emit]] = {
    "exp": (1, vm.exp),
    "exp2": (1, vm.exp2),
    "expm1": (1, vm.expm1),
    "log": (1, vm.log),
    "log2": (1, vm.log2),
    "log10": (1, vm.log10),
    "log1p": (1, vm.log1p),
    "tanh": (1, vm.tanh),
    "sigmoid": (1, vm.sigmoid),
    "erf": (1, vm.erf),
    "sqrt": (1, vm.square_root),
    "rsqrt": (1, lambda x: 1.0 / vm.square_root(x)),
    "reciprocal": (1, lambda x: 1.0 / x),
    "neg": (1, lambda x: -x),
    "abs": (1, _by_kind(vm.absolute, lambda x: (x < 0).select(0 - x, x))),
    "sign": (1, _sign),
    "floor": (1, _by_kind(lambda x: vm.rounded(x, "floor"), _identity)),
    "ceil": (1, _by_kind(lambda x: vm.rounded(x, "ceil"), _identity)),
    "round": (1, _by_kind(vm.rounded, _identity)),
    "trunc": (1, _by_kind(lambda x: vm.rounded(x, "trunc"), _identity)),
    "sin": (1, vm.sin),
    "cos": (1, vm.cos),
    "tan": (1, vm.tan),
    "asin": (1, vm.asin),
    "acos": (1, vm.acos),
    "atan": (1, vm.atan),
    "sinh": (1, vm.sinh),
    "cosh": (1, vm.cosh),
    "is_nan": (1, lambda x: x.compare("uno", x)),
    "is_inf": (1, lambda x: vm.absolute(x).compare("eq", float("inf"))),
    "is_finite": (1, lambda x: vm.absolute(x) < float("inf")),
    "logical_not": (1, lambda x: ~_truth(x)),
    "bit_not": (1, lambda x: ~x),
    "relu": (1, _by_kind(vm.relu, lambda x: (x < 0).select(0, x))),
    "add": (2, lambda a, b: a | b if element(a.type) == "i1" else a + b),
    "sub": (2, lambda a, b: a - b),
    "mul": (2, lambda a, b: a & b if element(a.type) == "i1" else a * b),
    "div": (2, _by_kind(lambda a, b: a / b, lambda a, b: _divide_int(a, b)[0])),
    "floor_div": (2, _by_kind(_floor_div, _floor_div_int)),
    "rem": (2, _by_kind(_rem, _rem_int)),
    "fmod": (2, _by_kind(_fmod, lambda a, b: _divide_int(a, b)[1])),
    "max": (2, _by_kind(vm.maximum, _max_int)),
    "min": (2, _by_kind(vm.minimum, _min_int)),
    "pow": (2, vm.power),
    "atan2": (2, vm.atan2),
    "eq": (2, _compare("eq")),
    "ne": (2, _compare("ne")),
    "lt": (2, _compare("lt")),
    "le": (2, _compare("le")),
    "gt": (2, _compare("gt")),
    "ge": (2, _compare("ge")),
    "and": (2, lambda a, b: _truth(a) & _truth(b)),
    "or": (2, lambda a, b: _truth(a) | _truth(b)),
    "xor": (2, lambda a, b: _truth(a) ^ _truth(b)),
    "bit_and": (2, lambda a, b: a & b),
    "bit_or": (2, lambda a, b: a | b),
    "bit_xor": (2, lambda a, b: a ^ b),
    "shl": (2, _shift("left")),
    "shr": (2, _shift("right")),
    "select": (3, lambda c, a, b: c.select(a, b)),
    "f143": (1, lambda x: round_to_float8(x, 3, -7, 240.0)),
    "f152": (1, lambda x: round_to_float8(x, 2, -15, 57344.0)),
}
ROUND_TO_FLOAT8 = ("f143", "f152")
"""Functions that round a float to an 8-bit one, which lies on the half grid too; see ``abele.ir.float8``."""

# These give a value of the half grid from values of the half grid: no rounding is needed.
_KEEPS_HALF = {"neg", "abs", "sign", "relu", "max", "min", "select", "floor", "ceil", "round", "trunc"}


def convert(value: Value, source: str, wanted: str) -> Value:
    """A cast between dtypes, except the rounding to half: NumPy's rules, floats to integers toward zero."""
    if source == wanted or {source, wanted} <= {"f32", "f16"}:
        return value
    scalar = DTYPES[wanted][0]
    if wanted == "bool":
        return value.compare("ne", 0)
    unsigned = source == "bool" or source in WIDER
    if scalar == "float":
        return value.convert("uitofp" if unsigned else "sitofp", "float")
    if value.is_float:
        wide = vector("i64" if wanted in ("i64", "u32") else "i32", lanes_of(value.type))
        suffix = f"v{lanes_of(value.type)}" if value.type.startswith("<") else ""
        whole = value.fn.emit(
            wide,
            f"call {wide} @llvm.fptosi.sat.{suffix}{element(wide)}.{suffix}f32({value.type} {value.text})",
        )
        return whole if element(wide) == scalar else whole.convert("trunc", scalar)
    have, want = int(element(value.type)[1:]), int(scalar[1:])
    if have == want:
        return value
    return value.convert(("zext" if unsigned else "sext") if want > have else "trunc", scalar)


def counted(shape: Sequence[int], exprs: Sequence[Expr]) -> dict[int, tuple[int, ...]]:
    """What ``index`` nodes count, as strides over ``shape``: dimension (-1: all of them) -> strides."""
    dims = {int(e.attr("dim", -1)) for e in exprs if e.fn == "index"}
    whole = tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
    return {d: whole if d < 0 else tuple(int(i == d) for i in range(len(shape))) for d in sorted(dims)}


class Evaluator:
    """Emits the nodes that are asked for, each once.

    Args:
        operands: dtypes of the operands.
        exprs: the nodes after them.
        target: the processor.
        leaf: gives the value of an operand or of a node that is already known (None: not known).
        index: gives the element's coordinate in a dimension (-1: its row-major position) as i64 lanes.
    """

    def __init__(
        self,
        fn: Function,
        operands: Sequence[str],
        exprs: Sequence[Expr],
        target: Host,
        lanes: int,
        leaf: Callable[[int], Value | None],
        index: Callable[[int], Value] | None = None,
    ) -> None:
        self.fn, self.exprs, self.target, self.lanes = fn, exprs, target, lanes
        self.dtypes = [*operands, *(e.dtype for e in exprs)]
        self._first = len(operands)
        self._leaf, self._index = leaf, index
        self._done: dict[int, Value] = {}

    def __call__(self, node: int) -> Value:
        if node not in self._done:
            for before in self._needed(node):
                self._done[before] = self._emit(before)
        return self._done[node]

    def stored(self, node: int, dtype: str) -> Value:
        """The node as an array of ``dtype`` holds it."""
        value = convert(self(node), self.dtypes[node], dtype)
        exact = dtype != "f16" or self.dtypes[node] in ("f16", "bool")
        return value if exact else round_to_half(value, self.target)

    def _needed(self, node: int) -> list[int]:
        """The nodes to emit for ``node`` in order, without recursion: chains may be long."""
        wanted, stack = set(), [node]
        while stack:
            n = stack.pop()
            if n in wanted or n in self._done:
                continue
            wanted.add(n)
            value = self._leaf(n)
            if value is not None:
                self._done[n] = value
                wanted.discard(n)
            elif n >= self._first:
                stack.extend(self.exprs[n - self._first].args)
        return sorted(wanted)

    def _emit(self, node: int) -> Value:
        e = self.exprs[node - self._first]
        type = vector(DTYPES[e.dtype][0], self.lanes)
        if e.fn == "const":
            constant = self.fn.const(e.attr("value"), type)
            return round_to_half(constant, self.target) if e.dtype == "f16" else constant
        if e.fn == "index":
            if self._index is None:
                raise Unsupported("an expression uses the element's index where there is none")
            return convert(self._index(int(e.attr("dim", -1))), "i64", e.dtype)
        kinds = [self.dtypes[a] for a in e.args]
        values = [self._done[a] for a in e.args]
        if e.fn == "cast":
            value = convert(values[0], kinds[0], e.dtype)
        else:
            arity, emit = self._function(e)
            if len(values) != arity:
                raise Unsupported(f"expression {e.fn} takes {arity} arguments, not {len(values)}")
            if e.fn in _SIGNED_ONLY:
                # Unsigned numbers are computed in a wider type, where they are ordinary ones.
                values = [convert(v, k, WIDER.get(k, k)) for v, k in zip(values, kinds, strict=True)]
            value = emit(*values)
            if e.dtype in WIDER:
                value = value.convert("trunc", DTYPES[e.dtype][0])
        if (
            e.dtype == "f16"
            and e.fn not in ROUND_TO_FLOAT8
            and not ((e.fn in _KEEPS_HALF or e.fn == "cast") and all(k in ("f16", "bool") for k in kinds))
        ):
            value = round_to_half(value, self.target)
        return value

    def _function(self, e: Expr) -> tuple[int, Emit]:
        try:
            return FUNCTIONS[e.fn]
        except KeyError:
            raise Unsupported(f"no expression function {e.fn!r}", remedy=suggest(e.fn, FUNCTIONS)) from None


_SIGNED_ONLY = {"div", "floor_div", "rem", "fmod", "max", "min", "lt", "le", "gt", "ge", "sign", "abs", "relu", "shr"}

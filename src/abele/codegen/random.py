"""Random numbers: Philox4x32-10, a function of a key and the element's number.

Element ``n`` is made from word ``n % 4`` of the block whose 64-bit counter is ``n // 4``. Source: Salmon, Moraes,
Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from abele.codegen import vectormath as vm
from abele.codegen.emit import Function, Value, vector
from abele.codegen.expression import round_to_half
from abele.codegen.host import Host, host
from abele.codegen.module import Kernel, arguments, finish, start

_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_LOW = 0xFFFFFFFF


def philox(counter: list[Value], key: list[Value]) -> list[Value]:
    """Four words of a block; all words are i64 lanes below 2^32."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1 = p1.logical_shift(32) ^ c1 ^ k0, p1 & _LOW
        c2, c3 = p0.logical_shift(32) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _KEY_STEPS[0]) & _LOW, (k1 + _KEY_STEPS[1]) & _LOW
    return [c0, c1, c2, c3]


def _kernel(count: int, name: str, target: Host, numbers: Callable[[Function, list[Value]], list[Value]]) -> Kernel:
    """A unit is one vector of blocks: ``4 * lanes`` elements."""
    fn, lanes = start(), target.lanes
    _, begin, end = fn.parameters
    key_base, out = arguments(fn, 2)
    words = [fn.load("i32", fn.offset(key_base, i, "i32")).convert("zext", "i64").splat(lanes) for i in (0, 1)]
    per_unit = 4 * lanes
    units = -(-count // per_unit)

    def unit(u: Value) -> None:
        block = (u * lanes).splat(lanes) + fn.lane_numbers("i64", lanes)
        zero = fn.zero(vector("i64", lanes))
        made = philox([block & _LOW, block.logical_shift(32), zero, zero], words)
        # Word w of block b is element 4 b + w: two rounds of interleaving.
        even, odd = list(range(0, 2 * lanes, 1)), lanes
        mixed = [i // 2 + odd * (i % 2) for i in even]
        values = numbers(fn, made)
        a, b = values[0].shuffle(mixed, values[2]), values[1].shuffle(mixed, values[3])
        wide = [i // 2 + 2 * lanes * (i % 2) for i in range(4 * lanes)]
        line = a.shuffle(wide, b)
        first = u * per_unit
        for part in range(4):
            piece = line.shuffle(list(range(part * lanes, (part + 1) * lanes)))
            at = first + part * lanes
            whole = at <= count - lanes
            where = fn.offset(out, at, "float")

            def full(piece: Value = piece, where: Value = where) -> None:
                fn.store(piece, where)

            def some(piece: Value = piece, where: Value = where, at: Value = at) -> None:
                fn.store(piece, where, fn.first_lanes(count - at, lanes))

            fn.when(whole, full, some)

    fn.loop(begin, end, 1, [], unit)
    return finish(fn, name, 2, units, cost=per_unit * 12, target=target)


def _to_float(d: Value) -> Value:
    """float64 to the float32 toward zero with its last bit set where it is not exact: what is rounded again from
    that to half is rounded as from the float64."""
    near = d.convert("fptrunc", "float")
    back = near.convert("fpext", "double")
    bits = near.bits("i32")
    toward_zero = (vm.absolute(back) > vm.absolute(d)).select(bits - 1, bits)
    return back.compare("eq", d).select(bits, toward_zero | 1).bits("float")


def uniform_kernel(
    count: int, low: float, high: float, largest: float, dtype: str = "f32", target: Host | None = None
) -> Kernel:
    """``low + (high - low) u``, at most ``largest``, rounded once; ``u`` has the word's top 24 bits (11 in half).

    Pointers: key (two 32-bit words), result of ``count`` elements.
    """
    target = target or host()
    bits = 11 if dtype == "f16" else 24

    def numbers(fn: Function, words: list[Value]) -> list[Value]:
        result = []
        for w in words:
            top = w.logical_shift(32 - bits).convert("trunc", "i32")
            u = top.convert("sitofp", "double") * 2.0**-bits
            exact = u * (high - low) + low
            value = round_to_half(_to_float(exact), target) if dtype == "f16" else exact.convert("fptrunc", "float")
            result.append((value > largest).select(largest, value))
        return result

    return _kernel(count, "uniform", target, numbers)


def normal_kernel(count: int, mean: float, deviation: float, dtype: str = "f32", target: Host | None = None) -> Kernel:
    """Normal numbers by Box and Muller: words ``2 i`` and ``2 i + 1`` give radius and angle, from 24 bits each;
    the even element is ``r cos``, the odd one ``r sin``.

    Pointers: key (two 32-bit words), result of ``count`` elements.
    """
    target = target or host()

    def numbers(fn: Function, words: list[Value]) -> list[Value]:
        result = []
        for i in (0, 2):
            u = _double(words[i].logical_shift(8))
            angle = _double(words[i + 1].logical_shift(8)) * (2.0 * math.pi * 2.0**-24)
            radius = vm.square_root(vm.log_double((u + 1.0) * 2.0**-24) * -2.0)
            s, c = vm.sine_cosine_double(angle)
            for part in (c, s):
                exact = radius * part * deviation + mean
                half = dtype == "f16"
                result.append(round_to_half(_to_float(exact), target) if half else exact.convert("fptrunc", "float"))
        return result

    return _kernel(count, "normal", target, numbers)


def _double(word: Value) -> Value:
    return word.convert("trunc", "i32").convert("sitofp", "double")

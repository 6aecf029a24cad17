"""Random numbers on the host: Philox4x32-10 in 64-bit lanes, four elements a block.

The numbers are those of ``op``: the same block for the same key and element, however the work is split.
"""

from __future__ import annotations

import math

from abele.codegen import Operand, Output, map_kernel
from abele.codegen.recipe import Recipe
from abele.ir.types import DType
from abele.ops.hosts.kernels import HostPlan, Launch, Ref, Request, kernel_for
from abele.ops.random.op import KEY_DOMAIN, ROUNDS, below

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = 0xFFFFFFFF
_KEY = (Ref("in", 0), Ref("in", 0, 4))


class _Words(Recipe):
    """Expressions over the two words of a key, operands 0 and 1."""

    def __init__(self) -> None:
        super().__init__([Operand("i32", (0,)), Operand("i32", (0,))])
        self.mask = self.whole(_LOW)
        self.key = [self.long("bit_and", self("cast", i, dtype="i64"), self.mask) for i in (0, 1)]

    def whole(self, value: int) -> int:
        return self("const", dtype="i64", value=value)

    def long(self, fn: str, *args: int) -> int:
        return self(fn, *args, dtype="i64")

    def philox(self, c0: int, c1: int, c2: int, c3: int) -> list[int]:
        """The four words of a counter, as 64-bit numbers below 2**32."""
        k0, k1 = self.key
        half, mask = self.whole(32), self.mask
        multipliers = [self.whole(m) for m in _MULTIPLIERS]
        steps = [self.whole(s) for s in _KEY_STEPS]

        def high(p: int) -> int:
            return self.long("bit_and", self.long("shr", p, half), mask)

        for _ in range(ROUNDS):
            p0, p1 = self.long("mul", multipliers[0], c0), self.long("mul", multipliers[1], c2)
            c0, c1, c2, c3 = (
                self.long("bit_xor", self.long("bit_xor", high(p1), c1), k0),
                self.long("bit_and", p1, mask),
                self.long("bit_xor", self.long("bit_xor", high(p0), c3), k1),
                self.long("bit_and", p0, mask),
            )
            k0 = self.long("bit_and", self.long("add", k0, steps[0]), mask)
            k1 = self.long("bit_and", self.long("add", k1, steps[1]), mask)
        return [c0, c1, c2, c3]

    def blocks(self, first: int) -> list[int]:
        """The words of the blocks ``first + index``."""
        position = self.long("add", self("index", dtype="i64", dim=0), self.whole(first))
        zero = self.whole(0)
        return self.philox(position, zero, zero, zero)

    def fraction(self, word: int, bits: int) -> int:
        """The top ``bits`` of a word as a float32 below ``2**bits``."""
        top = self.long("shr", word, self.whole(32 - bits))
        return self("cast", self("cast", top, dtype="i32"), dtype="f32")


@kernel_for("random_key")
def _random_key(request: Request) -> HostPlan | None:
    index = int(request.attributes["index"])
    r = _Words()
    counter = (r.whole(index & _LOW), r.whole(index >> 32 & _LOW), r.whole(0), r.whole(KEY_DOMAIN))
    made = [r("cast", word, dtype="i32") for word in r.philox(*counter)[:2]]
    kernel = map_kernel((1,), r.operands, r.exprs, [Output(n, "i32", (1,)) for n in made])
    return HostPlan((Launch(kernel, (*_KEY, Ref("out", 0), Ref("out", 0, 4))),))


def _by_blocks(request: Request, values) -> HostPlan | None:
    """``values(recipe, words)`` gives four nodes for each block; the last block may be cut."""
    (y,) = request.results
    if not y.plain or not y.type.size:
        return None
    size, launches = math.prod(y.shape), []
    for first, blocks, lanes in ((0, size // 4, 4), (size // 4, int(size % 4 > 0), size % 4)):
        if blocks:
            r = _Words()
            nodes = values(r, r.blocks(first))[:lanes]
            kernel = map_kernel((blocks,), r.operands, r.exprs, [Output(n, y.dtype, (4,)) for n in nodes])
            launches.append(Launch(kernel, (*_KEY, *(Ref("out", 0, 16 * first + 4 * j) for j in range(lanes)))))
    return HostPlan(tuple(launches))


@kernel_for("random_uniform")
def _uniform(request: Request) -> HostPlan | None:
    a, dtype = request.attributes, request.results[0].type.dtype
    low, high = float(a["low"]), float(a["high"])
    bits = 11 if dtype is DType.F16 else 24

    def values(r: _Words, words: list[int]) -> list[int]:
        done = []
        for word in words:
            u = r("mul", r.fraction(word, bits), r.const((high - low) * 2.0**-bits))
            value = r("cast", r("add", u, r.const(low)), dtype=str(dtype))
            if high > low:
                limit = r("const", dtype=str(dtype), value=float(below(high, dtype)))
                value = r("min", value, limit, dtype=str(dtype))
            done.append(value)
        return done

    return _by_blocks(request, values)


@kernel_for("random_normal")
def _normal(request: Request) -> HostPlan | None:
    a = request.attributes
    mean, std = float(a["mean"]), float(a["std"])

    def values(r: _Words, words: list[int]) -> list[int]:
        done = []
        for w_radius, w_angle in (words[:2], words[2:]):
            u = r("mul", r("add", r.fraction(w_radius, 24), r.const(1.0)), r.const(2.0**-24))
            angle = r("mul", r.fraction(w_angle, 24), r.const(2.0 * math.pi * 2.0**-24))
            radius = r("mul", r("sqrt", r("mul", r("log", u), r.const(-2.0))), r.const(std))
            done += [r("add", r("mul", radius, r(fn, angle)), r.const(mean)) for fn in ("cos", "sin")]
        return done

    return _by_blocks(request, values)

"""Running sums along one dimension: lanes run over what lies inside it, the sum is carried in a register."""

from __future__ import annotations

from abele.codegen.emit import Value, element
from abele.codegen.expression import load_type, round_to_half
from abele.codegen.host import Host, host
from abele.codegen.module import Kernel, arguments, finish, start
from abele.codegen.space import coordinates


def cumsum_kernel(outer: int, length: int, inner: int, dtype: str = "f32", target: Host | None = None) -> Kernel:
    """``y[o, i, c] = x[o, 0, c] + … + x[o, i, c]`` for row-major ``[outer, length, inner]``. Pointers: x, y.

    Sums are made in order. Half is summed in float, each result rounded; integers wrap.
    """
    target = target or host()
    fn = start()
    _, begin, end = fn.parameters
    x, y = arguments(fn, 2)
    lanes = target.lanes if inner > 1 else 1
    type = load_type(dtype, lanes)
    blocks = -(-inner // lanes)

    def unit(u: Value) -> None:
        o, block = coordinates(u, (outer, blocks))
        first = block * lanes
        mask = fn.first_lanes((-first) + inner if blocks > 1 else inner, lanes) if inner % lanes else None
        start_ = o * (length * inner) + first

        def step(i: Value, total: Value) -> list[Value]:
            at = start_ + i * inner
            total = total + fn.load(type, fn.offset(x, at, element(type)), mask)
            made = round_to_half(total, target) if dtype == "f16" else total
            fn.store(made, fn.offset(y, at, element(type)), mask)
            return [total]

        fn.loop(0, length, 1, [fn.zero(type)], step)

    fn.loop(begin, end, 1, [], unit)
    return finish(fn, "cumsum", 2, outer * blocks, cost=3 * length, target=target)

"""Recurrent layers on the host: one product for all that the input brings, then a product and a map for each step.

The steps share their kernels and differ in addresses. The gradients run backwards in the same way and make the weights'
gradients from all steps at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from abele.codegen import Expr, Operand, Output, map_kernel, reduction
from abele.codegen.gemm import gemm_kernel, pack_kernel, packed_floats
from abele.codegen.recipe import Recipe
from abele.ops.hosts.kernels import HostPlan, Launch, Ref, Request, kernel_for, row_major

_WORD = 4
"""Bytes of an element: float32, also for half."""


@dataclass
class _Chain:
    """Collects launches and the memory that they need."""

    launches: list[Launch] = field(default_factory=list)
    packing: list[Launch] = field(default_factory=list)
    scratch: list[int] = field(default_factory=list)
    packed: list[int] = field(default_factory=list)
    packs: list[int] = field(default_factory=list)

    def space(self, *sizes: int) -> Ref:
        """Scratch for float32 of these sizes."""
        count = _WORD
        for size in sizes:
            count *= size
        self.scratch.append(max(count, 64))
        return Ref("scratch", len(self.scratch) - 1)

    def pack(self, operand: int, k: int, n: int, strides: tuple[int, int]) -> Ref:
        """An operand in panels, as the right side of products."""
        self.packed.append(max(_WORD * packed_floats(k, n), 64))
        place = Ref("packed", len(self.packed) - 1)
        self.packing.append(Launch(pack_kernel(k, n, strides), (Ref("in", operand), place)))
        self.packs.append(operand)
        return place

    def gemm(
        self,
        size: tuple[int, int, int],
        a: tuple[Ref, tuple[int, int]],
        b: tuple[Ref, tuple[int, int] | None],
        out: tuple[Ref, str],
        add: tuple[Ref, Operand] | None = None,
    ) -> None:
        """``out = a @ b``, plus ``add``; sizes are m, n, k and the result has rows without gaps."""
        m, n, k = size
        exprs = [Expr("add", (0, 1), "f32")] if add is not None else []
        outputs = [Output(2 if add is not None else 0, out[1], (n, 1))]
        operands = [add[1]] if add is not None else []
        kernel = gemm_kernel(m, n, k, a[1], outputs, b=b[1], operands=operands, exprs=exprs)
        self.launches.append(Launch(kernel, (a[0], b[0], *([add[0]] if add else []), out[0])))

    def map(
        self, shape: tuple[int, ...], recipe: Recipe, refs: Sequence[Ref], outs: Sequence[tuple[Ref, Output]]
    ) -> None:
        """A map whose operands are those of the recipe, at ``refs``."""
        kernel = map_kernel(shape, recipe.operands, recipe.exprs, [o for _, o in outs])
        self.launches.append(Launch(kernel, (*refs, *(r for r, _ in outs))))

    def move(self, shape: tuple[int, int], source: tuple[Ref, Operand], target: tuple[Ref, str]) -> None:
        """A copy into rows without gaps."""
        self.map(shape, Recipe([source[1]]), [source[0]], [(target[0], Output(0, target[1], row_major(shape)))])

    def plan(self) -> HostPlan:
        return HostPlan(
            tuple(self.launches), tuple(self.scratch), tuple(self.packed), tuple(self.packing), tuple(self.packs)
        )


def _at(ref: Ref, elements: int) -> Ref:
    return Ref(ref.kind, ref.index, ref.offset + _WORD * elements)


def _sizes(request: Request, x: int, h0: int) -> tuple[int, int, int, int]:
    """T, B, I, H."""
    t, b, i = request.operands[x].shape
    return t, b, i, request.operands[h0].shape[1]


def _usable(request: Request) -> bool:
    specs = (*request.operands, *request.results)
    return all(s.plain and s.type.size and s.type.dtype.is_float for s in specs)


@kernel_for("lstm")
def _lstm(request: Request) -> HostPlan | None:
    if not _usable(request):
        return None
    (t, b, i, h), dtype = _sizes(request, 0, 1), request.operands[0].dtype
    g, c = 4 * h, _Chain()
    w_ih, w_hh = c.pack(3, i, g, (1, i)), c.pack(4, h, g, (1, h))
    gates = c.space(t, b, g)
    c.gemm((t * b, g, i), (Ref("in", 0), (i, 1)), (w_ih, None), (gates, "f32"), (Ref("in", 5), Operand(dtype, (0, 1))))
    y, kept = Ref("out", 0), Ref("out", 3)
    for step in range(t):
        here, reserve = _at(gates, step * b * g), _at(kept, step * b * 5 * h)
        before = _at(y, (step - 1) * b * h) if step else Ref("in", 1)
        cell = _at(kept, (step - 1) * b * 5 * h + 4 * h) if step else Ref("in", 2)
        cell_type = Operand("f32", (5 * h, 1)) if step else Operand(dtype, (h, 1))
        c.gemm((b, g, h), (before, (h, 1)), (w_hh, None), (here, "f32"), (here, Operand("f32", (g, 1))))
        r = Recipe([*[Operand("f32", (g, 1))] * 4, cell_type])
        gi, gf, gg, go = r("sigmoid", 0), r("sigmoid", 1), r("tanh", 2), r("sigmoid", 3)
        new = r("add", r("mul", gf, 4), r("mul", gi, gg))
        out = r("mul", go, r("tanh", new))
        outs = [(_at(y, step * b * h), Output(out, dtype, (h, 1)))]
        outs += [(_at(reserve, j * h), Output(n, "f32", (5 * h, 1))) for j, n in enumerate((gi, gf, gg, go, new))]
        c.map((b, h), r, [*(_at(here, j * h) for j in range(4)), cell], outs)
    c.move((b, h), (_at(y, (t - 1) * b * h), Operand(dtype, (h, 1))), (Ref("out", 1), dtype))
    last = _at(kept, (t - 1) * b * 5 * h + 4 * h)
    c.move((b, h), (last, Operand("f32", (5 * h, 1))), (Ref("out", 2), dtype))
    return c.plan()


def _weights(
    c: _Chain, sizes: tuple[int, int, int, int], gates: int, of_x: Ref, of_h: Ref, x: Ref, h0: Ref, y: Ref, out: Any
) -> None:
    """Gradients of both weight matrices and of the biases, from those of the gates of all steps."""
    (t, b, i, h), g = sizes, gates
    (dw_ih, dw_hh, dbs), dtype = out[0], out[1]
    c.gemm((g, i, t * b), (of_x, (1, g)), (x, (i, 1)), (dw_ih, dtype))
    if t == 1:
        c.gemm((g, h, b), (of_h, (1, g)), (h0, (h, 1)), (dw_hh, dtype))
    else:
        part = c.space(g, h)
        c.gemm((g, h, b), (of_h, (1, g)), (h0, (h, 1)), (part, "f32"))
        rest = (g, h, (t - 1) * b)
        c.gemm(rest, (_at(of_h, b * g), (1, g)), (y, (h, 1)), (dw_hh, dtype), (part, Operand("f32", (h, 1))))
    for source, target in dbs:
        kernels = reduction("sum", (t * b, g), (0,), Operand("f32", (g, 1)), Output(0, dtype, (0, 1)), "f32")
        space = max(k.workspace for k in kernels)
        extra = (c.space(-(-space // _WORD)),) if space else ()
        c.launches += [Launch(k, (source, target, *extra) if k.workspace else (source, target)) for k in kernels]


@kernel_for("lstm_grad")
def _lstm_grad(request: Request) -> HostPlan | None:
    if not _usable(request):
        return None
    sizes, dtype = _sizes(request, 3, 4), request.operands[0].dtype
    t, b, i, h = sizes
    g, c = 4 * h, _Chain()
    dy, dh_t, dc_t, x, h0, c0, _, _, y, kept = (Ref("in", n) for n in range(10))
    w_ih, w_hh = c.pack(6, g, i, (i, 1)), c.pack(7, g, h, (h, 1))
    gates, dh, dc = c.space(t, b, g), c.space(b, h), c.space(b, h)
    flat = (h, 1)
    for step in reversed(range(t)):
        last = step == t - 1
        carried = Operand(dtype if last else "f32", flat)
        before = _at(kept, (step - 1) * b * 5 * h + 4 * h) if step else c0
        before_type = Operand("f32", (5 * h, 1)) if step else Operand(dtype, flat)
        r = Recipe([Operand(dtype, flat), carried, carried, before_type, *[Operand("f32", (5 * h, 1))] * 5])
        one, gi, gf, gg, go = r.const(1.0), 4, 5, 6, 7
        dh_now, top = r("add", r("cast", 0, dtype="f32"), r("cast", 1, dtype="f32")), r("tanh", 8)

        def slope(n: int, r: Recipe = r, one: int = one) -> int:
            return r("mul", n, r("sub", one, n))

        def flatness(n: int, r: Recipe = r, one: int = one) -> int:
            return r("sub", one, r("mul", n, n))

        now = r("add", 2, r("mul", r("mul", dh_now, go), flatness(top)))
        made = [
            r("mul", r("mul", now, gg), slope(gi)),
            r("mul", r("mul", now, 3), slope(gf)),
            r("mul", r("mul", now, gi), flatness(gg)),
            r("mul", r("mul", dh_now, top), slope(go)),
        ]
        here, reserve = _at(gates, step * b * g), _at(kept, step * b * 5 * h)
        refs = [_at(dy, step * b * h), dh_t if last else dh, dc_t if last else dc, before]
        outs = [(_at(here, j * h), Output(n, "f32", (g, 1))) for j, n in enumerate(made)]
        outs.append((dc, Output(r("mul", now, gf), "f32", flat)))
        c.map((b, h), r, [*refs, *(_at(reserve, j * h) for j in range(5))], outs)
        c.gemm((b, h, g), (here, (g, 1)), (w_hh, None), (dh, "f32"))
    c.gemm((t * b, i, g), (gates, (g, 1)), (w_ih, None), (Ref("out", 0), dtype))
    c.move((b, h), (dh, Operand("f32", flat)), (Ref("out", 1), dtype))
    c.move((b, h), (dc, Operand("f32", flat)), (Ref("out", 2), dtype))
    out = (Ref("out", 3), Ref("out", 4), [(gates, Ref("out", 5))])
    _weights(c, sizes, g, gates, gates, x, h0, y, (out, dtype))
    return c.plan()


@kernel_for("gru")
def _gru(request: Request) -> HostPlan | None:
    if not _usable(request):
        return None
    (t, b, i, h), dtype = _sizes(request, 0, 1), request.operands[0].dtype
    g, c = 3 * h, _Chain()
    w_ih, w_hh = c.pack(2, i, g, (1, i)), c.pack(3, h, g, (1, h))
    gates, from_h = c.space(t, b, g), c.space(b, g)
    bias = Operand(dtype, (0, 1))
    c.gemm((t * b, g, i), (Ref("in", 0), (i, 1)), (w_ih, None), (gates, "f32"), (Ref("in", 4), bias))
    y, kept = Ref("out", 0), Ref("out", 2)
    for step in range(t):
        here, reserve = _at(gates, step * b * g), _at(kept, step * b * 4 * h)
        before = _at(y, (step - 1) * b * h) if step else Ref("in", 1)
        c.gemm((b, g, h), (before, (h, 1)), (w_hh, None), (from_h, "f32"), (Ref("in", 5), bias))
        r = Recipe([*[Operand("f32", (g, 1))] * 6, Operand(dtype, (h, 1))])
        gr, gz = r("sigmoid", r("add", 0, 3)), r("sigmoid", r("add", 1, 4))
        gn = r("tanh", r("add", 2, r("mul", gr, 5)))
        out = r("add", r("mul", r("sub", r.const(1.0), gz), gn), r("mul", gz, 6))
        outs = [(_at(y, step * b * h), Output(out, dtype, (h, 1)))]
        outs += [(_at(reserve, j * h), Output(n, "f32", (4 * h, 1))) for j, n in enumerate((gr, gz, gn, 5))]
        refs = [*(_at(here, j * h) for j in range(3)), *(_at(from_h, j * h) for j in range(3)), before]
        c.map((b, h), r, refs, outs)
    c.move((b, h), (_at(y, (t - 1) * b * h), Operand(dtype, (h, 1))), (Ref("out", 1), dtype))
    return c.plan()


@kernel_for("gru_grad")
def _gru_grad(request: Request) -> HostPlan | None:
    if not _usable(request):
        return None
    sizes, dtype = _sizes(request, 2, 3), request.operands[0].dtype
    t, b, i, h = sizes
    g, c = 3 * h, _Chain()
    dy, dh_t, x, h0, _, _, y, kept = (Ref("in", n) for n in range(8))
    w_ih, w_hh = c.pack(4, g, i, (i, 1)), c.pack(5, g, h, (h, 1))
    of_x, of_h, dh, past = c.space(t, b, g), c.space(t, b, g), c.space(b, h), c.space(b, h)
    flat = (h, 1)
    for step in reversed(range(t)):
        last = step == t - 1
        before = _at(y, (step - 1) * b * h) if step else h0
        r = Recipe(
            [Operand(dtype, flat), Operand(dtype if last else "f32", flat), Operand(dtype, flat)]
            + [Operand("f32", (4 * h, 1))] * 4
        )
        one, gr, gz, gn, s = r.const(1.0), 3, 4, 5, 6
        dh_now = r("add", r("cast", 0, dtype="f32"), r("cast", 1, dtype="f32"))
        other = r("sub", one, gz)
        dn = r("mul", r("mul", dh_now, other), r("sub", one, r("mul", gn, gn)))
        dr = r("mul", r("mul", dn, s), r("mul", gr, r("sub", one, gr)))
        difference = r("sub", r("cast", 2, dtype="f32"), gn)
        dz = r("mul", r("mul", dh_now, difference), r("mul", gz, other))
        here_x, here_h = _at(of_x, step * b * g), _at(of_h, step * b * g)
        outs = [(_at(here_x, j * h), Output(n, "f32", (g, 1))) for j, n in enumerate((dr, dz, dn))]
        outs += [(_at(here_h, j * h), Output(n, "f32", (g, 1))) for j, n in enumerate((dr, dz, r("mul", dn, gr)))]
        outs.append((past, Output(r("mul", dh_now, gz), "f32", flat)))
        reserve = _at(kept, step * b * 4 * h)
        refs = [_at(dy, step * b * h), dh_t if last else dh, before]
        c.map((b, h), r, [*refs, *(_at(reserve, j * h) for j in range(4))], outs)
        c.gemm((b, h, g), (here_h, (g, 1)), (w_hh, None), (dh, "f32"), (past, Operand("f32", flat)))
    c.gemm((t * b, i, g), (of_x, (g, 1)), (w_ih, None), (Ref("out", 0), dtype))
    c.move((b, h), (dh, Operand("f32", flat)), (Ref("out", 1), dtype))
    out = (Ref("out", 2), Ref("out", 3), [(of_x, Ref("out", 4)), (of_h, Ref("out", 5))])
    _weights(c, sizes, g, of_x, of_h, x, h0, y, (out, dtype))
    return c.plan()

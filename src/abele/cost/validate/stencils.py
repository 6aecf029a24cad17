"""The runner of stencil programs: each stencil as its publication computes it, grids written to and fro.

What the sources say: simehaa/IPU computes the heat equation in the plane (``5-point``) and in space (``7-point``);
thorbenlouw/lbm-graphcore blurs images (``9-point``); TszwangKo/FYP_IPU_DEVITO the diffusion of fourth order and the
damped wave equation (``13-point``). All keep two grids, or three, and write from one to the next, which is why a turn
here is two stencils; all leave what is outside the grid at a constant. A turn of the wave equation is one stencil, and
copies of its grids beside: of two, the compiler would take the terms of damping and velocity out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from abele.cost.validate.cases import Case
from abele.cost.validate.outcome import Context, NoRunner, Outcome, runner
from abele.cost.validate.programs import Loop, charged, looped, sides_of
from abele.errors import InvalidOption, suggest
from abele.ir.builder import Builder
from abele.ir.graph import Value
from abele.ir.types import DType
from abele.ops.plans.planning import PlanOptions

Offset = tuple[int, ...]


class _Grid:
    """A grid and the neighbours of its points: ``grid[offset]`` is the neighbour at an offset, zero outside."""

    def __init__(self, b: Builder, x: Value, dimensions: int, reach: int) -> None:
        self.b, self.x, self.dimensions, self.reach = b, x, dimensions, reach
        around = tuple(reach if d < dimensions else 0 for d in range(len(x.shape)))
        self.padded = b.pad(x, low=around, high=around, value=0.0)

    def __getitem__(self, offset: Offset) -> Value:
        if not any(offset):
            return self.x
        start = [self.reach + offset[d] if d < self.dimensions else 0 for d in range(len(self.x.shape))]
        stop = tuple(a + size for a, size in zip(start, self.x.shape, strict=True))
        return self.b.slice(self.padded, starts=tuple(start), stops=stop, steps=(1,) * len(start))

    def number(self, value: float) -> Value:
        return self.b.constant(value, self.x.dtype)

    def times(self, factor: float, value: Value) -> Value:
        return self.b.mul(self.number(factor), value)

    def total(self, values: Sequence[Value]) -> Value:
        done = values[0]
        for value in values[1:]:
            done = self.b.add(done, value)
        return done

    def along(self, axis: int, steps: Sequence[int]) -> list[Value]:
        """Neighbours along one axis."""
        return [self[tuple(step if d == axis else 0 for d in range(self.dimensions))] for step in steps]

    def beside(self, steps: Sequence[int]) -> list[Value]:
        """Neighbours along every axis."""
        return [value for axis in range(self.dimensions) for value in self.along(axis, steps)]


def _heat(grid: _Grid, others: Sequence[Value]) -> Value:
    """``beta * middle + alpha * (the neighbours' sum)``."""
    around = grid.total(grid.beside((-1, 1)))
    return grid.b.add(grid.times(0.6, grid.x), grid.times(0.1, around))


def _blur(grid: _Grid, others: Sequence[Value]) -> Value:
    """A 3 × 3 Gaussian: corners, middle and edges, each sum scaled once."""
    corners = grid.total([grid[i, j] for i in (-1, 1) for j in (-1, 1)])
    edges = grid.total(grid.beside((-1, 1)))
    return grid.total([grid.times(1 / 16, corners), grid.times(4 / 16, grid.x), grid.times(2 / 16, edges)])


def _diffusion(grid: _Grid, others: Sequence[Value]) -> Value:
    """The second derivatives of fourth order along each axis, scaled, and a step in time."""
    b, middle = grid.b, grid.times(-2.5, grid.x)
    axes = []
    for axis in range(grid.dimensions):
        far = grid.times(1 / 12, grid.total(grid.along(axis, (-2, 2))))
        near = grid.times(4 / 3, grid.total(grid.along(axis, (-1, 1))))
        axes.append(grid.times(100.0, b.add(b.sub(middle, far), near)))
    spread = grid.times(0.5, grid.total(axes))
    return grid.times(1e-3, b.add(spread, grid.times(1000.0, grid.x)))


def _wave(grid: _Grid, others: Sequence[Value]) -> Value:
    """The wave equation with damping, from two grids in time and the fields of damping and velocity."""
    b, x = grid.b, grid.x
    before, damping, velocity = others
    slow = b.div(grid.number(1.0), b.mul(velocity, velocity))
    damped = b.mul(grid.times(0.1, damping), x)
    inertia = b.mul(slow, b.sub(grid.times(0.01, grid.times(2.0, x)), grid.times(0.01, before)))
    far = grid.times(-1 / 1200, grid.total(grid.beside((-2, 2))))
    near = grid.times(1 / 75, grid.total(grid.beside((-1, 1))))
    above = b.sub(grid.total([damped, inertia, far, near]), grid.times(0.075, x))
    below = b.add(grid.times(0.01, slow), grid.times(0.1, damping))
    return b.div(above, below)


@dataclass(frozen=True)
class _Program:
    """A stencil: dimensions, reach along an axis, flops of a point as its source counts them, and one step."""

    dimensions: int
    reach: int
    flops: float
    step: Callable[[_Grid, Sequence[Value]], Value]


_PROGRAMS: Mapping[str, _Program] = {
    "5-point": _Program(2, 1, 6.0, _heat),
    "7-point": _Program(3, 1, 8.0, _heat),
    "9-point": _Program(2, 1, 11.0, _blur),
    "13-point": _Program(3, 2, 30.0, _diffusion),
}
_WAVE = _Program(3, 2, 36.0, _wave)
CODELETS = ("vector", "scalar")


def _loop_of(case: Case, model: str) -> Loop:
    if model not in _PROGRAMS:
        raise InvalidOption(f"{case.id}: there is no stencil {model!r}", remedy=suggest(model, _PROGRAMS))
    codelet = str(case.option("codelet", "vector"))
    if codelet not in CODELETS:
        raise InvalidOption(f"{case.id}: there is no codelet {codelet!r}", remedy=suggest(codelet, CODELETS))
    waves = bool(case.option("two_levels", 0))
    program = _WAVE if waves else _PROGRAMS[model]
    sides = sides_of(case, program.dimensions, "grid")
    channels = int(case.option("channels", 1))
    shape = (*sides, channels) if channels > 1 else sides
    levels, fields, steps = (2, ("damping", "velocity"), 1) if waves else (1, (), 2)

    def turn(b: Builder, state: Mapping[str, Value]) -> dict[str, Value]:
        grids = [state[f"x{i}"] for i in range(levels)]
        rest = [state[name] for name in fields]
        for _ in range(steps):
            grid = _Grid(b, grids[0], program.dimensions, program.reach)
            grids = [program.step(grid, [*grids[1:], *rest]), *grids[:-1]]
        return {f"x{i}": grid for i, grid in enumerate(grids)}

    names = (*(f"x{i}" for i in range(levels)), *fields)
    points, dtype = float(math.prod(sides)), DType(case.dtype)
    plan = PlanOptions(
        float(case.option("memory_proportion", 0.6)),
        "best",  # the programs bring codelets that do all in one loop, which the compiler makes by fusion
        vectorised=codelet == "vector",
        contiguous=bool(case.option("contiguous", 0)),
    )
    halo = math.prod(shape[1:]) * program.reach * dtype.bytes
    flops = points * channels * program.flops
    return Loop(dict.fromkeys(names, shape), dtype, turn, steps, flops, points, halo, plan=plan)


@runner("stencil")
def run_stencil(case: Case, context: Context) -> Outcome:
    """A stencil in a loop, in compute sets that each write one grid from another.

    ``model``: ``5-point``, ``9-point`` (plane), ``7-point``, ``13-point`` (space). Options: ``grid=AxB[xC]``,
    ``channels=1``, ``iterations`` (stencils that the published time spans), ``two_levels=1`` for the wave equation,
    which reads the grid before too, ``codelet=vector`` or ``scalar``: whether the published code works on words of
    several elements, ``contiguous=1`` where it takes its input as one region of memory, not row by row.
    """
    return looped(case, context, _loop_of(case, case.model))


@runner("phase")
def run_phase(case: Case, context: Context) -> Outcome:
    """Cycles of one part of a stencil.

    ``model``: ``sync``, ``compute``, ``halo/exchange``, ``halo/globExchange`` (over the links), or ``halo/copies``,
    which put windows together. Options: ``stencil=9-point``, and those of ``stencil``.
    """
    if case.model in ("halo/pre", "halo/post"):
        raise NoRunner("the program copies before and after its exchange, Abele once: only their sum can be compared")
    loop = _loop_of(case, str(case.option("stencil", "9-point")))
    found = charged(case, context, loop, free=("Assemble",))
    whole, less = found.cycles, found.without
    parts = {
        "sync": whole["sync"],
        "compute": less["compute"],
        "halo/exchange": whole["exchange"],
        "halo/globExchange": whole["links"],
        "halo/copies": whole["compute"] - less["compute"],
    }
    if case.model not in parts:
        raise InvalidOption(f"{case.id}: there is no phase {case.model!r}", remedy=suggest(case.model, parts))
    if not parts[case.model]:
        raise NoRunner(f"there is no {case.model} in this program")
    return Outcome(cycles=parts[case.model], fits=found.fits, notes=found.notes)

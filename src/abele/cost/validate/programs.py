"""Runners of single operations: a small graph goes through the whole compiler and is charged."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from abele.compile.executable import compile_graph
from abele.compile.pipelines import CompileOptions
from abele.cost.profile import Profile, cost
from abele.cost.validate.cases import Case, numbers
from abele.cost.validate.outcome import Context, NoRunner, Outcome, runner
from abele.errors import InvalidOption, suggest
from abele.ir.builder import Builder
from abele.ir.graph import Graph, Port, Value
from abele.ir.types import DType, TensorType
from abele.machine.exchange import link_seconds, sync_cycles
from abele.machine.system import System, find_system, one_ipu
from abele.ops.plans.planning import PlanOptions

_FEW, _MANY = 2, 12
"""Turns of the two loops whose difference is the time of a turn; start and end cancel."""


@runner("gemm")
def run_gemm(case: Case, context: Context) -> Outcome:
    """A matrix product in a loop: ``x ← A·x`` with A ``[m, k]`` that stays and x ``[k, n]`` (m = k) that is carried.

    Options: ``m``, ``k``, ``n``, ``batch=1``, ``memory_proportion``. With m ≠ k the operands are carried unchanged and
    the product is written beside them.
    """
    m, k, n = (int(case.option(name)) for name in "mkn")
    batch = int(case.option("batch", 1))
    outer = (batch,) if batch > 1 else ()
    dtype = DType(case.dtype)

    def turn(b: Builder, state: Mapping[str, Value]) -> dict[str, Value]:
        y = b.matmul(state["a"], state["x"], transpose_a=False, transpose_b=False, partials=case.partials or "f32")
        return {"x" if m == k else "y": y}

    shapes = {"x": (*outer, k, n), "a": (*outer, m, k)}
    if m != k:
        shapes = {"y": (*outer, m, n)} | shapes
    return _looped(case, context, shapes, dtype, turn, flops=2.0 * batch * m * k * n)


@runner("conv")
def run_conv(case: Case, context: Context) -> Outcome:
    """A convolution in a loop, its result the next turn's image where the shapes agree.

    Options: ``image=HEIGHTxWIDTH``, ``in_chans``, ``out_chans``, ``kernel=3``, ``stride=1``, ``padding`` (default:
    keeps the size), ``groups=1``, ``batch=1``, ``iterations`` (turns that the published time spans),
    ``memory_proportion``.
    """
    height, width = _sides(case, 2)
    ins, outs, kernel = (int(case.option(n, d)) for n, d in (("in_chans", None), ("out_chans", None), ("kernel", 3)))
    stride, groups, batch = (int(case.option(n, 1)) for n in ("stride", "groups", "batch"))
    pad = int(case.option("padding", kernel // 2))
    out = [(s + 2 * pad - kernel) // stride + 1 for s in (height, width)]

    def turn(b: Builder, state: Mapping[str, Value]) -> dict[str, Value]:
        attributes = {
            "strides": (stride, stride),
            "padding": ((pad, pad), (pad, pad)),
            "dilation": (1, 1),
            "groups": groups,
            "partials": case.partials or "f32",
        }
        (y,) = b.emit("conv", (state["x"], state["w"]), attributes)
        return {"x" if y.shape == state["x"].shape else "y": y}

    shapes = {"x": (batch, ins, height, width), "w": (outs, ins // groups, kernel, kernel)}
    made = (batch, outs, *out)
    if made != shapes["x"]:
        shapes = {"y": made} | shapes
    flops = 2.0 * math.prod(made) * ins // groups * kernel * kernel
    dtype = DType(case.dtype)
    halo = batch * ins * width * (kernel // 2) * dtype.bytes
    return _looped(case, context, shapes, dtype, turn, flops=flops, halo=halo)


_STENCILS: Mapping[str, tuple[int, int, float]] = {
    "5-point": (2, 1, 7.0),
    "9-point": (2, -1, 17.0),
    "7-point": (3, 1, 9.0),
    "13-point": (3, 2, 15.0),
}
"""Dimensions, reach along each axis (−1: the full 3 × 3 square), and flops of one point."""


@runner("stencil")
def run_stencil(case: Case, context: Context) -> Outcome:
    """A stencil in a loop: shifted slices of the grid with zeros around, weighted and summed, become the next grid.

    ``model``: ``5-point``, ``9-point`` (plane), ``7-point``, ``13-point`` (space). Options: ``grid=AxB[xC]``,
    ``channels=1``, ``iterations``, ``two_levels=1`` for the wave equation, which reads the grid before too.
    """
    if case.model not in _STENCILS:
        raise InvalidOption(f"{case.id}: there is no stencil {case.model!r}", remedy=suggest(case.model, _STENCILS))
    dimensions, reach, flops = _STENCILS[case.model]
    sides = _sides(case, dimensions, "grid")
    channels = int(case.option("channels", 1))
    shape = (*sides, channels) if channels > 1 else sides
    waves = bool(case.option("two_levels", 0))

    def turn(b: Builder, state: Mapping[str, Value]) -> dict[str, Value]:
        x = state["x"]
        dtype = x.dtype
        edge = abs(reach)
        around = tuple(edge if d < dimensions else 0 for d in range(len(shape)))
        padded = b.pad(x, low=around, high=around, value=0.0)
        total = b.mul(x, b.constant(0.5, dtype))
        for offset in _offsets(dimensions, reach):
            start = tuple(edge + offset[d] if d < dimensions else 0 for d in range(len(shape)))
            stop = tuple(a + size for a, size in zip(start, shape, strict=True))
            part = b.slice(padded, starts=start, stops=stop, steps=(1,) * len(shape))
            total = b.add(total, b.mul(part, b.constant(0.1, dtype)))
        if not waves:
            return {"x": total}
        return {"x": b.sub(total, state["before"]), "before": x}

    shapes = {"x": shape} | ({"before": shape} if waves else {})
    points, dtype = float(math.prod(sides)), DType(case.dtype)
    halo = math.prod(shape[1:]) * abs(reach) * dtype.bytes
    return _looped(case, context, shapes, dtype, turn, flops=points * channels * flops, points=points, halo=halo)


@runner("spmm")
def run_sparse(case: Case, context: Context) -> Outcome:
    raise NoRunner("there are no sparse matrix products yet")


@runner("application", "time-to-train", "host")
def run_nothing(case: Case, context: Context) -> Outcome:
    reasons = {
        "application": "the program is not in the zoo, and its source does not say what it computes in a step",
        "time-to-train": "the number of steps to an accuracy is no property of the machine",
        "host": "the time is decided by the host, which is not modelled",
    }
    raise NoRunner(case.option("reason", reasons[case.family]))


def _offsets(dimensions: int, reach: int) -> list[tuple[int, ...]]:
    if reach < 0:
        return [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]
    return [
        tuple(step if axis == d else 0 for d in range(dimensions))
        for axis in range(dimensions)
        for step in range(-reach, reach + 1)
        if step
    ]


def _sides(case: Case, count: int, name: str = "image") -> tuple[int, ...]:
    sides = numbers(str(case.option(name)).replace("x", "/"))
    if len(sides) != count:
        raise InvalidOption(f"{case.id}: {name} has {len(sides)} sides, not {count}")
    return sides


def _looped(
    case: Case,
    context: Context,
    shapes: Mapping[str, tuple[int, ...]],
    dtype: DType,
    turn: Callable[[Builder, Mapping[str, Value]], dict[str, Value]],
    *,
    flops: float = 0.0,
    points: float = 0.0,
    halo: int = 0,
) -> Outcome:
    """Charge one turn of a loop, times ``iterations``: the difference of two loops of different length.

    Several IPUs are taken as one chip of all their tiles. A turn then costs a sync over them instead of one on the
    chip, and ``halo`` bytes over the links between neighbours, beside the schedule's own cycles.
    """
    system, around, notes = _machine(case, halo)
    options = CompileOptions(
        system, partials="", plan=PlanOptions(float(case.option("memory_proportion", 0.6)), "poplibs")
    )
    profiles = []
    for count in (_FEW, _MANY):
        context.tell(case.id, f"compile a loop of {count}")
        executable = compile_graph(_loop(case, shapes, dtype, turn, count), options, cache=context.cache)
        profiles.append(cost(executable.schedule, system))
    few, many = profiles
    turns = int(case.option("iterations", 1))
    turn_cycles = (many.cycles.total - few.cycles.total) / (_MANY - _FEW)
    cycles = (turn_cycles + around) * turns
    seconds = system.chip.seconds(cycles)
    return Outcome(
        seconds,
        cycles,
        flops=flops * turns,
        points=points * turns,
        shares=_shares(few, many),
        fits=many.memory.fits,
        notes=notes,
    )


def _loop(
    case: Case,
    shapes: Mapping[str, tuple[int, ...]],
    dtype: DType,
    turn: Callable[[Builder, Mapping[str, Value]], dict[str, Value]],
    count: int,
) -> Graph:
    """A graph whose states are those of ``shapes``; the first ones are carried, as the turn says."""
    body = Builder("turn")
    inside = {name: body.input(TensorType(shape, dtype)) for name, shape in shapes.items()}
    made = turn(body, inside)
    carried = [name for name in shapes if name in made]
    assert carried == list(shapes)[: len(carried)]
    function = body.finish([made[name] for name in carried])
    main = Builder(case.family, {function.name: function})
    states = [main.input(TensorType(shape, dtype), "state", name) for name, shape in shapes.items()]
    results = main.repeat(function.name, count, states)
    return main.finish(list(results), [Port("state", name) for name in carried])


def _machine(case: Case, halo: int) -> tuple[System, float, tuple[str, ...]]:
    """The machine, cycles that its IPUs add to a turn, and what has to be said of that."""
    system = find_system(case.system)
    if case.ipus == 1:
        return one_ipu(system.chip), 0.0, ()
    chip = system.chip.derive(f"{system.chip.name}-joined-{case.ipus}", tiles=system.chip.tiles * case.ipus)
    row = system.with_ipus(case.ipus)
    neighbour = (1, 2) if case.ipus > 2 else (0, 1)
    crossing = chip.cycles(link_seconds(row, halo, *neighbour)) if halo else 0.0
    syncs = sync_cycles(row, case.ipus) - chip.sync_cycles
    note = f"{case.ipus} IPUs as one chip, with a sync over all of them and the halo of a cut through the first axis"
    return one_ipu(chip), crossing + syncs, (note,)


def _shares(few: Profile, many: Profile) -> dict[str, float]:
    before, after = few.cycles.as_dict(), many.cycles.as_dict()
    parts = {name: after[name] - before[name] for name in after}
    whole = sum(parts.values())
    return {name: part / whole for name, part in parts.items() if part > 0} if whole else {}

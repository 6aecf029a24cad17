"""Runners of single operations: a small graph goes through the whole compiler and is charged."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from abele.compile.executable import compile_graph
from abele.compile.pipelines import CompileOptions
from abele.cost.profile import Profile, cost
from abele.cost.validate.cases import Case, numbers
from abele.cost.validate.outcome import Context, NoRunner, Outcome, runner
from abele.errors import InvalidOption
from abele.ir.builder import Builder
from abele.ir.graph import Graph, Port, Value
from abele.ir.types import DType, TensorType
from abele.machine.chip import Chip
from abele.machine.exchange import link_seconds, sync_cycles
from abele.machine.presets import mk1
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
    return looped(case, context, Loop(shapes, dtype, turn, flops=2.0 * batch * m * k * n))


@runner("conv")
def run_conv(case: Case, context: Context) -> Outcome:
    """A convolution in a loop, its result the next turn's image where the shapes agree.

    Options: ``image=HEIGHTxWIDTH``, ``in_chans``, ``out_chans``, ``kernel=3``, ``stride=1``, ``padding`` (default:
    keeps the size), ``groups=1``, ``batch=1``, ``iterations`` (turns that the published time spans),
    ``memory_proportion``, ``short=double|least`` (see ``PlanOptions``; on Mk1, whose published convolutions are of SDK
    1.2, ``least``), ``copies=1`` for programs that copy the result into the image behind each turn.
    """
    height, width = sides_of(case, 2)
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
    copied = math.prod(made) * dtype.bytes * int(case.option("copies", 0))
    return looped(case, context, Loop(shapes, dtype, turn, flops=flops, halo=halo, copied=copied))


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


def sides_of(case: Case, count: int, name: str = "image") -> tuple[int, ...]:
    """The sides that an option such as ``image=224x224`` gives."""
    sides = numbers(str(case.option(name)).replace("x", "/"))
    if len(sides) != count:
        raise InvalidOption(f"{case.id}: {name} has {len(sides)} sides, not {count}")
    return sides


@dataclass(frozen=True)
class Loop:
    """What the program of a case does again and again.

    Attributes:
        shapes: of its states; those that ``turn`` makes come first and are carried, the others stay.
        dtype: of all states.
        turn: the next values of the states that are carried.
        steps: of which the published figure is one, in a turn.
        flops, points: of a step.
        halo: bytes that a step exchanges between neighbours where several IPUs are taken as one chip.
        copied: bytes that are copied behind each turn.
        plan: what is asked of plans; ``None`` for ``poplibs``' with the case's memory proportion.
    """

    shapes: Mapping[str, tuple[int, ...]]
    dtype: DType
    turn: Callable[[Builder, Mapping[str, Value]], dict[str, Value]]
    steps: int = 1
    flops: float = 0.0
    points: float = 0.0
    halo: int = 0
    copied: int = 0
    plan: PlanOptions | None = None


@dataclass(frozen=True)
class Charged:
    """One step of a loop: tile cycles by kind, and again as if the vertices ``free`` cost nothing."""

    chip: Chip
    cycles: Mapping[str, float]
    without: Mapping[str, float]
    fits: bool
    notes: tuple[str, ...]


def charged(case: Case, context: Context, loop: Loop, free: Sequence[str] = ()) -> Charged:
    """Charge one step of a loop: the difference of two loops of different length.

    Several IPUs are taken as one chip of all their tiles. A step then costs a sync over them instead of one on the
    chip, and its halo over the links between neighbours, beside the schedule's own cycles. So does a copy behind each
    turn, of which every tile does its part: another exchange between the IPUs.
    """
    system, around, notes = _machine(case, loop.halo)
    if loop.copied:
        chip = system.chip
        around = {name: 2 * cycles for name, cycles in around.items()}
        around["sync"] = around.get("sync", 0.0) + chip.compute_set_cycles
        around["compute"] = chip.estimate("Copy", bytes=-(-loop.copied // chip.tiles))
        notes = (*notes, "the result is copied into the image, each tile its part")
    first_generation = find_system(case.system).chip.name == mk1.name
    asked = float(case.option("memory_proportion", 0.6)), "poplibs"
    short = str(case.option("short", "least" if first_generation else "double"))
    plan = loop.plan or PlanOptions(*asked, short=short)
    options = CompileOptions(system, partials="", plan=plan)
    costs = {name: lambda chip, **fields: 0 for name in free}
    less = replace(system, chip=system.chip.derive(system.chip.name, vertex_costs=costs)) if free else system
    profiles, without = [], []
    for count in (_FEW, _MANY):
        context.tell(case.id, f"compile a loop of {count}")
        schedule = compile_graph(_graph(case.family, loop, count), options, cache=context.cache).schedule
        profiles.append(cost(schedule, system))
        without.append(cost(schedule, less) if free else profiles[-1])

    def step(few: Profile, many: Profile) -> dict[str, float]:
        before, after = few.cycles.as_dict(), many.cycles.as_dict()
        own = {name: (after[name] - before[name]) / (_MANY - _FEW) / loop.steps for name in after}
        return {name: own[name] + around.get(name, 0.0) for name in own}

    return Charged(system.chip, step(*profiles), step(*without), profiles[-1].memory.fits, notes)


def looped(case: Case, context: Context, loop: Loop) -> Outcome:
    """One step of a loop (see ``charged``), times the option ``iterations``."""
    found = charged(case, context, loop)
    turns, each = int(case.option("iterations", 1)), sum(found.cycles.values())
    return Outcome(
        found.chip.seconds(each * turns),
        each * turns,
        flops=loop.flops * turns,
        points=loop.points * turns,
        shares={name: part / each for name, part in found.cycles.items() if part > 0} if each else {},
        fits=found.fits,
        notes=found.notes,
    )


def _graph(name: str, loop: Loop, count: int) -> Graph:
    """So many turns of a loop."""
    shapes, dtype = loop.shapes, loop.dtype
    body = Builder("turn")
    inside = {name: body.input(TensorType(shape, dtype)) for name, shape in shapes.items()}
    made = loop.turn(body, inside)
    carried = [name for name in shapes if name in made]
    assert carried == list(shapes)[: len(carried)]
    function = body.finish([made[name] for name in carried])
    main = Builder(name, {function.name: function})
    states = [main.input(TensorType(shape, dtype), "state", name) for name, shape in shapes.items()]
    results = main.repeat(function.name, count, states)
    return main.finish(list(results), [Port("state", name) for name in carried])


def _machine(case: Case, halo: int) -> tuple[System, Mapping[str, float], tuple[str, ...]]:
    """The machine, cycles that its IPUs add to a turn, and what has to be said of that."""
    system = find_system(case.system)
    if case.ipus == 1:
        return one_ipu(system.chip), {}, ()
    chip = system.chip.derive(f"{system.chip.name}-joined-{case.ipus}", tiles=system.chip.tiles * case.ipus)
    row = system.with_ipus(case.ipus)
    neighbour = (1, 2) if case.ipus > 2 else (0, 1)
    crossing = chip.cycles(link_seconds(row, halo, *neighbour)) if halo else 0.0
    syncs = sync_cycles(row, case.ipus) - chip.sync_cycles
    note = f"{case.ipus} IPUs as one chip, with a sync over all of them and the halo of a cut through the first axis"
    return one_ipu(chip), {"links": crossing, "sync": syncs}, (note,)

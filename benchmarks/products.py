"""Large square products in half on one chip: the share of its peak that they reach, and that they can reach at most.

Both operands lie where the plan wants them, as weights do; the whole step counts, until the result lies where it stays.
Figures are modelled, in cycles of the chip. ``at most``: see ``bound``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks.base import Benchmark, Row, Settings, apart

GROUP = "Large square products in half with half partials (modelled)"
TARGET = 80.0
"""Least share of the peak, in percent, from ``LARGE`` on."""
LARGE = 7168
SHAPES = (*((1, size) for size in (2048, 4096, 5120, 6144, 7168, 8192, 9216, 10240)), (8, 2048))
"""Products in a batch, and their size."""
CHIPS = ("gc200", "bow")


def benchmarks() -> list[Benchmark]:
    """A row for each chip, batch and size."""
    return [
        Benchmark(GROUP, f"{chip}-{batch}x{size}", partial(_row, chip, batch, size), quick=size in (4096, 7168))
        for chip in CHIPS
        for batch, size in SHAPES
    ]


def _row(chip: str, batch: int, size: int, _: Settings) -> Sequence[Row]:
    best, poplibs = (apart(terms, chip, batch, size, planner) for planner in ("best", "poplibs"))
    ideal = best["products"]
    shares = {name: 100 * ideal / sum(found.values()) for name, found in (("best", best), ("poplibs", poplibs))}
    row: Row = {
        "chip": chip,
        "batch": batch,
        "size": size,
        "poplibs, % of peak": shares["poplibs"],
        "best, % of peak": shares["best"],
        "at most, %": 100 * ideal / bound(chip, batch, size),
        **{f"{name}, cycles": cycles for name, cycles in best.items()},
    }
    return [{**row, "limit": TARGET, "holds": shares["best"] >= TARGET} if size >= LARGE else row]


def terms(chip: str, batch: int, size: int, planner: str) -> dict[str, float]:
    """Cycles of ``batch`` products of two ``[size, size]`` matrices, by what they are spent on.

    ``products``: at the peak rate of all tiles. ``unit``: what the matrix units take beside: weights loaded, workers
    started, parts that are not even, tiles left over. ``operands``, ``sums``: exchange of each; ``adding``: of sums.
    """
    from abele.charge.columns import Columns
    from abele.charge.plans import PlanCharger
    from abele.compile import CompileOptions, compile_graph
    from abele.ir import Builder, Port, f16
    from abele.machine import one_ipu
    from abele.machine.presets import CHIPS as KNOWN
    from abele.ops.plans.planning import PlanOptions

    system = one_ipu(KNOWN[chip])
    b = Builder("main")
    shape = (size, size) if batch == 1 else (batch, size, size)
    x, w = (b.input(f16(*shape), "state", name) for name in "xw")
    y = b.matmul(x, w, transpose_a=False, transpose_b=False, partials="f16")
    options = CompileOptions(system, plan=PlanOptions(planner=planner))
    schedule = compile_graph(b.finish([y], [Port("state", "x")]), options).schedule
    (step,) = (step for _, step in schedule.steps() if step.operation == "matmul")
    charged = PlanCharger(schedule, system, Columns(schedule.tiles)).plan(step)
    peak = system.chip.tiles * system.chip.macs_per_cycle("f16", "f16")
    ideal = batch * size**3 / peak
    found = {"products": ideal, "unit": -ideal, "operands": 0.0, "sums": 0.0, "adding": 0.0}
    found["syncs and starts"] = charged.cycles.sync
    for done in charged.sets:
        multiplies = done.vertex.startswith("Matmul") and done.vertex != "MatmulPlace"
        found["unit" if multiplies else "adding"] += done.compute
        found["operands" if multiplies else "sums"] += done.moved.exchange
    return found


def bound(name: str, batch: int, size: int) -> float:
    """Cycles that no plan of whole blocks is below, whatever the tiles could hold.

    A tile that does V products touches a elements of one operand, b of the other, which is weights, and c sums, and
    a · b · c ≥ V² (Loomis and Whitney; of several products together too). An element costs

    - a: two bytes at the rate at which the tiles of a bus receive the same;
    - b: two bytes at a tile's own rate, and its share of the pass for which it is loaded: the load, and starting the
      workers;
    - c: two bytes at a tile's own rate, and adding it up,

    all but the share of each matrix that lies on the tile. The sum of the three is least where they are equal.
    """
    from abele.machine.presets import CHIPS as KNOWN

    chip = KNOWN[name]
    rate = chip.exchange_bytes_per_cycle * chip.exchange_efficiency / 2
    units, group = chip.amp_units("f16", "f16"), chip.amp_in_group("f16")
    rows, passes = 600 * chip.workers, 64
    how = {"dtype": "f16", "partials": "f16", "one_group": True, "adds": True, "wide": True}
    many, few = (
        chip.estimate("Amp1x1", field=rows, in_chans=group * count, out_chans=units * passes, **how)
        for count in (2 * passes, passes)
    )
    each_pass = (many - few) / passes**2 - rows * chip.amp_loop_cycles_f16
    outputs = 80_000
    deep, flat = (
        chip.estimate("ReducePartials", outputs=outputs, depth=depth, dtype="f16", out="f16", interleaved=True)
        for depth in (9, 8)
    )
    a = 1 / (rate * chip.tiles_per_exchange_bus)
    b = 1 / rate + each_pass / (units * group)
    c = 1 / rate + (deep - flat) / outputs
    products, share = batch * size**3 / chip.tiles, batch * size**2 / chip.tiles
    least = 3 * (a * b * c * products**2) ** (1 / 3) - share * (a + 2 / rate + (deep - flat) / outputs)
    return products / chip.macs_per_cycle("f16", "f16") + max(0.0, least)

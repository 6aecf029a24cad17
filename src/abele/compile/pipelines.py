"""The passes in order: plain lists, one for inference and one for training."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from abele.charge.records import Cycles
from abele.compile.passes.accumulate import Accumulate
from abele.compile.passes.autodiff import Autodiff
from abele.compile.passes.base import Pass
from abele.compile.passes.calls import LibraryCalls, called
from abele.compile.passes.common import CommonSubexpressions
from abele.compile.passes.dead_code import DeadCode
from abele.compile.passes.expand import Expand
from abele.compile.passes.float8 import Float8
from abele.compile.passes.fold import Fold
from abele.compile.passes.fold_norm import FoldNorm
from abele.compile.passes.fuse import Fuse
from abele.compile.passes.hoist import Hoist
from abele.compile.passes.index_rows import IndexRows
from abele.compile.passes.loss_scale import AdaptiveScale
from abele.compile.passes.offload import LEAST_ELEMENTS, PHASED, Offload, Phases
from abele.compile.passes.outline import Outline
from abele.compile.passes.partials import Partials
from abele.compile.passes.recompute import HOW, Recompute
from abele.compile.passes.replicate import Replicate
from abele.compile.passes.seed import AdvanceSeed
from abele.compile.passes.sharding import Sharding
from abele.compile.passes.split import Split
from abele.compile.passes.streams import Streams
from abele.compile.passes.transfers import Transfers
from abele.compile.passes.update import Optimiser, Update
from abele.errors import InvalidOption, suggest
from abele.ir.graph import Graph
from abele.ir.types import DType
from abele.machine.exchange import exchange_cycles
from abele.machine.system import System
from abele.ops.plans.planning import PlanOptions
from abele.schedule.records import PIPELINES

FLOATS = ("", "f16", "f32")

AVERAGING = ("post", "running", "post_and_loss")
"""When a mean of gradients divides: after the sums, at every turn, or before the backward phase and after the turns."""

OVERLAP = ("host", "streaming")
"""Transfers that may run beside compute."""


@dataclass(frozen=True)
class CompileOptions:
    """What a program is compiled for.

    Attributes:
        system: the machine.
        replicas: copies of the program that run side by side on different data.
        accumulation: micro-batches in a training step; for inference, turns of the pipeline in one run.
        stages: pipeline stages; above 1 with ``split`` the model is cut by the compiler, else the graph's origins say.
        pipeline: how the stages take turns: ``grouped``, ``interleaved`` or ``sequential`` (``schedule.PIPELINES``).
        split: let the compiler cut the model into ``stages``.
        optimiser: what updates the weights; ``None`` for inference.
        loss_scaling: name of the hyper input that scales the loss, or empty.
        adaptive: how that number follows the gradients while training, or ``None`` when it is the host's alone.
        mean: gradients are averaged over micro-batches and replicas (else summed).
        averaging: when that mean divides, see ``AVERAGING``.
        accumulator: element type of the gradient accumulators, or empty for that of the gradients.
        offload: keep the optimiser's tensors in streaming memory.
        shard: spread the optimiser's tensors over the replicas, for weights of at least so many elements; 0: for none.
        shard_over: over so many consecutive replicas, such as those of one host; 0: over all.
        recompute: how much of the forward is computed again in the backward phase, see ``passes.recompute.HOW``.
        partials: type in which all products are summed (``f16``, ``f32``), or empty to leave each as it is.
        float8: 8-bit float (``f143``, ``f152``) in which the products of weights are done in inference, all but the
            first and the last; or empty.
        outline, fuse: whether to outline repeated layers and to fuse elementwise operations.
        plan: what is asked of all plans; with the planner ``poplibs`` passes do no more than the vendor's frameworks.
        offload_weights, offload_activations: keep weights, and what the backward phase reads of the forward, in
            streaming memory, from ``offload_least`` elements on.
        phased: phased execution, ``serial`` or ``parallel``, of which ``stages`` is the number of phases: one after
            another, weights and activations in streaming memory in between.
        io_tiles: tiles of every IPU set aside for transfers.
        overlap: which transfers run beside compute on them: ``host``, ``streaming``.
        replica_groups: weights that differ among replicas: name, replicas that share a value, and how far apart those
            are (see ``ops/collectives/replicas.py``); gradients of the others are reduced over all replicas.
        beside: where neither is said, the planner ``best`` may set tiles aside and let the host's transfers run beside
            compute if more samples a second come of it; ``False`` where the time of a single sample counts.
        stochastic_rounding: half weights are rounded stochastically when they are updated.
    """

    system: System
    replicas: int = 1
    accumulation: int = 1
    stages: int = 1
    split: bool = False
    optimiser: Optimiser | None = None
    loss_scaling: str = ""
    mean: bool = True
    accumulator: str = ""
    offload: bool = False
    recompute: str = "checkpoints"
    partials: str = ""
    float8: str = ""
    outline: bool = True
    fuse: bool = True
    plan: PlanOptions = field(default_factory=PlanOptions)
    pipeline: str = "grouped"
    shard: int = 0
    shard_over: int = 0
    offload_weights: bool = False
    offload_activations: bool = False
    offload_least: int = LEAST_ELEMENTS
    phased: str = ""
    io_tiles: int = 0
    overlap: tuple[str, ...] = ()
    adaptive: AdaptiveScale | None = None
    averaging: str = "post"
    beside: bool = True
    replica_groups: tuple[tuple[str, int, int], ...] = ()
    stochastic_rounding: bool = False

    def __post_init__(self) -> None:
        if self.pipeline not in PIPELINES:
            raise InvalidOption(f"There is no pipeline {self.pipeline!r}", remedy=suggest(self.pipeline, PIPELINES))
        if self.recompute not in HOW:
            raise InvalidOption(f"There is no recomputation {self.recompute!r}", remedy=suggest(self.recompute, HOW))
        if self.phased not in PHASED:
            raise InvalidOption(f"There is no phased execution {self.phased!r}", remedy=suggest(self.phased, PHASED))
        for name in ("accumulator", "partials"):
            if getattr(self, name) not in FLOATS:
                raise InvalidOption(f"{name} is {getattr(self, name)!r}", remedy="It is f16 or f32, or empty.")
        if self.averaging not in AVERAGING:
            raise InvalidOption(f"There is no averaging {self.averaging!r}", remedy=suggest(self.averaging, AVERAGING))
        for name in self.overlap:
            if name not in OVERLAP:
                raise InvalidOption(f"There is nothing {name!r} to overlap", remedy=suggest(name, OVERLAP))
        if self.overlap and not self.io_tiles:
            raise InvalidOption(
                "Transfers overlap with compute only on tiles of their own, and there are none",
                remedy="Set some aside with io_tiles (--io-tiles, TensorLocations.numIOTiles).",
            )
        if self.shard_over < 0 or (self.shard_over and self.replicas % self.shard_over):
            raise InvalidOption(
                f"shard_over is {self.shard_over}, of {self.replicas} replicas", remedy="It must divide them, or be 0."
            )
        for name in ("replicas", "accumulation", "stages"):
            if getattr(self, name) < 1:
                raise InvalidOption(f"{name} is {getattr(self, name)}", remedy="It must be at least 1.")
        if self.shard < 0:
            raise InvalidOption(f"shard is {self.shard}", remedy="It is a number of elements; 0 shards nothing.")
        if self.float8:
            self._check_float8()

    def _check_float8(self) -> None:
        known = [str(dtype) for dtype in DType if dtype.is_float8]
        if self.float8 not in known:
            raise InvalidOption(f"There is no 8-bit float {self.float8!r}", remedy=suggest(self.float8, known))
        if self.optimiser is not None:
            raise InvalidOption("Products in 8-bit floats are for inference", remedy="Train in half or float.")
        if not self.system.chip.amp_units(self.float8, "f16"):
            raise InvalidOption(
                f"The chip {self.system.chip.name!r} has no float8 matrix unit",
                remedy="Compile for a chip that has one (--system c600), or leave products in half.",
            )

    @property
    def ipus(self) -> int:
        """IPUs of a replica when the compiler splits the model."""
        return self.stages if not self.phased else min(self.stages, 2 if self.phased == "parallel" else 1)

    @property
    def pipeline_stages(self) -> int:
        """Stages over which the micro-batches overlap: phases do not."""
        return 1 if self.phased else self.stages

    def describe(self) -> str:
        """Everything that decides what is compiled, as text: part of the key of an executable."""
        parts = [f"{f}={getattr(self, f)!r}" for f in self.__dataclass_fields__ if f != "system"]
        return f"system={self.system.key()};" + ";".join(parts)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to compile a program.

    Attributes:
        planner: of all plans; passes fuse operations for ``best`` alone.
        calls: whether composites that the vendor's library has not become calls of those that it has.
        io_tiles: tiles set aside beyond those of the options, on which the host's transfers run beside compute.
    """

    planner: str
    calls: bool
    io_tiles: int = 0


POPLIBS = Way("poplibs", calls=True)


def ways_of(graph: Graph, options: CompileOptions, io_tiles: int = 0) -> list[Way]:
    """The ways that may be cheaper than ``POPLIBS``, with so many tiles set aside: none for that planner."""
    if options.plan.planner == "poplibs":
        return []
    ways = [Way("best", False, io_tiles)]
    if any(called(op) for g in graph.all_graphs() for op in g.operations):
        ways.append(Way("best", True, io_tiles))
    return ways


IO_TILES = (32, 192)
"""The fewest and the most tiles that PopTorch sets aside for transfers (``TensorLocations.numIOTiles``)."""


def io_tiles_for(options: CompileOptions, cycles: Cycles, streams: int) -> int:
    """How many tiles are better set aside for the host's transfers than used; 0 for none.

    Args:
        cycles: of the program without.
        streams: bytes that the host loads, or stores, in one turn of the program: the larger of the two.
    """
    chip, (least, most) = options.system.chip, IO_TILES
    if not options.beside or options.io_tiles or options.phased:
        return 0
    found = [
        (
            (cycles.compute + cycles.exchange) * tiles / (chip.tiles - tiles)
            + float(exchange_cycles(chip, -(-streams // tiles))) * options.accumulation,
            tiles,
        )
        for tiles in range(least, min(most, chip.tiles - 1) + 1, least)
        if -(-2 * streams // tiles) <= chip.tile_memory  # two buffers, one being filled and one being emptied
    ]
    lost, tiles = min(found, default=(cycles.host, 0))
    return tiles if lost < cycles.host else 0


def passes_for(options: CompileOptions, way: Way | None = None) -> list[Pass]:
    """The passes that a program with these options goes through, in order, on the first of its ways by default."""
    passes: list[Pass] = []
    way = way or (POPLIBS if options.plan.planner == "poplibs" else Way("best", calls=False))
    if way.io_tiles:
        options = replace(options, io_tiles=way.io_tiles, overlap=("host",))
    best = way.planner == "best"
    if way.calls:
        passes.append(LibraryCalls())
    if options.partials:
        passes.append(Partials(options.partials))
    if options.split:
        passes.append(Split(options.stages))
        if options.phased:
            passes.append(Phases(options.phased))
    if options.optimiser is None:
        passes.append(FoldNorm())
        if options.float8:
            passes.append(Float8(options.float8))
        passes.append(Hoist())
    elif best:
        passes.append(FoldNorm(hoisted=False))
    if options.outline:
        passes.append(Outline())
    if options.optimiser is not None:
        passes += _training(options, options.optimiser)
    else:
        turns = Accumulate(options.accumulation, stages=options.pipeline_stages, pipeline=options.pipeline)
        passes += [AdvanceSeed(), Streams("host" in options.overlap), turns]
    passes += [Expand(fuse=options.fuse and not best), Fold(), CommonSubexpressions(), IndexRows()]
    if options.optimiser is not None:
        passes.append(Recompute(options.recompute, options.pipeline))
    passes += [DeadCode(), *_offloads(options), Transfers()]
    if options.fuse:
        passes += [Fuse(epilogues=best, chains=best), DeadCode(name="dead-code-after-fusion")]
    return passes


def _offloads(options: CompileOptions) -> list[Pass]:
    phased = bool(options.phased)
    weights, activations = phased or options.offload_weights, phased or options.offload_activations
    if not weights and not activations:
        return []
    overlap = options.phased == "parallel" or "streaming" in options.overlap
    return [Offload(weights, activations, options.offload_least, options.phased, overlap)]


def _training(options: CompileOptions, optimiser: Optimiser) -> list[Pass]:
    parameters = tuple(name for group in optimiser.groups for name in group)
    over = options.shard_over or options.replicas
    sharding = Sharding(over, options.shard, options.plan.planner == "poplibs")
    running, loss = options.averaging == "running", options.averaging == "post_and_loss"
    return [
        Autodiff(
            parameters,
            options.loss_scaling,
            recompute_layers=options.recompute in ("layers", "standard"),
            recompute_norms=options.recompute == "norm_only",
            adaptive=options.adaptive,
            share=1.0 / options.replicas if loss and options.mean else 1.0,
        ),
        AdvanceSeed(),
        Streams("host" in options.overlap),
        Accumulate(
            options.accumulation,
            options.mean,
            options.accumulator,
            options.pipeline_stages > 1,
            options.pipeline_stages,
            options.pipeline,
            running and options.mean,
        ),
        Replicate(options.replicas, options.mean and not loss, sharding, running, options.replica_groups),
        Update(optimiser, options.offload, sharding, options.adaptive, options.stochastic_rounding),
    ]

"""Programs that a session has compiled, as `abele run` advises on them: their graph stays, its options change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from abele.advice.records import DEFAULTS, MOVED, Program
from abele.compile.cache import Cache
from abele.compile.executable import compile_graph
from abele.compile.passes.split import heaviest, shares
from abele.compile.pipelines import CompileOptions
from abele.cost.profile import Profile, cost
from abele.ir.graph import Graph
from abele.ir.types import DType

FREE = frozenset({"replicas", "accumulate", "stages", "pipeline", "recompute", "shard", "partials", "planner", *MOVED})
"""What options files and `abele run` can change of a program."""


def of_compiled(
    graph: Graph,
    options: CompileOptions,
    profile: Profile,
    cache: Cache | None,
    command: Callable[[Mapping[str, Any], bool, Mapping[str, Any]], str],
    iterations: int = 1,
) -> Program:
    """A graph compiled with these options, and charged.

    Args:
        command: that compiles the program with changed settings, of these settings, whether it is trained, and the
            changed ones.
        iterations: times that it runs in a call.
    """
    batch = profile.samples // (options.accumulation * options.replicas)
    train = options.optimiser is not None
    placed = not options.split and any(op.origin.ipu or op.origin.stage for op in graph.operations)
    free = set(FREE)
    if placed or options.phased:
        free -= {"stages", "pipeline"}
    if options.replica_groups:
        free.discard("replicas")
    if not train and options.stages == 1:
        free.discard("accumulate")  # each device iteration is a run of the program

    def compiled(changed: Mapping[str, Any]) -> Profile:
        other = with_settings(options, changed)
        samples = batch * other.accumulation * other.replicas
        return cost(compile_graph(graph, other, cache=cache).schedule, other.system, samples=samples)

    settings = settings_of(graph, options, batch)
    cut = {n: heaviest(graph, n) for n in shares(graph, options.system.ipus)}
    said = partial(command, settings, train)
    return Program(
        profile,
        settings,
        train,
        options.system.ipus,
        options.system.chip.tiles,
        placed,
        frozenset(free),
        cut,
        compiled,
        said,
        iterations,
    )


def settings_of(graph: Graph, options: CompileOptions, batch: int) -> dict[str, Any]:
    """The settings that options stand for, with ``batch`` samples in a micro-batch."""
    fields = ("replicas", "stages", "recompute", "offload", "shard", "float8", "pipeline", "offload_weights")
    fields += ("offload_activations", "phased", "io_tiles", "accumulator", "partials")
    inputs = (*graph.inputs_of("state").values(), *graph.inputs_of("data").values())
    return {
        **DEFAULTS,
        **{name: getattr(options, name) for name in fields},
        "batch": batch,
        "train": options.optimiser is not None,
        "half": any(value.dtype is DType.F16 for value in inputs),
        "accumulate": options.accumulation,
        "memory_proportion": options.plan.memory_proportion,
        "planner": options.plan.planner,
    }


def with_settings(options: CompileOptions, changed: Mapping[str, Any]) -> CompileOptions:
    """Options with changed settings, of ``FREE``."""
    fields = {"accumulation" if name == "accumulate" else name: value for name, value in changed.items()}
    if "planner" in fields:
        fields["plan"] = replace(options.plan, planner=fields.pop("planner"))
    if "stages" in fields:
        fields["split"] = fields["stages"] > 1
    return replace(options, **fields)

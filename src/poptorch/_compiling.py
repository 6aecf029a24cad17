"""What the options ask of Abele's compiler: partial sums, memory, streaming memory, recomputation, cache, profile."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from abele.compile import session
from abele.compile.cache import Cache
from abele.compile.passes.offload import LEAST_ELEMENTS
from abele.compile.passes.sharding import USUAL
from abele.compile.passes.update import Optimiser
from abele.compile.pipelines import CompileOptions
from abele.compile.session import CompiledProgram
from abele.ir import Graph
from abele.machine.system import list_systems
from abele.tune.options_file import RECOMPUTATION

from ._logging import logger
from ._optimizer_spec import Plan
from .enums import ReductionType
from .options import Options

_TYPES = {"half": "f16", "float": "f32"}


def compile_options(
    options: Options,
    *,
    replicas: int,
    turns: int,
    stages: int,
    training: bool,
    plan: Plan | None,
    phased: str = "",
    overlap_host: bool = False,
) -> CompileOptions:
    """The compiler's options for the current session's machine.

    Args:
        options: of the wrapper.
        replicas: copies of the model.
        turns: micro-batches in one run of the program.
        stages: pipeline stages, or phases.
        training: whether weights are updated.
        plan: how they are; None where there is nothing to train.
        phased: kind of phased execution, or empty.
        overlap_host: whether the model marks inputs or outputs to overlap; where there are tiles for it, all do.
    """
    places = options.TensorLocations
    weights, activations, states = places.location_weight, places.location_activation, places.location_optimizer
    moved = [place for place in (weights, activations) if place.get("onChip") == 0]
    beside = any(place.get("useIOTilesToLoad") or place.get("useIOTilesToStore") for place in moved)
    overlap = ("host",) * overlap_host + ("streaming",) * beside if places.num_io_tiles else ()
    sharded = training and replicas > 1 and states.get("useReplicatedTensorSharding", 0)
    shares = options.available_memory_proportion.values()
    asked = session.current().plan
    return CompileOptions(
        session.current().system,
        replicas=replicas,
        accumulation=turns,
        stages=stages,
        optimiser=(plan.optimiser if plan else Optimiser("sgd", ())) if training else None,
        loss_scaling=plan.loss_scaling if plan else "",
        mean=options.Training.accumulation_and_replication_reduction_type is ReductionType.Mean,
        accumulator=plan.accumulator if plan else "",
        offload=training and states.get("onChip") == 0,
        shard=max(1, states.get("minElementsForReplicatedTensorSharding", USUAL)) if sharded else 0,
        recompute=options._own.get("recompute")
        or RECOMPUTATION.get(options._Popart.options.get("autoRecomputation", 0), "checkpoints"),
        offload_weights=weights.get("onChip") == 0,
        offload_activations=activations.get("onChip") == 0,
        offload_least=min((p.get("minElementsForOffChip", LEAST_ELEMENTS) for p in moved), default=LEAST_ELEMENTS),
        phased=phased,
        io_tiles=places.num_io_tiles,
        overlap=overlap,
        # Abele plans for all IPUs alike, so the least of the shares is kept by all of them.
        plan=dataclasses.replace(asked, memory_proportion=min(shares)) if shares else asked,
    )


def for_all_processes(asked: CompileOptions, graph: Graph) -> CompileOptions:
    """The options with a system that has IPUs for the replicas of all processes: the session's, or a larger one of its
    chips, since each process brings the IPUs of its host."""
    needed = asked.replicas * (
        asked.ipus if asked.split else 1 + max((op.origin.ipu for op in graph.operations), default=0)
    )
    if needed <= asked.system.ipus:
        return asked
    larger = [s for s in list_systems() if s.chip.name == asked.system.chip.name and s.ipus >= needed]
    if not larger:
        return asked
    system = min(larger, key=lambda s: s.ipus)
    logger.info("The processes need %d IPUs: compiling for the system %s.", needed, system.name)
    return dataclasses.replace(asked, system=system)


def cache_of(options: Options) -> Cache | None:
    """The folder of executables that the options name; None for that of the session."""
    lower = options._Popart.options
    path = options.executable_cache_path or (lower.get("cachePath") if lower.get("enableEngineCaching") else None)
    return Cache(path) if path else None


def with_partials(graph: Graph, lower: Mapping[str, Any]) -> Graph:
    """The graph with the types of partial sums that the options of the lower layer ask for.

    Args:
        graph: as captured.
        lower: ``partialsTypeMatMuls`` is for matrix products, ``convolutionOptions["partialsType"]`` for convolutions.
    """
    products = _TYPES.get(lower.get("partialsTypeMatMuls", ""), "")
    convolutions = _TYPES.get(lower.get("convolutionOptions", {}).get("partialsType", ""), "")

    def changed(part: Graph) -> Graph:
        operations = []
        for op in part.operations:
            wanted = convolutions if op.name.startswith("conv") else products
            if wanted and "partials" in op.attributes:
                op = dataclasses.replace(op, attributes={**op.attributes, "partials": wanted})
            operations.append(op)
        return part.replace(operations=tuple(operations))

    if not products and not convolutions:
        return graph
    return changed(graph).replace(functions={name: changed(f) for name, f in graph.functions.items()})


def write_profile(compiled: CompiledProgram, folder: str) -> None:
    """Write what the program costs on the modelled machine to ``<folder>/<name>.json`` and ``.html``."""
    from abele.cost import cost
    from abele.report.html import html_report

    name = re.sub(r"\W+", "_", compiled.name).strip("_")
    document = cost(compiled.executable.schedule, compiled.options.system, samples=compiled.samples).to_json()
    document["name"] = compiled.name
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    (target / f"{name}.json").write_text(json.dumps(document))
    (target / f"{name}.html").write_text(html_report([document]))

"""What the options ask of Abele's compiler: partial sums, memory, streaming memory, recomputation, cache, profile."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from abele.compile import session
from abele.compile.cache import Cache
from abele.compile.passes.loss_scale import AdaptiveScale
from abele.compile.passes.offload import LEAST_ELEMENTS
from abele.compile.passes.sharding import USUAL
from abele.compile.passes.update import Optimiser
from abele.compile.pipelines import CompileOptions
from abele.compile.session import CompiledProgram
from abele.cost import Profile, cost, detail
from abele.ir import Builder, Graph, Value, print_graph
from abele.machine.system import System, find_system, list_systems
from abele.report.files import write_file
from abele.report.saved import saved_page
from abele.report.shown import NAME, Shown
from abele.report.store import record, sources_of, write
from abele.tune.options_file import RECOMPUTATION

from ._errors import Error
from ._logging import log_once, logger
from ._optimizer_spec import Plan
from ._replica_groups import Groupings
from .enums import MeanReductionStrategy, ReductionType
from .options import Options

ENGINE_OPTIONS_VARIABLE, EXPORT_VARIABLE = "POPLAR_ENGINE_OPTIONS", "POPTORCH_EXPORT_PROTO_FILE"
AUTOMATIC = "automaticLossScalingSettings"
_AVERAGING = {
    MeanReductionStrategy.Running: "running",
    MeanReductionStrategy.Post: "post",
    MeanReductionStrategy.PostAndLoss: "post_and_loss",
}
PLACE = "enableProfiling"
DEBUG = b"Layers and lines are in profile.pop."
"""All that the vendor's file of debug information holds: one text, as CBOR has it."""

_BY_VERSION = {1: ("mk1-c2", ("mk1",)), 2: ("m2000", ("gc200", "c600")), 21: ("bow-2000", ("bow",))}
"""Versions of the chip: the system to take, and the chips that are of that version."""

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
    loss_scale: str = "",
    groupings: Groupings | None = None,
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
        loss_scale: stream for the scale of the loss, where it follows the gradients.
        groupings: weights that differ among replicas.
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
        system_of(options),
        replicas=replicas,
        accumulation=turns,
        stages=stages,
        optimiser=(plan.optimiser if plan else Optimiser("sgd", ())) if training else None,
        loss_scaling=plan.loss_scaling if plan else "",
        mean=options.Training.accumulation_and_replication_reduction_type is ReductionType.Mean,
        averaging=_AVERAGING[options.Training.meanAccumulationAndReplicationReductionStrategy],
        accumulator=plan.accumulator if plan else "",
        offload=training and states.get("onChip") == 0,
        shard=max(1, states.get("minElementsForReplicatedTensorSharding", USUAL)) if sharded else 0,
        recompute=options._own.get("recompute")
        or RECOMPUTATION.get(options._Popart.options.get("autoRecomputation", 0), "checkpoints"),
        offload_weights=weights.get("onChip") == 0,
        offload_activations=activations.get("onChip") == 0,
        offload_least=min((p.get("minElementsForOffChip", LEAST_ELEMENTS) for p in moved), default=LEAST_ELEMENTS),
        phased=phased,
        outline=bool(options._Popart.options.get("enableOutlining", True)),
        io_tiles=places.num_io_tiles,
        overlap=overlap,
        adaptive=_adaptive(options, loss_scale) if plan is not None and scales_loss(options) else None,
        stochastic_rounding=training and rounds_stochastically(options),
        replica_groups=tuple((name, g.size, g.stride) for name, g in (groupings or {}).items()),
        # Abele plans for all IPUs alike, so the least of the shares is kept by all of them.
        plan=dataclasses.replace(asked, memory_proportion=min(shares)) if shares else asked,
    )


def rounds_stochastically(options: Options) -> bool:
    """Whether half weights are rounded stochastically when they are updated."""
    lower = options._Popart.options.get("enableStochasticRounding", False)
    return bool(options.Precision.stochastic_rounding or lower)


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


def scales_loss(options: Options) -> bool:
    """Whether the scale of the loss follows the gradients."""
    return bool(options._Popart.options.get(f"{AUTOMATIC}.enabled", False))


def _adaptive(options: Options, stream: str) -> AdaptiveScale:
    """How the loss scale follows the gradients, by the options of the lower layer."""
    lower, usual = options._Popart.options, AdaptiveScale()
    method = int(lower.get(f"{AUTOMATIC}.gradientTensorTrackingMethod", 0))
    return AdaptiveScale(
        edge=float(lower.get(f"{AUTOMATIC}.binEdgeLocation", usual.edge)),
        threshold=float(lower.get(f"{AUTOMATIC}.thresholdUpperCountProportion", usual.threshold)),
        period=max(1, int(lower.get(f"{AUTOMATIC}.updatePeriod", usual.period))),
        products=method == 1,
        weights=tuple(str(name) for name in lower.get(f"{AUTOMATIC}.toTrackTensors", ())) if method == 2 else (),
        anchor=stream,
    )


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


def with_strided_groups(graph: Graph, lower: Mapping[str, Any]) -> Graph:
    """The graph whose group norms put channel ``c`` into group ``c % groups``, where that is asked for.

    Args:
        graph: as captured.
        lower: options of the lower layer; ``groupNormStridedChannelGrouping`` asks for it.
    """
    if not lower.get("groupNormStridedChannelGrouping"):
        return graph

    def changed(part: Graph) -> Graph:
        builder = Builder(part.name, graph.functions)
        new: dict[Value, Value] = {}
        for op in part.operations:
            operands = tuple(new.get(v, v) for v in op.operands)
            if op.name != "group_norm":
                builder.operations.append(dataclasses.replace(op, operands=operands))
                continue
            with builder.at(op.origin):
                groups = int(op.attributes["groups"])
                x, *affine = operands
                rows = [_regrouped(builder, v, 0, v.shape[0] // groups) for v in affine]
                y, *rest = builder.emit(
                    "group_norm", [_regrouped(builder, x, 1, x.shape[1] // groups), *rows], op.attributes
                )
                new |= dict(zip(op.results, (_regrouped(builder, y, 1, groups), *rest), strict=True))
        outputs = tuple(new.get(v, v) for v in part.outputs)
        return part.replace(operations=tuple(builder.operations), outputs=outputs)

    return changed(graph).replace(functions={name: changed(f) for name, f in graph.functions.items()})


def _regrouped(builder: Builder, x: Value, axis: int, outer: int) -> Value:
    """Exchange the two parts of an axis, of which the first has ``outer`` elements."""
    shape, inner = x.shape, x.shape[axis] // outer
    parts = builder.reshape(x, shape=(*shape[:axis], outer, inner, *shape[axis + 1 :]))
    order = [*range(axis), axis + 1, axis, *range(axis + 2, len(shape) + 1)]
    return builder.reshape(builder.transpose(parts, permutation=tuple(order)), shape=shape)


def profile_folder(options: Options) -> str | None:
    """Where profiles are wanted: the folder of ``enableProfiling``, or of the engine options ``autoReport.…``.

    The engine options are those of the lower layer and, above them, the JSON object in ``POPLAR_ENGINE_OPTIONS``.

    Raises:
        Error: when that variable holds none.
    """
    text = os.environ.get(ENGINE_OPTIONS_VARIABLE) or "{}"
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise Error(f"{ENGINE_OPTIONS_VARIABLE}={text!r} is no JSON object: {error}.") from error
    if not isinstance(given, dict):
        raise Error(f"{ENGINE_OPTIONS_VARIABLE}={text!r} is no JSON object.")
    engine = {**options._Popart.options.get("engineOptions", {}), **given}
    wanted = ("all", "outputGraphProfile", "outputExecutionProfile")
    asked = any(str(engine.get(f"autoReport.{name}", "")).lower() == "true" for name in wanted)
    if options.profile_dir is None and not asked:
        return None
    return str(given.get("autoReport.directory") or options.profile_dir or engine.get("autoReport.directory", "."))


def profile_of(compiled: CompiledProgram) -> Profile:
    """What one run of a program costs on the machine that it is compiled for."""
    return cost(compiled.executable.schedule, compiled.options.system, samples=compiled.samples)


def write_profile(compiled: CompiledProgram, folder: str, name: str) -> None:
    """Write what the program costs on the modelled machine into ``<folder>/<name>``.

    That is ``profile.pop``, a report for ``abele view`` and ``pva`` (an SQLite file like the vendor's, with tables of
    its own), the same as one page ``profile.html``, and ``profile.json``; beside the folder ``debug.cbor``, which
    readers name.
    """
    profile, schedule = profile_of(compiled), compiled.executable.schedule
    document = profile.to_json()
    document["name"] = compiled.name
    target = Path(folder, re.sub(r"[^\w.-]+", "_", name))
    write_file(target / "profile.json", json.dumps(document), PLACE)
    records = [record(document, detail(profile, schedule, compiled.options.system))]
    write(target / NAME, records, title=compiled.name, sources=sources_of(records))
    write_file(target / "profile.html", saved_page(Shown(target / NAME)), PLACE)
    write_file(Path(folder, "debug.cbor"), bytes([0x78, len(DEBUG)]) + DEBUG, PLACE)


def write_graph(graph: Graph) -> None:
    """Write a captured program to the file that ``POPTORCH_EXPORT_PROTO_FILE`` names, where it names one.

    The vendor writes ONNX there; this is the text form of the graph.
    """
    path = os.environ.get(EXPORT_VARIABLE)
    if path:
        log_once(logging.WARNING, f"{EXPORT_VARIABLE}: the program is written as text of Abele's graph, not as ONNX.")
        write_file(Path(path), print_graph(graph), EXPORT_VARIABLE)


def system_of(options: Options) -> System:
    """The machine to compile for: the session's, unless an offline target of another version is asked for."""
    system = session.current().system
    wanted = _BY_VERSION.get(options.ipu_version or 0)
    if wanted is None or system.chip.name in wanted[1]:
        return system
    return find_system(wanted[0])

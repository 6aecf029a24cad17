"""Runner of whole models, inference and training: capture, compile and charge with the case's configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from abele.compile.executable import compile_graph
from abele.compile.passes.update import Optimiser
from abele.compile.pipelines import CompileOptions
from abele.cost.profile import cost
from abele.cost.validate.cases import Case, numbers
from abele.cost.validate.outcome import Context, NoRunner, Outcome, runner
from abele.errors import InvalidOption, Unsupported, suggest
from abele.ir.graph import Graph, Operation, Origin, Port, Value
from abele.machine.system import find_system
from abele.ops.plans.planning import PlanOptions

_OPTIMISERS: Mapping[str, tuple[str, dict[str, float], tuple]] = {
    "sgd": ("sgd", {"momentum": 0.9, "dampening": 0.0, "weight_decay": 0.0}, ()),
    "adam": ("adam", {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01}, ()),
    "lamb": ("lamb", {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01, "max_weight_norm": 65500.0}, ()),
    "lars": ("lars", {"momentum": 0.9, "weight_decay": 5e-5, "eta": 0.001}, ()),
}


@runner("inference", "training")
def run_model(case: Case, context: Context) -> Outcome:
    """A model in inference or training.

    Options, all with defaults: ``image=SIDE``; ``width``, ``depth``, ``heads``, ``vocabulary``, ``mask_tokens`` of a
    transformer; ``stage_ipus=0/1/2/3/0`` (the IPU of each stage of ``layers``), ``attention_layers`` (as ``layers``,
    where attention and feed-forward of a layer are apart); ``pipeline=grouped|interleaved|sequential``;
    ``optimizer=sgd|adam|lamb|lars``, ``optimizer_state=f32|f16``, ``loss_scaling=1`` (gradients are divided by a number
    in a step of its own), ``max_grad_norm`` (they are clipped by their joint norm); ``offload=1`` (optimiser state in
    streaming memory);
    ``checkpoints=stages.0.2/stages.1.3`` (modules whose results are kept, with ``recompute`` as ``checkpoints``);
    ``memory_proportion``; ``io_tiles=N`` set aside, on which the host's transfers run beside compute;
    ``bn_span=N`` (neighbouring replicas that share the statistics of batch norm); ``image_type=u8`` of a ResNet;
    ``patterns=gelu/norm`` of ``bertsquad``; ``host=none`` (synthetic data: the host's time is left out);
    ``host_return=SECONDS`` of the host between two updates; ``samples=F`` (published samples in one sample of the
    program, as in packed sequences).
    """
    train = case.family == "training"
    system = find_system(case.system)
    if "host_return" in case.options:
        system = system.derive(system.name, host_return_seconds=float(case.option("host_return")))
    context.tell(case.id, "capture")
    graph, parameters = _captured(case, train)
    stages = len(case.layers) or 1
    if stages > 1:
        graph = placed(graph, case)
    if "checkpoints" in case.options:
        graph = checkpointed(graph, str(case.option("checkpoints")).split("/"))
    if "bn_span" in case.options:
        graph = spanned(graph, int(case.option("bn_span")))
    optimiser = None
    if train:
        name = str(case.option("optimizer", "sgd"))
        if name not in _OPTIMISERS:
            raise InvalidOption(f"{case.id}: there is no optimizer {name!r}", remedy=suggest(name, _OPTIMISERS))
        kind, fixed, attributes = _OPTIMISERS[name]
        held = str(case.option("optimizer_state", "f32"))
        scale, norm = "loss_scaling" * int(case.option("loss_scaling", 0)), float(case.option("max_grad_norm", 0))
        constants = (tuple(fixed.items()),)
        optimiser = Optimiser(kind, (parameters,), constants, attributes, held, loss_scaling=scale, max_grad_norm=norm)
    turns, io_tiles = case.accumulation, int(case.option("io_tiles", 0))
    options = CompileOptions(
        system,
        case.replicas,
        turns,
        stages,
        optimiser=optimiser,
        loss_scaling=optimiser.loss_scaling if optimiser else "",
        offload=bool(case.option("offload", 0)),
        shard=int(case.option("shard", 0)),
        shard_over=int(case.option("shard_over", 0)),
        recompute=case.recompute,
        partials=case.partials,
        float8="f143" if case.dtype == "f8" else "",
        plan=PlanOptions(float(case.option("memory_proportion", 0.6)), "poplibs"),
        pipeline=str(case.option("pipeline", "grouped")),
        io_tiles=io_tiles,
        overlap=("host",) if io_tiles else (),
    )
    executable = compile_graph(graph, options, cache=context.cache, watch=lambda step, _: context.tell(case.id, step))
    context.tell(case.id, "charge")
    samples = case.micro_batch * turns * case.replicas
    profile = cost(executable.schedule, system, samples=samples)
    parts = {name: part for name, part in profile.cycles.as_dict().items() if part}
    if case.option("host", "charged") == "none":
        parts.pop("host", None)
        parts.pop("overhead", None)
    cycles = sum(parts.values())
    return Outcome(
        system.chip.seconds(cycles),
        cycles,
        samples=samples * float(case.option("samples", 1.0)),
        flops=float(profile.flops),
        shares={name: part / cycles for name, part in parts.items()},
        fits=profile.memory.fits,
    )


# models ------------------------------------------------------------------------------------------------------


def _captured(case: Case, train: bool) -> tuple[Graph, tuple[str, ...]]:
    """The model's forward and the names of its weights; with one output of kind ``loss`` when it is trained."""
    try:
        from abele.importers.torch import capture
        from abele.zoo.configured import CONFIGURED, build
    except ImportError as error:
        raise Unsupported("Models need torch, which is not installed", remedy="pip install 'abele[zoo]'") from error
    if case.model not in CONFIGURED:
        raise NoRunner(f"the model {case.model!r} is not in the zoo; there are {', '.join(CONFIGURED)}")
    half = case.dtype in ("f16", "f8")
    module, inputs = build(
        case.model, batch=case.micro_batch, train=train, half=half, length=case.sequence_length, sizes=case.options
    )
    captured = capture(module, (), inputs, training=train)
    graph = captured.graph.replace(name=re.sub(r"\W", "_", case.model))
    losses = [p for p in graph.output_ports if p.kind == "loss"]
    if train and len(losses) != 1:
        raise InvalidOption(f"{case.model} has {len(losses)} losses", remedy="Training needs exactly one.")
    ports = tuple(Port("loss", "loss") if p.kind == "loss" else p for p in graph.output_ports)
    names = tuple(n for n, p in captured.parameters.items() if p.requires_grad)
    kept = [i for i, p in enumerate(ports) if not train or p.kind != "anchor"]  # a step returns its loss alone
    outputs = {"outputs": tuple(graph.outputs[i] for i in kept), "output_ports": tuple(ports[i] for i in kept)}
    return graph.replace(**outputs), names


# pipelines ---------------------------------------------------------------------------------------------------

_LAYER = re.compile(r"(?:^|\.)(?:layer|layers|h|blocks)\.(\d+)\.(.*)")


def placed(graph: Graph, case: Case) -> Graph:
    """The graph with every operation on the stage and IPU that the case gives its layer.

    What comes before the first layer goes with the first stage, what comes after the last with the last stage.
    """
    attention = numbers(case.option("attention_layers", "/".join(map(str, case.layers))))
    ipus = numbers(case.option("stage_ipus", "/".join(map(str, range(len(case.layers))))))
    if not len(attention) == len(ipus) == len(case.layers):
        raise InvalidOption(
            f"{case.id}: layers, attention_layers and stage_ipus name {len(case.layers)}, {len(attention)} and "
            f"{len(ipus)} stages",
            remedy="Each has one number for each stage.",
        )
    found = [_LAYER.search(op.origin.module) for op in graph.operations]
    last = max((i for i, match in enumerate(found) if match), default=-1)
    if last < 0:
        raise InvalidOption(f"{case.model} has no numbered layers to place", remedy="Leave layers empty.")
    operations: list[Operation] = []
    now = 0
    for i, (op, match) in enumerate(zip(graph.operations, found, strict=True)):
        if match:
            counts = attention if "attention" in match[2] else case.layers
            now = max(now, _stage(int(match[1]), counts))
        elif i > last:
            now = len(case.layers) - 1
        operations.append(replace(op, origin=replace(op.origin, stage=now, ipu=ipus[now])))
    return graph.replace(operations=tuple(operations))


def _stage(layer: int, counts: tuple[int, ...]) -> int:
    """The stage that holds a layer when stages take ``counts`` of them in turn."""
    end = 0
    for stage, count in enumerate(counts):
        end += count
        if layer < end:
            return stage
    return len(counts) - 1


def checkpointed(graph: Graph, modules: Sequence[str]) -> Graph:
    """The graph with checkpoints on the results of these modules.

    What comes after the last of them is kept whole, as in a pipeline on one IPU: its backward pass follows at once.
    An unknown module raises ``InvalidOption``.
    """
    last = {name: _last_of(graph, name) for name in modules}
    ends = set(last.values())
    operations: list[Operation] = []
    now: dict[Value, Value] = {}
    for i, op in enumerate(graph.operations):
        operands = tuple(now.get(v, v) for v in op.operands)
        operations.append(replace(op, operands=operands))
        if i in ends or i > max(ends):
            for value in op.results:
                now[value] = Value(value.type)
                operations.append(Operation("checkpoint", (value,), (now[value],), {}, op.origin))
    outputs = tuple(now.get(v, v) for v in graph.outputs)
    return graph.replace(operations=tuple(operations), outputs=outputs)


def spanned(graph: Graph, replicas: int) -> Graph:
    """The graph with what a batch norm exchanges whose statistics are those of ``replicas`` neighbours.

    That is two vectors of the channels at each norm, and two, the sums of its gradients, at each gradient. Its scale
    and shift, which are alike on all replicas, stand in for them: their mean over the neighbours changes nothing, and
    its gradient is the exchange on the way back. The statistics are kept, so that nothing is exchanged when the norm is
    computed again (graphcore/tensorflow, ``passes/distributed_batch_norm_decomposer.h``).
    """
    operations: list[Operation] = []

    def added(name: str, value: Value, origin: Origin, **attributes: object) -> Value:
        operations.append(Operation(name, (value,), (Value(value.type),), attributes, origin))
        return operations[-1].result

    for op in graph.operations:
        if op.name != "batch_norm":
            operations.append(op)
            continue
        x, *affine = op.operands
        shared = [added("all_reduce", v, op.origin, reduction="mean", group=replicas, stride=1) for v in affine]
        shared = [added("checkpoint", v, op.origin) for v in shared]
        operations.append(replace(op, operands=(x, *shared)))
        for value in op.results[1:]:
            added("checkpoint", value, op.origin)
    return graph.replace(operations=tuple(operations))


def _last_of(graph: Graph, module: str) -> int:
    """Position of the last operation of a module and of what is in it."""
    inside = [i for i, op in enumerate(graph.operations) if f".{module}." in f".{op.origin.module}."]
    if not inside:
        raise InvalidOption(f"The model has no module {module!r} to keep the result of")
    return inside[-1]

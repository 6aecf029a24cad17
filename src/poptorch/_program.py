"""One compiled program: the model captured, compiled through Abele's session, and bound to an engine."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from abele.compile import session
from abele.compile.session import CompiledProgram
from abele.cost import Profile
from abele.engine.engine import Engine
from abele.errors import AbeleError
from abele.importers.torch import structure as tree
from abele.importers.torch.capture import Capture, capture, refuse_shared
from abele.importers.torch.dtypes import machine_type, to_torch
from abele.ir import Graph, Port, Value

from . import _anchors, _hooks, _optimizer_spec, _outputs, _placement
from ._anchors import LOSS, Anchors, stream_names
from ._arguments import Batching, Call, Expected
from ._compiling import (
    cache_of,
    compile_options,
    for_all_processes,
    profile_folder,
    profile_of,
    scales_loss,
    with_partials,
    with_strided_groups,
    write_graph,
    write_profile,
)
from ._device import ipuHardwareIsAvailable
from ._errors import Error
from ._host_weights import plain_tensors
from ._logging import logger
from ._overlap import check_overlap
from ._replica_groups import Groupings, first_values
from ._strategies import PipelinedExecution, ShardedExecution
from .enums import OutputMode
from .optim._spec import OptimizerSpec
from .options import Options


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Let errors of Abele reach the user as :class:`poptorch.Error`, with the same text."""
    try:
        yield
    except AbeleError as error:
        raise Error(str(error), type="abele") from error


@dataclasses.dataclass
class Program:
    """A program ready to run.

    Attributes:
        capture: the model as it was captured, for one micro-batch.
        expected: the arguments of a call.
        batching: how a call is cut.
        runs: engine runs in one call.
        compiled: what the session keeps.
        engine: runs it; made when first needed.
        plan: how weights are updated; None for inference.
        seconds: wall seconds of capturing and compiling.
        process: number of this process, and how many share the replicas.
        anchors: what comes back beside the outputs.
        exceptions: whether the engine stops at floating-point exceptions.
    """

    capture: Capture
    expected: Expected
    batching: Batching
    runs: int
    compiled: CompiledProgram
    training: bool
    plan: _optimizer_spec.Plan | None
    seconds: float
    anchors: Anchors
    native_cache: Path | None = None
    process: tuple[int, int] = (0, 1)
    exceptions: bool = False
    groupings: Groupings = dataclasses.field(default_factory=dict)
    _engine: Engine | None = None

    @functools.cached_property
    def profile(self) -> Profile:
        """What one run costs on the modelled machine."""
        return profile_of(self.compiled)

    @property
    def engine(self) -> Engine:
        """The engine, with state at zero when it is new."""
        if self._engine is None:
            schedule = self.compiled.executable.schedule
            self._engine = Engine(schedule, cache=self.native_cache, process=self.process, exceptions=self.exceptions)
        return self._engine

    def close(self) -> None:
        """Give up the engine and the states that it holds."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    @property
    def host_tensors(self) -> Mapping[str, torch.Tensor]:
        """The model's tensors that the program uses, by name."""
        return self.capture.parameters | self.capture.buffers

    def take_host_tensors(self, model: torch.nn.Module) -> None:
        """The model's tensors now are those of the program, also where the user has put others in their place.

        Raises:
            Error: the shape or type of one is not what the program was compiled for.
        """
        parameters = dict(model.named_parameters(remove_duplicate=False))
        buffers = {n: b for n, b in model.named_buffers(remove_duplicate=False) if not b.is_complex()}
        now = {name: (parameters | buffers).get(name, tensor) for name, tensor in self.host_tensors.items()}
        for name, tensor in now.items():
            wanted = self.engine.states.get(name)
            one = tensor[0] if name in self.groupings else tensor
            if wanted is not None and machine_type(one) != wanted:
                raise Error(
                    f"{name} is {tensor.dtype} {list(tensor.shape)} and the model was compiled for {wanted}: call "
                    "destroy() on the model to compile it anew."
                )
        for table in (self.capture.parameters, self.capture.buffers):
            table.update({name: now[name] for name in table})

    @property
    def updated(self) -> list[str]:
        """Names of the tensors that a run changes."""
        changed = set(self.capture.graph.outputs_of("state"))
        if self.plan is not None:
            changed.update(name for group in self.plan.optimiser.groups for name in group)
        return [name for name in self.host_tensors if name in changed]

    def run(
        self, leaves: list[torch.Tensor], mode: OutputMode, period: int, synthetic: bool
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """One call: all device iterations.

        Args:
            leaves: the tensors of the call.
            mode, period: which outputs to keep.
            synthetic: make up the inputs.

        Returns:
            the outputs by stream, those of inputs that are updated in place from every micro-batch; and the anchored
            tensors by short name.
        """
        engine = self.engine
        streams = {
            name: self.batching.stream(tensor, self.runs, name)
            for name, tensor in zip(self.capture.graph.inputs_of("data"), leaves, strict=True)
            if name in engine.inputs
        }
        if synthetic:
            streams = {name: _made_up(array) for name, array in streams.items()}
        collectors: dict[str, _outputs.Collector] = {}
        anchored = self.anchors.collectors()
        for run in range(self.runs):
            started = time.perf_counter()
            results = engine.run({name: array[run] for name, array in streams.items()})
            self.compiled.ran(started, time.perf_counter(), results.get(LOSS))
            self.anchors.collect(anchored, results, engine.read, engine.replicas)
            for name, array in results.items():
                if name not in collectors:
                    everything = name.startswith("updated.")
                    collectors[name] = _outputs.Collector(OutputMode.All if everything else mode, period)
                collectors[name].add(array)
        types = {name: type_ for name, (type_, _) in engine.outputs.items()} | engine.states
        outputs = {name: c.result(types[name].dtype.numpy) for name, c in collectors.items()}
        sources = {short: anchor.source for short, anchor in self.anchors.anchors.items()}
        return outputs, {short: c.result(types[sources[short]].dtype.numpy) for short, c in anchored.items()}

    def result(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """What the model returns, from the outputs by stream."""
        names = stream_names([t.name for t in self.capture.outputs])
        kinds = [NARROWED.get(t.dtype, t.dtype) for t in self.capture.outputs]
        tensors = [to_torch(arrays[n], kind) for n, kind in zip(names, kinds, strict=True)]
        return tree.unflatten(self.capture.output_structure, tensors)

    def write_back(self, arrays: Mapping[str, np.ndarray], leaves: list[torch.Tensor]) -> None:
        """Give the caller's tensors the values that the model wrote into its inputs."""
        batching = self.batching
        for index, name in self.capture.updated_inputs.items():
            refuse_shared(leaves, [t.name for t in self.capture.inputs], index)
            target, array = leaves[index], arrays[name]
            if batching.group_size > 1 and target.dim():
                split = array.reshape(-1, batching.replicas, target.shape[0] // batching.count, *target.shape[1:])
                array = split[:, batching.first_of_groups()]
            with torch.no_grad():
                target.copy_(to_torch(array.reshape(target.shape), target.dtype))

    def names(self) -> list[str]:
        """Names of the tensors inside the program, as users see them."""
        weights = [name for group in self.plan.optimiser.groups for name in group] if self.plan is not None else []
        return _anchors.names(self.capture, self.host_tensors, weights, self.plan is not None)


MOST_IPUS = 64
"""IPUs that one process may have on real systems."""

NARROWED = {torch.int64: torch.int32, torch.float64: torch.float32}
"""Types that the device has no 64 bits for: results come back in 32, as PopTorch returns them."""


def _made_up(array: np.ndarray) -> np.ndarray:
    """Data in the place of an input: normal numbers for floats, zeros for all else."""
    if array.dtype.kind != "f":
        return np.zeros_like(array)
    return np.random.default_rng(0).standard_normal(array.shape, np.float32).astype(array.dtype)


def build(
    model: torch.nn.Module,
    options: Options,
    call: Call,
    *,
    training: bool,
    spec: OptimizerSpec | None,
    divided: bool = False,
    groupings: Groupings | None = None,
) -> Program:
    """Capture and compile a model for calls like this one.

    Args:
        model: the user's module, with its own tensors.
        options: of the wrapper.
        call: the arguments.
        training: whether to train it.
        spec: the optimizer; None for inference, or where there is nothing to train.
        divided: give each weight its own numbers of the optimizer.
        groupings: weights that differ among replicas.

    Raises:
        Error: see the messages.
    """
    started = time.perf_counter()
    expected, batching = Expected.of(model, call), Batching.of(options)
    _refuse_empty(call.leaves)
    micro_args, micro_kwargs = tree.unflatten(
        call.spelled, [batching.micro(name, t) for name, t in zip(expected.leaf_names(), call.leaves, strict=True)]
    )
    strategy = options._execution_strategy
    pipelined = isinstance(strategy, PipelinedExecution) and not isinstance(strategy, ShardedExecution)
    stages: list[int] = []

    def placement(target: str) -> tuple[int, int]:
        place = _placement.on_operation(target or "an operation").placement
        if not pipelined:
            return (place.phase or 0) if strategy.phased else 0, place.ipu
        if place.stage not in stages:
            stages.append(place.stage)
        return stages.index(place.stage), place.ipu

    annotated = _placement.capture(strategy, training=training)
    groupings = groupings or {}
    with (
        plain_tensors(model),
        first_values(model, groupings),
        annotated,
        torch.set_grad_enabled(True),
        _hooks.capturing(),
    ):
        if training:
            _hooks.warn_of_gradient_hooks(model)
        captured = capture(model, micro_args, micro_kwargs, placement=placement, training=training, device_apart=True)
    _refuse_exchanged_buffers(captured)
    check_overlap(captured, options, pipelined)
    distributed = options.Distributed
    replicas = batching.replicas * distributed.numProcesses
    if replicas > 1 and options.broadcast_buffers and set(captured.buffers) & _written(captured):
        raise Error(
            "PopTorch does not support broadcasting buffers. If your model is able to tolerate buffers becoming out of "
            "sync between replicas, you can disable buffer broadcasting using "
            "poptorch.Options.broadcastBuffers(False)."
        )
    stages_or_phases = 1 + max((op.origin.stage for op in captured.graph.operations), default=0)
    count = 1 if strategy.phased else stages_or_phases
    split = count == 1 and pipelined and _own_stages(options, batching, training) > 1
    if split:  # the compiler cuts the model, as the file of options asks
        count = options._own["stages"]
    ipus = count if split else 1 + max((op.origin.ipu for op in captured.graph.operations), default=0)
    _check_ipus(ipus, batching.replicas, options)
    if not (split and options._own.get("pipeline") == "sequential"):
        _check_pipeline(count, batching, training)
    plan = None
    if training:
        adaptive = scales_loss(options)
        plan = _update_plan(model, captured, spec, batching.accumulation > 1 or count > 1, divided, adaptive)
    loss = captured.losses[_only_loss(captured)] if training else None
    anchors = Anchors.of(options, captured, loss, {**captured.parameters, **captured.buffers}, training)
    lower = options._Popart.options
    graph = with_strided_groups(with_partials(_with_ports(captured, loss, anchors), lower), lower)
    graph = graph.replace(name=_identifier(type(model).__name__))
    turns = batching.accumulation if training else batching.iterations if count > 1 else 1
    current = session.current()
    asked = compile_options(
        options,
        replicas=replicas,
        turns=turns,
        stages=stages_or_phases if strategy.phased else count,
        training=training,
        plan=plan,
        phased=strategy.phased,
        overlap_host=bool(captured.overlapped),
        loss_scale=anchors.loss_scale,
        groupings=groupings,
    )
    if split:
        asked = dataclasses.replace(asked, split=True, pipeline=options._own.get("pipeline", asked.pipeline))
    if distributed.numProcesses > 1:
        asked = for_all_processes(asked, graph)
    cache = cache_of(options)
    first = captured.inputs[0].shape if captured.inputs else ()
    tuned_for = options._own.get("batchSize")
    if tuned_for is not None and first and first[0] != tuned_for:
        logger.warning(
            "The file of options is for micro-batches of %d; the model is called with %d.", tuned_for, first[0]
        )
    runs = batching.iterations * batching.accumulation // turns
    compiled = current.compile(
        f"{options.model_name or type(model).__name__} ({'training' if training else 'inference'})",
        graph,
        asked,
        samples=(first[0] if first else 1) * turns * replicas,
        cache=cache,
        iterations=runs,
    )
    write_graph(graph)
    folder = profile_folder(options)
    if folder is not None:
        write_profile(compiled, folder, options.model_name or ("training" if training else "inference"))
    kept = cache or current.cache
    seconds = time.perf_counter() - started
    native = kept.native if kept is not None else None
    process = (distributed.processId, distributed.numProcesses)
    exceptions = bool(options.Precision.floating_point_exceptions or lower.get("enableFloatingPointChecks"))
    return Program(
        capture=captured,
        expected=expected,
        batching=batching,
        runs=runs,
        compiled=compiled,
        training=training,
        plan=plan,
        seconds=seconds,
        anchors=anchors,
        native_cache=native,
        process=process,
        exceptions=exceptions,
        groupings=groupings,
    )


def _refuse_empty(tensors: Iterable[torch.Tensor]) -> None:
    for tensor in tensors:
        if not tensor.numel():
            raise Error(
                f"Zero-sized tensors are unsupported (Got shape {list(tensor.shape)}): an input without elements "
                "cannot be cut into micro-batches."
            )


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() or c == "_" else "_" for c in name)


def _written(captured: Capture) -> set[str]:
    return set(captured.graph.outputs_of("state"))


def _refuse_exchanged_buffers(captured: Capture) -> None:
    for name in captured.reassigned:
        if name in captured.removed:
            raise Error(
                f"Buffer {name} is removed from the model when calling the forward method. Keep it: a compiled program "
                "has the same buffers in every call."
            )
        raise Error(
            f"Buffer {name} is reassigned within the model when calling the forward method. This is not supported. "
            f"Consider using self.{name}.copy_(src) to copy data from a source tensor, where src is the name of the "
            "source tensor."
        )


def _own_stages(options: Options, batching: Batching, training: bool) -> int:
    """Stages into which the options let the compiler cut a model; 1 for one that the command line is not about and
    whose micro-batches cannot fill them."""
    stages = options._own.get("stages", 1)
    few = batching.accumulation < 2 * stages - 1 if training else batching.iterations < stages
    if stages > 1 and few and options._commanded_for_the_other(training):
        kind, other = ("training", "inference") if training else ("inference", "training")
        logger.warning(
            "The %d stages that the command line asks for are of the %s models: this %s model has too few "
            "micro-batches in a call to fill them, and stays whole.",
            stages,
            other,
            kind,
        )
        return 1
    return stages


def _check_pipeline(stages: int, batching: Batching, training: bool) -> None:
    if stages == 1:
        return
    if training:
        needed = 2 * stages - 1
        if batching.accumulation < needed:
            raise Error(
                "poptorch.Options().Training.gradientAccumulation must be greater than or equal to the number of "
                f"pipeline stages ({needed}) when using poptorch.PipelinedExecution. Please note that a model with "
                f"{stages} pipeline stages in PopTorch will have an additional {stages - 1} stages when training."
            )
    elif batching.iterations < stages:
        raise Error(
            f"poptorch.Options().deviceIterations must be greater: a pipeline needs one for each of its {stages} "
            f"stages to fill, and {batching.iterations} were asked for."
        )


def _check_ipus(count: int, replicas: int, options: Options) -> None:
    """Real systems hand out IPUs in powers of two, and 64 to a process; the model of one takes any number."""
    if count * replicas > MOST_IPUS and ipuHardwareIsAvailable():
        raise Error(
            f"Too many IPUs requested ({count * replicas}). Experiments that need more than {MOST_IPUS} IPUs run in "
            "several processes (poprun or torchrun), each with some of the replicas."
        )
    rounded = 1 << (count - 1).bit_length()
    if count != rounded and not options.auto_round_num_ipus and ipuHardwareIsAvailable():
        raise Error(
            f"Incompatible number of IPUs: The model specifies the use of {count} IPUs, however PopTorch must reserve "
            f"a minimum of {rounded} in order to allow the model to run, because PopTorch must reserve a power of 2 or "
            "maximum of 64 IPUs per process. Please reconfigure your model to use a different number of IPUs or set "
            "poptorch.Options().autoRoundNumIPUs(True)."
        )


def _update_plan(
    model: torch.nn.Module,
    captured: Capture,
    spec: OptimizerSpec | None,
    accumulates: bool,
    divided: bool,
    adaptive: bool,
) -> _optimizer_spec.Plan | None:
    if spec is None:
        return None
    names = {id(t): name for name, t in captured.parameters.items() if t.requires_grad}
    plan = _optimizer_spec.plan_of(spec, names, accumulates, divided, adaptive)
    if names and not any(plan.optimiser.groups):
        logger.warning(
            "The optimizer has none of the model's parameters, so that training changes nothing: make it from the "
            "parameters of the module that is wrapped."
        )
    return plan


def _with_ports(captured: Capture, loss: Value | None, anchors: Anchors) -> Graph:
    """The graph with outputs by the names of streams, in training with the one loss, and with what is anchored."""
    graph = captured.graph
    names = iter(stream_names([t.name for t in captured.outputs]))
    kept: list[tuple[Value, Port]] = []
    for value, port in zip(graph.outputs, graph.output_ports, strict=True):
        if port.kind == "loss":
            continue
        result = port.kind == "anchor" and port.name not in captured.updated_inputs.values()
        kept.append((value, Port("anchor", next(names)) if result else port))
    if loss is not None:
        kept.append((loss, Port("loss", LOSS)))
    kept += anchors.ports
    return graph.replace(outputs=tuple(v for v, _ in kept), output_ports=tuple(p for _, p in kept))


def _only_loss(captured: Capture) -> int:
    found = captured.independent_losses()
    if not found:
        raise Error(
            "Couldn't find a loss in graph. Training needs one: return one of torch's losses, or mark a tensor with "
            "poptorch.identity_loss."
        )
    if len(found) > 1:
        raise Error(
            "Multiple independent losses found in graph. Graph must have one final loss. Wrap final graph loss in "
            f"poptorch.identity_loss. (There are {len(found)}.)"
        )
    return found[0]

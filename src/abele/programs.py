"""Programs by name: a model of the zoo, of a user's file, or a graph in text form, captured and ready to compile."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from abele import user
from abele.compile.passes.update import Optimiser
from abele.compile.pipelines import OVERLAP, CompileOptions
from abele.errors import AbeleError, Bug, InvalidOption, UserProgramError, suggest
from abele.ir.graph import Graph, Port
from abele.ir.text import parse_graph
from abele.machine.system import System, find_system
from abele.ops.plans.planning import PlanOptions

OPTIMISERS = {
    "sgd": ("sgd", {"momentum": 0.9, "dampening": 0.0, "weight_decay": 0.0}, ()),
    "adam": ("adam", {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}, ()),
    "adamw": ("adam", {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01}, (("decoupled", True),)),
    "rmsprop": ("rmsprop", {"alpha": 0.99, "eps": 1e-8, "momentum": 0.9, "weight_decay": 0.0}, ()),
    "lamb": ("lamb", {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01, "max_weight_norm": 65500.0}, ()),
}
"""Optimisers of the command line: kind, fixed numbers, attributes. The learning rate stays a hyper value."""

OUTPUTS = ("loss", "all")
"""What a training step returns to the host for every micro-batch: the loss alone, or all that the model returns (as
``poptorch.OutputMode.All``)."""

CAPTURED = ("batch", "train", "half", "small", "output")
"""Settings with which a model is captured (of ``load``); the others are the compiler's (of ``compile_options``)."""


@dataclass
class Loaded:
    """A model ready to compile.

    Attributes:
        name: for people.
        graph: its forward; with one output of kind ``loss`` when it is to be trained.
        batch: samples of one micro-batch.
        train: whether it is to be trained.
        state: initial values of its state, empty when it was loaded without weights.
        inputs: one micro-batch of each stream, in NumPy, likewise.
        parameters: names of the weights.
        capture_seconds: CPU seconds of the capture.
        fixed_batch: the model has no other batch size than this one.
    """

    name: str
    graph: Graph
    batch: int
    train: bool
    state: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    parameters: tuple[str, ...] = ()
    capture_seconds: float = 0.0
    fixed_batch: bool = False


def load(
    model: str,
    *,
    batch: int = 1,
    train: bool = False,
    half: bool = False,
    small: bool = False,
    weights: bool = False,
    output: str = "loss",
) -> Loaded:
    """Capture a model.

    Args:
        model: a name of the zoo; ``file.py:function``, a function of the batch size (or of nothing) that returns a
            module and its inputs (a tuple, or a dict of keyword arguments); or a file with a graph in text form.
        weights: build real (random) weights, which running needs and profiling does not.
        output: one of ``OUTPUTS``: what a training step returns; inference returns all.
    """
    if output not in OUTPUTS:
        raise InvalidOption(f"There is no output {output!r}", remedy=suggest(output, OUTPUTS) or "loss or all.")
    if batch < 1:
        raise InvalidOption(f"batch is {batch}", remedy="It must be at least 1.")
    if Path(model).suffix in (".txt", ".graph"):
        return _from_text(Path(model), train, output)
    if model.endswith(".py"):
        raise InvalidOption(
            f"{model!r} names no function", remedy="Write file.py:function; it returns (module, inputs)."
        )
    try:
        import torch
    except ImportError as error:
        raise InvalidOption(
            f"Loading {model!r} needs torch, which is not installed", remedy="pip install 'abele[torch]'"
        ) from error
    if ".py:" not in model:
        made = _from_zoo(model, batch, train, small, weights)
        return _captured(model, *made, False, batch, train, half, weights, output)
    # Values that nobody asks for take most of the time and of the memory of a large model, each time it is captured. A
    # program that does need them to be built or captured raises without them.
    if not weights:
        with suppress(Exception):
            made = _from_file(model, batch, torch.device("meta"))
            return _captured(model, *made, batch, train, half, weights, output)
    return _captured(model, *_from_file(model, batch), batch, train, half, weights, output)


def _captured(
    model: str, module: Any, inputs: Any, fixed: bool, batch: int, train: bool, half: bool, weights: bool, output: str
) -> Loaded:
    """A module with its inputs, captured; for the rest see ``load``."""
    import torch

    from abele.importers.torch import capture

    if half:
        module = module.half()
        inputs = _halved(inputs)
    args, kwargs = ((), dict(inputs)) if isinstance(inputs, Mapping) else (tuple(inputs), {})
    if isinstance(module, torch.nn.Module):
        module.train(train)
    start = time.process_time()
    try:
        captured = capture(module, args, kwargs, training=train)
    except AbeleError:
        raise
    except Exception as error:
        where = user.line_of(error)
        if user.raised_by_us(error):
            raise Bug(f"Capturing {model!r} failed with {user.said(error)}", where=where) from error
        raise UserProgramError(f"The model {model!r} raised {user.said(error)}", where=where) from error
    graph = captured.graph.replace(name=model.rsplit(":", 1)[-1].replace("-", "_"))
    if train:
        graph = _returned(one_loss(graph, captured), output)
    names = [n for n, p in captured.parameters.items() if p.requires_grad]
    state, data = _values(model, captured, args, kwargs) if weights else ({}, {})
    return Loaded(model, graph, batch, train, state, data, tuple(names), time.process_time() - start, fixed)


def _values(model: str, captured: Any, args: tuple, kwargs: dict) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Initial values of the state, and one micro-batch of the data."""
    try:
        data = dict(zip(captured.graph.inputs_of("data"), captured.arguments(args, kwargs), strict=True))
        return captured.state(), data
    except NotImplementedError as error:  # torch's, of a tensor on the device "meta"
        raise InvalidOption(
            f"{model!r} has tensors without values (on torch's device 'meta'), which cannot be run",
            remedy="Build it on the device 'cpu', or leave out --run.",
        ) from error


def one_loss(graph: Graph, captured: Any) -> Graph:
    """The graph with only its independent loss as a ``loss`` output."""
    found = captured.independent_losses()
    if len(found) != 1:
        raise InvalidOption(
            f"The model has {f'{len(found)} independent losses' if found else 'no loss'}; training needs exactly one",
            remedy="Return the loss from the forward: one of torch's, or marked by poptorch.identity_loss.",
        )
    loss = captured.losses[found[0]]
    kept = [(v, p) for v, p in zip(graph.outputs, graph.output_ports, strict=True) if p.kind != "loss"]
    kept.append((loss, Port("loss", "loss")))
    return graph.replace(outputs=tuple(v for v, _ in kept), output_ports=tuple(p for _, p in kept))


def _returned(graph: Graph, output: str) -> Graph:
    """The graph without the outputs that a training step does not return; one that has no loss keeps them all."""
    ports = graph.output_ports
    if output == "all" or all(p.kind != "loss" for p in ports):
        return graph
    kept = [(v, p) for v, p in zip(graph.outputs, ports, strict=True) if p.kind != "anchor"]
    return graph.replace(outputs=tuple(v for v, _ in kept), output_ports=tuple(p for _, p in kept))


def compile_options(
    loaded: Loaded,
    *,
    system: str | System,
    replicas: int = 1,
    accumulate: int = 1,
    stages: int = 1,
    optimizer: str = "sgd",
    recompute: str = "checkpoints",
    offload: bool = False,
    shard: int = 0,
    memory_proportion: float = 0.6,
    planner: str = "best",
    float8: str = "",
    pipeline: str = "grouped",
    offload_weights: bool = False,
    offload_activations: bool = False,
    phased: str = "",
    io_tiles: int = 0,
    accumulator: str = "",
    partials: str = "",
) -> CompileOptions:
    """Options for a loaded model; unknown names raise ``InvalidOption``. With ``io_tiles`` all transfers overlap."""
    spec = None
    if optimizer not in OPTIMISERS:
        raise InvalidOption(f"There is no optimizer {optimizer!r}", remedy=suggest(optimizer, OPTIMISERS))
    if loaded.train:
        kind, numbers, attributes = OPTIMISERS[optimizer]
        spec = Optimiser(kind, (loaded.parameters,), (tuple(numbers.items()),), attributes)
    return CompileOptions(
        find_system(system),
        replicas,
        accumulate,
        stages,
        split=stages > 1,
        optimiser=spec,
        offload=offload,
        shard=shard,
        recompute=recompute,
        partials=partials,
        float8=float8,
        plan=PlanOptions(memory_proportion, planner),
        pipeline=pipeline,
        offload_weights=offload_weights,
        offload_activations=offload_activations,
        phased=phased,
        io_tiles=io_tiles,
        overlap=OVERLAP if io_tiles else (),
        accumulator=accumulator,
    )


def usual_accumulation(stages: int, phased: str = "") -> int:
    """Micro-batches in a step where nobody says how many: enough to fill a pipeline, which phases are not."""
    return 2 * stages if stages > 1 and not phased else 1


def _from_zoo(model: str, batch: int, train: bool, small: bool, weights: bool):
    from abele.zoo import ZOO, find

    entry = find(ZOO, model)
    module = entry.build(small, training=train, device="cpu" if weights else "meta")
    try:
        return module, entry.inputs(batch, small=small, training=train)
    except (RuntimeError, TypeError, MemoryError, OverflowError) as error:  # torch's, of sizes that it cannot make
        raise InvalidOption(
            f"Inputs for a batch of {batch} cannot be made: {str(error).splitlines()[0]}",
            remedy="Choose a smaller --batch; --accumulate and --replicas make a step larger.",
        ) from error


def _from_file(model: str, batch: int, device: AbstractContextManager | None = None):
    """The module and its inputs, made on a device, and whether the function takes no batch size."""
    path, _, name = model.rpartition(":")
    module = user.load_file(path, "Write file.py:function.")
    function = getattr(module, name, None)
    if function is None:
        names = [n for n in vars(module) if not n.startswith("_")]
        raise InvalidOption(f"{path} has no {name!r}", remedy=suggest(name, names))
    if isinstance(function, type) or hasattr(function, "forward") or not callable(function):
        raise InvalidOption(
            f"{model} is {'a class' if isinstance(function, type) else 'no function'}",
            remedy="Name a function of the batch size that returns (module, inputs), as "
            "`def net(batch): return Net(), (torch.randn(batch, 16),)`.",
        )
    fixed = False
    try:
        fixed = not inspect.signature(function).parameters
        with device or nullcontext():
            made = function() if fixed else function(batch)
    except AbeleError:
        raise
    except Exception as error:
        raise UserProgramError(f"{model} raised {user.said(error)}", where=user.line_of(error)) from error
    if not isinstance(made, tuple) or len(made) != 2:
        raise InvalidOption(
            f"{model} returned {type(made).__name__}",
            remedy="It must return (module, inputs), the inputs a tuple or a dict of keyword arguments.",
        )
    module, inputs = made
    if not isinstance(inputs, tuple | list | Mapping):
        inputs = (inputs,)
    return module, inputs, fixed


def _from_text(path: Path, train: bool, output: str) -> Loaded:
    try:
        graph = parse_graph(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidOption(f"The graph {str(path)!r} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InvalidOption(
            f"The graph {str(path)!r} is no text: {error}", remedy="Compare it with what `abele opt MODEL` prints."
        ) from error
    if train:
        graph = _returned(graph, output)
    data = graph.inputs_of("data")
    batch = next((v.shape[0] for v in data.values() if v.shape), 1)
    parameters = tuple(n for n, v in graph.inputs_of("state").items() if v.dtype.is_float)
    return Loaded(path.stem, graph, batch, train, parameters=parameters, fixed_batch=True)


def _halved(inputs: Any) -> Any:
    def half(value: Any) -> Any:
        return value.half() if hasattr(value, "is_floating_point") and value.is_floating_point() else value

    if isinstance(inputs, Mapping):
        return {k: half(v) for k, v in inputs.items()}
    return tuple(map(half, inputs))


def setting_value(name: str, kind: type, text: str) -> Any:
    """The value of a setting as a user writes it; ``kind`` is ``bool``, ``int``, ``float`` or ``str``."""
    if kind is str:
        return text
    try:
        if kind is bool:
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.lower()]
        number = float(text)
        if kind is float:
            return number
        if not number.is_integer():
            raise ValueError
        return int(text) if text.lstrip("+-").isdigit() else int(number)
    except (KeyError, ValueError, OverflowError):
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise InvalidOption(f"{name} cannot be {text!r}", remedy=f"It is {wanted}.") from None

"""Torch modules as programs of the engine: captured, compiled for one GC200 and loaded with the module's weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from abele.compile.executable import compile_graph
from abele.compile.passes.update import Optimiser
from abele.compile.pipelines import CompileOptions
from abele.engine.engine import Engine
from abele.importers.torch import Capture, capture
from abele.machine import one_ipu
from abele.machine.presets import gc200

Run = Callable[[], dict[str, np.ndarray]]
WITHOUT_TORCH = ("llvm", "numpy")
"""The providers of an engine where torch is not installed."""


def _engine(
    captured: Capture, options: CompileOptions, given: Mapping[str, torch.Tensor], providers: Sequence[str] | None
) -> Run:
    engine = Engine(compile_graph(captured.graph, options).schedule, threads=1, providers=providers)
    for tensors in (captured.parameters, captured.buffers, captured.constants):
        for name, tensor in tensors.items():
            if name in engine.states:
                engine.write(name, tensor.detach().numpy())
    ports = zip(captured.graph.inputs_of("data"), captured.inputs, strict=True)
    values = {name: given[name.split(".")[-1]].numpy()[None, None] for name, _ in ports}
    streams = {name: value for name, value in values.items() if name in engine.inputs}
    print(f"  {engine.report()}")
    return lambda: engine.run(streams)


def inference(module: torch.nn.Module, inputs: dict[str, torch.Tensor], providers: Sequence[str] | None = None) -> Run:
    """A function that runs ``module(**inputs)`` on the engine; it is checked against torch once."""
    captured = capture(module, (), inputs)
    run = _engine(captured, CompileOptions(system=one_ipu(gc200)), inputs, providers)
    with torch.inference_mode():
        want = first(module(**inputs)).numpy()
    made = next(iter(run().values()))[0, 0]
    np.testing.assert_allclose(made, want, rtol=1e-3, atol=1e-3 * np.abs(want).max())
    return run


def training(
    module: torch.nn.Module,
    inputs: dict[str, torch.Tensor],
    rate: float,
    momentum: float,
    providers: Sequence[str] | None = None,
) -> Run:
    """A function that trains a module, whose forward gives (output, loss), for one step with SGD."""
    captured = capture(module, (), inputs, training=True)
    names = tuple(n for n, _ in module.named_parameters())
    fixed = (("dampening", 0.0), ("weight_decay", 0.0), ("learning_rate", rate), ("momentum", momentum))
    optimiser = Optimiser("sgd", (names,), (fixed,))
    return _engine(captured, CompileOptions(system=one_ipu(gc200), optimiser=optimiser), inputs, providers)


def first(value: Any) -> torch.Tensor:
    """The tensor, or the first of several."""
    while not isinstance(value, torch.Tensor):
        value = next(iter(value.values() if isinstance(value, Mapping) else value))
    return value

"""Models of the zoo, small, through the whole house; and the plain torch loop that they are held against."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from abele.compile import compile_graph
from abele.engine.engine import Engine
from abele.importers.torch import Capture, capture
from abele.programs import Loaded, compile_options, one_loss
from abele.zoo import ZOO

LEARNING_RATE = {"sgd": 0.05, "adam": 0.005}
BATCH = 4
EPSILON = 1e-3
"""Of Adam. With the usual 1e-8 a first step is the gradient's sign, and gradients that are zero in exact arithmetic (of
the bias of keys, or before a batch norm) would move their weights by the sign of a rounding error, on both sides."""


def module_of(name: str, *, training: bool = False) -> torch.nn.Module:
    """The model with random weights; nothing in it is dropped, so that both sides compute the same.

    Running statistics and the weights and biases that start as ones and zeros are moved off those values, so that
    a forgotten one shows.
    """
    module = ZOO[name].build(True, training=training)
    for part in module.modules():
        for attribute, value in vars(part).items():
            if "drop" in attribute and isinstance(value, float):
                setattr(part, attribute, 0.0)
        if type(part).__name__ in ("Dropout", "StochasticDepth"):
            part.p = 0.0
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point() and tensor.numel() and bool((tensor == tensor.flatten()[0]).all()):
                tensor += 0.1 * torch.rand(tensor.shape, generator=generator)
    return module


def batches(name: str, count: int, *, training: bool = False, batch: int = BATCH) -> dict[str, torch.Tensor]:
    """``count`` micro-batches of random data, stacked in a new first dimension."""
    drawn = [ZOO[name].inputs(batch, small=True, training=training, seed=5 + i) for i in range(count)]
    return {k: torch.stack([d[k] for d in drawn]) for k in drawn[0]}


def program_of(
    module: torch.nn.Module, inputs: Mapping[str, torch.Tensor], *, train: bool = False, **options: Any
) -> tuple[Engine, Capture]:
    """Capture, compile and make ready to run; ``options`` are those of ``abele profile``."""
    captured = capture(module, (), dict(inputs), training=train)
    graph = one_loss(captured.graph, captured) if train else captured.graph
    names = tuple(n for n, p in captured.parameters.items() if p.requires_grad)
    loaded = Loaded("model", graph, BATCH, train, parameters=names)
    options = {"system": "bow-2000"} | options
    settings = compile_options(loaded, **options)
    if settings.optimiser is not None and options.get("optimizer") == "adam":
        numbers = (("beta1", 0.9), ("beta2", 0.999), ("eps", EPSILON), ("weight_decay", 0.0))
        settings = replace(settings, optimiser=replace(settings.optimiser, constants=(numbers,)))
    engine = Engine(compile_graph(graph, settings).schedule, threads=1)
    for name, value in captured.state().items():
        engine.write(name, value)
    for name in engine.states:
        if name.startswith("learning_rate"):
            engine.write(name, np.float32(LEARNING_RATE[options.get("optimizer", "sgd")]))
    return engine, captured


class TorchLoop:
    """Training as a plain loop: gradients of all micro-batches of all replicas averaged, then one step.

    Parameters are shared; every replica has running statistics of its own, as on the machine.
    """

    def __init__(self, module: torch.nn.Module, optimizer: str, replicas: int) -> None:
        self.module = copy.deepcopy(module)
        self.buffers = [{n: b.clone() for n, b in self.module.named_buffers()} for _ in range(replicas)]
        rate = LEARNING_RATE[optimizer]
        if optimizer == "sgd":
            self.optimizer = torch.optim.SGD(self.module.parameters(), lr=rate, momentum=0.9)
        else:
            self.optimizer = torch.optim.Adam(self.module.parameters(), lr=rate, eps=EPSILON)

    def step(self, data: Mapping[str, torch.Tensor]) -> np.ndarray:
        """One step on data ``[turns, replicas, batch, ...]``; the losses ``[turns, replicas]``."""
        turns, replicas = next(iter(data.values())).shape[:2]
        self.optimizer.zero_grad()
        losses = np.zeros((turns, replicas))
        for replica in range(replicas):
            self._load(self.buffers[replica])
            for turn in range(turns):
                _, loss = self.module(**{k: v[turn, replica] for k, v in data.items()})
                (loss / (turns * replicas)).backward()
                losses[turn, replica] = loss.item()
            self.buffers[replica] = {n: b.clone() for n, b in self.module.named_buffers()}
        self.optimizer.step()
        return losses

    def _load(self, buffers: Mapping[str, torch.Tensor]) -> None:
        for name, buffer in self.module.named_buffers():
            buffer.copy_(buffers[name])


def distance(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference relative to the largest of ``theirs``."""
    a, b = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    assert a.shape == b.shape
    assert np.isfinite(a).all()
    return float(np.abs(a - b).max(initial=0.0) / (np.abs(b).max(initial=0.0) or 1.0))

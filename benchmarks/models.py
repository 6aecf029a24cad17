"""The models of the zoo at full size against torch: logits, and three training steps.

Random weights and data, from fixed seeds; nothing is dropped at random, so that both sides compute the same. Each model
and mode runs in a process of its own, for its memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from benchmarks.base import Benchmark, Row, Settings, apart, peak_bytes

BATCH = 1
STEPS = 3
RATE, MOMENTUM = 0.001, 0.9
LOGITS, LOSSES, WEIGHTS = 1e-4, 1e-4, 1e-3
"""Largest differences allowed: of logits and of each weight relative to the tensor's largest value, of losses relative.
Both sides sum in float in another order; what a step differs by grows in the next ones."""

DOUBLE = 2.0
"""How much further from double precision than torch in float is accepted, where the limits do not hold."""

INFERENCE = f"Zoo models at full size, batch {BATCH}: logits against torch"
TRAINING = f"Zoo models at full size, batch {BATCH}: {STEPS} steps of SGD with momentum against torch"


def benchmarks() -> list[Benchmark]:
    """Inference and training of each model."""
    from abele.zoo import ZOO

    found = []
    for name in ZOO:
        quick = name in ("mlp", "mnist-cnn")
        found.append(Benchmark(INFERENCE, f"{name}-inference", _run(infer, name), quick))
        found.append(Benchmark(TRAINING, f"{name}-training", _run(train, name), quick))
    return found


def _run(function: Callable[[str], Row], name: str) -> Callable[[Settings], Sequence[Row]]:
    def run(_: Settings) -> Sequence[Row]:
        prepare()
        return [apart(function, name)]

    return run


@lru_cache(maxsize=1)
def prepare() -> None:
    """Import what all need; no arithmetic, whose threads would not survive a fork."""
    import importlib

    for module in ("abele.programs", "abele.compile", "abele.engine.engine", "abele.zoo", "transformers"):
        importlib.import_module(module)


def infer(name: str) -> Row:
    """One forward pass on the engine and in torch."""
    import torch

    from abele.zoo import ZOO

    module = module_of(name, training=False)
    inputs = ZOO[name].inputs(BATCH, seed=5)
    engine, streams = _program(module, inputs, train=False)
    ours, our_seconds = _timed(lambda: next(iter(engine.run(streams).values()))[0, 0])
    with torch.inference_mode():
        theirs, torch_seconds = _timed(lambda: module(**inputs))
    logits = difference(ours, theirs.numpy())
    return {
        "model": name,
        "logits": logits,
        "limit": LOGITS,
        "holds": logits <= LOGITS,
        "abele, first run, CPU s": our_seconds,
        "torch, first run, CPU s": torch_seconds,
        "peak GiB, both": peak_bytes() / 2**30,
    }


def train(name: str) -> Row:
    """Three steps on the engine and in torch, each on other data."""
    from abele.zoo import ZOO

    module = module_of(name, training=True)
    data = [ZOO[name].inputs(BATCH, training=True, seed=5 + i) for i in range(STEPS)]
    named = {n: p for n, p in module.named_parameters() if p.requires_grad}
    ours, our_seconds, weights = _our_steps(module, data, list(named))
    missing = [n for n in named if n not in weights]
    theirs, torch_seconds, expected = _torch_steps(module, data)
    apart_by = {n: difference(w, expected[n]) for n, w in weights.items()}
    worst = max(apart_by, key=lambda n: apart_by[n])
    losses = _relative(ours, theirs)
    row: dict[str, Any] = {
        "model": name,
        "losses": " ".join(f"{x:.4f}" for x in ours),
        "loss difference": losses,
        "loss limit": LOSSES,
        "weight difference": apart_by[worst],
        "weight limit": WEIGHTS,
        "holds": losses <= LOSSES and apart_by[worst] <= WEIGHTS,
        "holds by": "the limits",
        "worst weight": worst,
        "weights": len(weights),
        "weights not in the program": ", ".join(missing),
        "abele, CPU s a step": float(np.median(our_seconds)),
        "torch, CPU s a step": float(np.median(torch_seconds)),
    }
    if not row["holds"]:
        row |= _against_double(name, data, (ours, weights), (theirs, expected))
    return row | {"peak GiB, both": peak_bytes() / 2**30}


def _against_double(
    name: str, data: Sequence[Mapping[str, Any]], ours: tuple[Any, Any], theirs: tuple[Any, Any]
) -> dict[str, Any]:
    """Both sides against torch in double precision, where the steps magnify rounding.

    Single numbers then depend on chance (a rectifier that flips), on both sides. Holds when the first loss agrees and
    what the steps changed, all weights together, is at most ``DOUBLE`` times as far from double as in torch's float. A
    model that is far from double after all steps shows whether it was so after the first.
    """
    exact, mine, torchs = _distances(name, data, ours[1], theirs[1])
    row = {
        "losses from double, abele": _relative(ours[0], exact),
        "losses from double, torch": _relative(theirs[0], exact),
        "change of all weights from double, abele": mine,
        "change of all weights from double, torch": torchs,
        "holds": _relative(ours[0][:1], theirs[0][:1]) <= LOSSES and mine <= DOUBLE * torchs,
        "holds by": "the distance from double",
    }
    first, module = data[:1], module_of(name, training=True)
    after = _our_steps(module, first, list(ours[1]))[2], _torch_steps(module, first)[2]
    _, mine, torchs = _distances(name, first, *after)
    return row | {
        "change in the first step from double, abele": mine,
        "change in the first step from double, torch": torchs,
    }


def _distances(
    name: str, data: Sequence[Mapping[str, Any]], *sides: Mapping[str, np.ndarray]
) -> tuple[list[float], float, float]:
    """Losses in double precision, and how far from it each side's change of all weights is, relative to the change."""
    module = module_of(name, training=True).double()
    start = {n: p.detach().numpy().copy() for n, p in module.named_parameters()}
    exact, _, weights = _torch_steps(module, data)
    moved = sum(float(np.sum((weights[n] - start[n]) ** 2)) for n in sides[0])
    mine, torchs = (sum(float(np.sum((side[n] - weights[n]) ** 2)) for n in sides[0]) for side in sides)
    return exact, (mine / moved) ** 0.5, (torchs / moved) ** 0.5


def _torch_steps(
    module: Any, data: Sequence[Mapping[str, Any]]
) -> tuple[list[float], list[float], dict[str, np.ndarray]]:
    """Losses and CPU seconds of the steps in torch, and the weights after them."""
    import torch

    optimiser = torch.optim.SGD(module.parameters(), lr=RATE, momentum=MOMENTUM)
    dtype = next(module.parameters()).dtype

    def step(inputs: Mapping[str, torch.Tensor]) -> float:
        optimiser.zero_grad()
        loss = module(**{k: v.to(dtype) if v.is_floating_point() else v for k, v in inputs.items()})[1]
        loss.backward()
        optimiser.step()
        return loss.item()

    losses, used = [], []
    for inputs in data:
        loss, seconds = _timed(lambda inputs=inputs: step(inputs))
        losses.append(loss)
        used.append(seconds)
    return losses, used, {n: p.detach().numpy() for n, p in module.named_parameters() if p.requires_grad}


def _relative(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True))


def _our_steps(
    module: Any, data: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> tuple[list[float], list[float], dict[str, np.ndarray]]:
    """Losses and CPU seconds of the steps on the engine, and the weights after them."""
    engine, _ = _program(module, data[0], train=True)
    engine.write("learning_rate.0", np.float32(RATE))
    losses, used = [], []
    for inputs in data:
        streams = _streams(engine, inputs)
        results, seconds = _timed(lambda streams=streams: engine.run(streams))
        losses.append(float(results["loss"][0, 0]))
        used.append(seconds)
    return losses, used, {n: engine.read(n) for n in names if n in engine.states}


def module_of(name: str, *, training: bool) -> Any:
    """The model with random weights. Those that start as ones or zeros are moved, so that a forgotten one shows."""
    import torch

    from abele.zoo import ZOO

    module = ZOO[name].build(training=training)
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


def difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The largest difference relative to the largest of ``theirs``; infinite where ours is not finite."""
    if ours.shape != theirs.shape:
        raise ValueError(f"shapes differ: {ours.shape} and {theirs.shape}")
    if not np.isfinite(ours).all():
        return float("inf")
    return float(np.abs(ours - theirs).max(initial=0.0) / (np.abs(theirs).max(initial=0.0) or 1.0))


def _program(module: Any, inputs: Mapping[str, Any], *, train: bool) -> tuple[Any, dict[str, np.ndarray]]:
    """The engine with the module's weights, and the streams for these inputs."""
    from abele.compile import compile_graph
    from abele.engine.engine import Engine
    from abele.importers.torch import capture
    from abele.programs import Loaded, compile_options, one_loss

    captured = capture(module, (), dict(inputs), training=train)
    graph = one_loss(captured.graph, captured) if train else captured.graph
    names = tuple(n for n, p in captured.parameters.items() if p.requires_grad)
    loaded = Loaded("model", graph, BATCH, train, parameters=names)
    engine = Engine(compile_graph(graph, compile_options(loaded, system="bow-2000")).schedule)
    for name, value in captured.state().items():
        engine.write(name, value)
    return engine, _streams(engine, inputs)


def _streams(engine: Any, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: inputs[name.split(".")[-1]].numpy()[None, None] for name in engine.inputs}


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    result = call()
    return result, time.process_time() - start

"""Compile time and memory: every model of the zoo cold and warm, and what must not grow.

Each compile runs in a process of its own, a fork of one that has imported everything and remembers no compile, so that
nothing is left over from another. Importing torch and building the model (on the meta device) are not counted.
"""

from __future__ import annotations

import importlib
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from benchmarks.base import Benchmark, Row, Settings, apart, peak_bytes

COLD_SECONDS = 10.0
"""Limit of a cold compile, capture included, CPU seconds."""
WARM_SECONDS = 0.5
"""Limit of a compile from the cache, beyond the capture, CPU seconds."""
POD_SECONDS = 1.0
"""Limit of what 64,000 IPUs cost beyond 16, CPU seconds."""
LAYERS, SCALE = 1.3, 1.1
"""Limits of the growth with repeated layers, and with IPUs and tiles, as ratios of the time after capture."""

MODELS = "Compiling each model of the zoo for bow-2000 (CPU seconds)"
PODS = "Compiling and charging bert-large's training, pipelined and replicated (CPU seconds, capture included)"
GROWTH = "Growth of compiling, after capture (CPU time and memory of the larger over the smaller)"


def benchmarks() -> list[Benchmark]:
    """A row for each model and mode, and one for each thing that must not grow."""
    from abele.zoo import ZOO

    found = []
    for name in ZOO:
        for train in (False, True):
            mode = "training" if train else "inference"
            run = _model(name, train)
            found.append(Benchmark(MODELS, f"{name}-{mode}", run, quick=name in ("mnist-cnn", "bert-base")))
    for train in (False, True):
        mode = "training" if train else "inference"
        base = {"model": "bert-base", "train": train}
        found += [
            _growth(f"layers-{mode}", "bert-large / bert-base", base, base | {"model": "bert-large"}, LAYERS, True),
            _growth(f"replicas-{mode}", "16 replicas on bow-pod64 / 1", base, _pod("bow-pod64", 16, base), SCALE),
            _growth(f"pod256-{mode}", "256 replicas on bow-pod256 / 1", base, _pod("bow-pod256", 256, base), SCALE),
            _growth(f"tiles-{mode}", "4 times the tiles / bow", base | {"tiles": 1}, base | {"tiles": 4}, SCALE),
        ]
    found.append(Benchmark(PODS, "pods", _pods))
    one = {"model": "bert-base", "train": True}
    two = one | {"accumulate": 2}
    found += [
        _growth("loop", "accumulation 2 / 1", one, two, None),
        _growth("accumulation", "accumulation 64 / 2", two, one | {"accumulate": 64}, SCALE),
    ]
    of = {steps: {"model": f"{__file__}:lstm_of_{steps}", "train": True} for steps in (64, 256)}
    found.append(_growth("time", "lstm of 256 time steps / 64", of[64], of[256], 4 * SCALE))
    return found


def _pods(settings: Settings) -> Sequence[Row]:
    """Four stages in as many replicas as a pod has room for, the optimiser's state sharded and off the chip."""
    prepare()
    asked = {"train": True, "half": True, "stages": 4, "accumulate": 64, "offload": True, "shard": 8192}
    asked |= {"optimizer": "lamb", "recompute": "standard"}
    seconds: dict[str, list[float]] = {}
    for _ in range(settings.rounds):
        for system, replicas in (("bow-pod16", 4), ("bow-64000", 16_000)):
            found = apart(compile_once, "bert-large", system=system, replicas=replicas, **asked)
            seconds.setdefault(system, []).append(found["capture"] + found["compile"] + found["cost"])
    small, large = (statistics.median(each) for each in seconds.values())
    more = statistics.median(b - a for a, b in zip(*seconds.values(), strict=True))
    return [
        {
            "bow-pod16, 4 replicas": small,
            "limit": COLD_SECONDS,
            "bow-64000, 16,000 replicas": large,
            "more": more,
            "limit of more": POD_SECONDS,
            "holds": small <= COLD_SECONDS and more <= POD_SECONDS,
        }
    ]


def _pod(system: str, replicas: int, base: Mapping[str, Any]) -> dict[str, Any]:
    return {**base, "system": system, "replicas": replicas}


def _model(name: str, train: bool) -> Callable[[Settings], Sequence[Row]]:
    def run(settings: Settings) -> Sequence[Row]:
        prepare()
        found = [apart(compile_once, name, train=train, warm=True) for _ in range(settings.rounds)]
        middle = {k: statistics.median(f[k] for f in found) for k in found[0]}
        cold = statistics.median(f["capture"] + f["compile"] for f in found)
        return [
            {
                "model": name,
                "mode": "training" if train else "inference",
                "capture": middle["capture"],
                "cold": cold,
                "cold limit": COLD_SECONDS,
                "warm beyond capture": middle["warm"],
                "warm limit": WARM_SECONDS,
                "holds": cold <= COLD_SECONDS and middle["warm"] <= WARM_SECONDS,
                "charging (cost)": middle["cost"],
                "peak MiB of compile": middle["bytes"] / 2**20,
                "steps": int(middle["steps"]),
            }
        ]

    return run


def _growth(
    name: str, title: str, small: Mapping[str, Any], large: Mapping[str, Any], limit: float | None, quick: bool = False
) -> Benchmark:
    def run(settings: Settings) -> Sequence[Row]:
        prepare()
        pairs = [(apart(compile_once, **small), apart(compile_once, **large)) for _ in range(settings.rounds)]
        ratio = statistics.median(b["compile"] / a["compile"] for a, b in pairs)
        row: dict[str, Any] = {
            "what": title,
            "mode": "training" if small["train"] else "inference",
            "smaller, s": statistics.median(a["compile"] for a, _ in pairs),
            "larger, s": statistics.median(b["compile"] for _, b in pairs),
            "ratio": ratio,
            "limit": limit if limit is not None else "none",
            "holds": ratio <= limit if limit is not None else "",
            "memory ratio": statistics.median(b["bytes"] / max(a["bytes"], 1) for a, b in pairs),
            "charging ratio": statistics.median(b["cost"] / a["cost"] for a, b in pairs),
        }
        return [row]

    return Benchmark(GROWTH, name, run, quick)


def lstm_of_64(batch: int) -> Any:
    """A small LSTM over 64 time steps, and its input, as ``abele profile file.py:function`` takes them."""
    return _lstm(batch, 64)


def lstm_of_256(batch: int) -> Any:
    """The same over 256 time steps."""
    return _lstm(batch, 256)


def _lstm(batch: int, steps: int) -> Any:
    import torch

    class Last(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(64, 128, batch_first=True)
            self.head = torch.nn.Linear(128, 10)

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
            found = self.head(self.lstm(x)[0][:, -1])
            return found, torch.nn.functional.cross_entropy(found, labels)

    return Last(), (torch.zeros(batch, steps, 64), torch.zeros(batch, dtype=torch.int64))


@lru_cache(maxsize=1)
def prepare() -> None:
    """Import everything that a capture and a compile import, torch's lazy parts too, and compile nothing."""
    import torch
    from torch import nn

    from abele.importers.torch import capture

    for module in ("abele.compile.session", "abele.programs", "abele.cost", "abele.zoo", "transformers"):
        importlib.import_module(module)
    torch.set_num_threads(1)
    with torch.device("meta"):
        for training in (False, True):  # torch loads parts of itself at the first capture
            capture(nn.Linear(1, 1).train(training), (torch.empty(1, 1),), {}, training=training)


def compile_once(
    model: str,
    *,
    train: bool,
    system: str = "bow-2000",
    replicas: int = 1,
    accumulate: int = 1,
    tiles: int = 0,
    warm: bool = False,
    half: bool = False,
    **settings: Any,
) -> dict[str, float]:
    """Capture, compile and charge one model in this process.

    Args:
        tiles: the chip has so many times its tiles; 0: as the system is.
        warm: then compile again from the cache.
        settings: further ones of ``compile_options``.

    Returns:
        CPU seconds of ``capture``, ``compile`` (after the capture), ``warm`` and ``cost``; ``bytes`` that the compile
        held at most beyond what was held before; ``steps`` of the schedule.
    """
    from abele.compile.cache import Cache
    from abele.compile.executable import compile_graph
    from abele.cost import cost
    from abele.programs import compile_options, load

    loaded = load(model, batch=1, train=train, half=half)
    options = compile_options(loaded, system=system, replicas=replicas, accumulate=accumulate, **settings)
    if tiles:
        options = _with_tiles(options, tiles)
    with tempfile.TemporaryDirectory() as directory:
        cache, before = Cache(directory), peak_bytes()
        start = time.process_time()
        executable = compile_graph(loaded.graph, options, cache=cache)
        done = time.process_time()
        result = {"capture": loaded.capture_seconds, "compile": done - start, "bytes": float(peak_bytes() - before)}
        result["steps"] = float(sum(len(f.nodes) for f in executable.schedule.all_functions()))
        if warm:
            start = time.process_time()
            executable = compile_graph(loaded.graph, options, cache=cache)
            result["warm"] = time.process_time() - start
            if not executable.cached:
                raise RuntimeError("the executable did not come from the cache")
    start = time.process_time()
    cost(executable.schedule, options.system, samples=accumulate * replicas)
    result["cost"] = time.process_time() - start
    return result


def _with_tiles(options: Any, times: int) -> Any:
    chip = options.system.chip
    larger = chip.derive(f"{chip.name}-x{times}", tiles=chip.tiles * times)
    return replace(options, system=options.system.derive(f"{options.system.name}-x{times}", chip=larger))

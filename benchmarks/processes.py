"""Training over several processes: 50 steps, held against one process that has all the replicas.

A network with batch norm, dropout, gradient accumulation and an optimizer spread over four replicas, in 1, 2 and 4
processes of one thread each. ``difference`` is the largest of any loss from that of one process, relative. Where there
are fewer processors than processes the time says what the processes cost, not what they gain.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import statistics
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.base import Benchmark, Row, Settings

TITLE = "poptorch: 50 steps of four replicas in several processes"
LIMIT = 1e-5
"""Largest relative difference of a loss."""
STEPS, REPLICAS, ACCUMULATION, MICRO = 50, 4, 2, 8


def benchmarks() -> list[Benchmark]:
    """One row for each number of processes."""
    return [Benchmark(TITLE, "replicas", _run, quick=False)]


def _run(settings: Settings) -> Sequence[Row]:
    import numpy as np

    rows, whole = [], None
    for size in (1, 2, 4):
        parts = _in_processes(size)
        losses = np.concatenate([part["losses"] for part in parts], axis=2)
        whole = losses if whole is None else whole
        difference = float(np.max(np.abs(losses - whole) / np.abs(whole)))
        row = {"processes": size, "ms a step": 1000 * max(part["seconds"] for part in parts), "difference": difference}
        rows.append(row | {"limit": LIMIT, "holds": difference <= LIMIT})
    return rows


def _in_processes(size: int) -> list[dict[str, Any]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe(duplex=False) for _ in range(size)]
    processes = [context.Process(target=_train, args=(i, size, port, theirs)) for i, (_, theirs) in enumerate(pipes)]
    for process, (_, theirs) in zip(processes, pipes, strict=True):
        process.start()
        theirs.close()
    found = [ours.recv() for ours, _ in pipes]
    for process in processes:
        process.join()
    return found


def _train(rank: int, size: int, port: int, pipe: Any) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    import torch
    from torch import nn

    import poptorch

    torch.set_num_threads(1)
    torch.manual_seed(0)

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                *(nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
                *(nn.Linear(16 * 13 * 13, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10)),
            )

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return nn.functional.cross_entropy(self.layers(x), y)

    own = REPLICAS // size
    options = poptorch.Options().replicationFactor(own).randomSeed(7).broadcastBuffers(False)
    options.outputMode(poptorch.OutputMode.All).Distributed.configureProcessId(rank, size)
    options.Training.gradientAccumulation(ACCUMULATION)
    options.TensorLocations.setOptimizerLocation(poptorch.TensorLocationSettings().useReplicatedTensorSharding())
    network = Network()
    training = poptorch.trainingModel(network, options, poptorch.optim.AdamW(network.parameters(), lr=1e-3))
    draw = torch.Generator().manual_seed(3)
    losses, seconds = [], []
    for _ in range(STEPS):
        x = torch.randn(ACCUMULATION, REPLICAS, MICRO, 1, 28, 28, generator=draw)
        y = torch.randint(0, 10, (ACCUMULATION, REPLICAS, MICRO), generator=draw)
        mine = [t[:, rank * own : (rank + 1) * own].flatten(0, 2) for t in (x, y)]
        if not training.isCompiled():
            training.compile(*mine)
        began = time.perf_counter()
        losses.append(training(*mine).reshape(ACCUMULATION, own).numpy())
        seconds.append(time.perf_counter() - began)
    import numpy as np

    pipe.send({"losses": np.stack(losses), "seconds": statistics.median(seconds)})
    pipe.close()

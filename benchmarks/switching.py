"""A wrapped digits network: its first call, compiled afresh, and switches between a training and an inference model.

The network is what tutorials use for MNIST: two convolutions with pooling, two linear layers, dropout, 50 device
iterations of eight images. Both models share their weights; a switch takes them from one to the other and compiles
nothing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from benchmarks.base import Benchmark, Row, Settings, apart
from benchmarks.compile import prepare

TITLE = "poptorch: first calls of a digits network, and switching between training and inference (CPU seconds)"
COLD_SECONDS = 1.5
"""Limit of the first call of the training model, compile and run."""
ROUNDS = 5
"""Switches there and back."""


def benchmarks() -> list[Benchmark]:
    """One row."""
    return [Benchmark(TITLE, "digits", _run, quick=True)]


def _run(settings: Settings) -> Sequence[Row]:
    prepare()
    found = [apart(_switches) for _ in range(settings.rounds)]
    row = {name: statistics.median(each[name] for each in found) for name in found[0]}
    limit, nothing = {"limit": COLD_SECONDS}, row["compiled while switching"] == 0
    return [row | limit | {"holds": row["cold compile"] <= COLD_SECONDS and nothing}]


def _switches() -> dict[str, float]:
    import torch
    from torch import nn

    import poptorch
    from abele.compile import session

    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv2d(1, 32, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(1600, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10), nn.Softmax(1)),
    )

    class Training(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network, self.loss = network, nn.CrossEntropyLoss()

        def forward(self, x, y):
            made = self.network(x)
            return made, self.loss(made, y)

    module = Training()
    options = poptorch.Options().deviceIterations(50)
    training = poptorch.trainingModel(module, options, poptorch.optim.SGD(module.parameters(), lr=0.05))
    inference = poptorch.inferenceModel(network)
    x, y = torch.rand(400, 1, 28, 28), torch.randint(0, 10, (400,))
    start = time.process_time()
    training.compile(x, y)
    compiled = time.process_time() - start
    training(x, y)
    inference(x[:80])
    programs = len(session.current().programs)
    begun = time.process_time()
    for _ in range(ROUNDS):
        training(x, y)
        inference(x[:80])
    switching = (time.process_time() - begun) / ROUNDS
    begun = time.process_time()
    for _ in range(ROUNDS):
        training(x, y)
    alone = (time.process_time() - begun) / ROUNDS
    return {
        "cold compile": compiled,
        "training call": alone,
        "training and inference call": switching,
        "compiled while switching": len(session.current().programs) - programs,
    }
